package blocklist

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

// Source is where a list comes from. It remembers what the server reported of the text that was
// kept, so that an unchanged list is not sent again.
type Source struct {
	where  string
	url    *url.URL // nil: a file
	bound  time.Duration
	most   int64 // bytes
	client *http.Client

	kept validators
}

// validators tell a server which text is known.
type validators struct{ etag, modified string }

// mostRedirects is how often a server may send the request elsewhere.
const mostRedirects = 5

// NewSource takes an http or https URL, or the name of a file. An attempt to fetch takes no longer than
// bound, and reads at most most bytes.
func NewSource(from string, bound time.Duration, most int64) (*Source, error) {
	s := &Source{where: from, bound: bound, most: most}
	u, err := url.Parse(from)
	switch {
	case err != nil:
		return nil, errors.New("must be a URL or a file")
	case u.Scheme == "" && u.Host == "":
		return s, nil
	case u.Scheme == "file" && (u.Host == "" || u.Host == "localhost") && u.Path != "":
		s.where = u.Path
		return s, nil
	case u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return nil, errors.New("must be a file, or an http or https URL")
	}
	s.url = u
	s.where = (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String() // passwords and keys stay out of messages
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxResponseHeaderBytes = 64 << 10
	transport.DisableKeepAlives = true // the next question is an hour away
	s.client = &http.Client{Transport: transport, CheckRedirect: func(r *http.Request, via []*http.Request) error {
		switch {
		case len(via) > mostRedirects:
			return fmt.Errorf("more than %d redirects", mostRedirects)
		case r.URL.Scheme != "https" && via[0].URL.Scheme == "https":
			return errors.New("a redirect leads from https to " + r.URL.Scheme)
		}
		return nil
	}}
	return s, nil
}

// String is the file, or the URL without what could be secret.
func (s *Source) String() string { return s.where }

// Fetch returns the text of the list, and what to call once it is in use. The text is nil if it is
// the one that was in use.
func (s *Source) Fetch(ctx context.Context) (text []byte, use func(), err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.bound, fmt.Errorf("took longer than %s", s.bound))
	defer cancel()
	var v validators
	if s.url == nil {
		text, err = s.open()
	} else {
		text, v, err = s.get(ctx)
	}
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", s.where, s.hide(err))
	}
	return text, func() { s.kept = v }, nil
}

// hide takes the URL out of an error: it may hold a password or a key.
func (s *Source) hide(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

func (s *Source) open() ([]byte, error) {
	f, err := os.Open(s.where)
	if err != nil {
		var p *os.PathError
		if errors.As(err, &p) {
			err = p.Err
		}
		return nil, err
	}
	defer f.Close() // only read
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.New("is not a file") // a pipe could block for ever
	}
	return s.read(f)
}

func (s *Source) get(ctx context.Context) (text []byte, v validators, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url.String(), nil)
	if err != nil {
		return nil, v, err
	}
	r.Header.Set("User-Agent", "weir-regionctl")
	r.Header.Set("Accept", "text/plain, */*;q=0.1")
	if s.kept.etag != "" {
		r.Header.Set("If-None-Match", s.kept.etag)
	}
	if s.kept.modified != "" {
		r.Header.Set("If-Modified-Since", s.kept.modified)
	}
	resp, err := s.client.Do(r)
	if err != nil {
		return nil, v, err
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusNotModified && s.kept != validators{}:
		return nil, s.kept, nil
	case resp.StatusCode != http.StatusOK:
		return nil, v, fmt.Errorf("answers %s", strings.TrimSpace(resp.Status))
	}
	text, err = s.read(resp.Body)
	return text, validators{resp.Header.Get("ETag"), resp.Header.Get("Last-Modified")}, err
}

func (s *Source) read(from io.Reader) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(from, s.most+1))
	switch {
	case err != nil:
		return nil, err
	case int64(len(text)) > s.most:
		return nil, fmt.Errorf("is longer than %d bytes", s.most)
	case text == nil:
		text = []byte{}
	}
	return text, nil
}
