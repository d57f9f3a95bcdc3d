package edge

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"time"

	"github.com/weir-edge/weir/pkg/region/consul"
)

// bootstrapTimeout bounds one attempt to fetch a document, redirects included.
const bootstrapTimeout = 10 * time.Second

// bootstrapURL reports whether text is a URL whose answer can be trusted: TLS, or a
// program on this machine.
func bootstrapURL(text string) bool {
	u, err := url.Parse(text)
	return err == nil && u.Opaque == "" && authentic(u)
}

func authentic(u *url.URL) bool {
	addr, err := netip.ParseAddr(u.Hostname())
	local := u.Hostname() == "localhost" || err == nil && addr.IsLoopback()
	return u.Hostname() != "" && u.User == nil && (u.Scheme == "https" || u.Scheme == "http" && local)
}

// fetchDocument gets what address holds. An error does not show the address, which may
// be signed.
func fetchDocument(ctx context.Context, address string) ([]byte, error) {
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true, MaxResponseHeaderBytes: 64 << 10}
	client := &http.Client{Timeout: bootstrapTimeout, Transport: transport, CheckRedirect: func(r *http.Request, via []*http.Request) error {
		if len(via) > 3 || !authentic(r.URL) {
			return fmt.Errorf("redirected to %s://%s, which is not followed", r.URL.Scheme, r.URL.Host)
		}
		return nil
	}}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, errors.New("rules.bootstrap is no URL")
	}
	answer, err := client.Do(r)
	if err != nil {
		var wrapped *url.Error
		if errors.As(err, &wrapped) {
			err = wrapped.Err
		}
		return nil, fmt.Errorf("rules.bootstrap, %s: %w", r.URL.Host, err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("rules.bootstrap, %s: answered %s; it must be 200", r.URL.Host, answer.Status)
	}
	document, err := io.ReadAll(io.LimitReader(answer.Body, consul.MaxDocument+1))
	if err == nil && len(document) > consul.MaxDocument {
		err = fmt.Errorf("is longer than %d bytes", consul.MaxDocument)
	}
	if err != nil {
		return nil, fmt.Errorf("rules.bootstrap, %s: %w", r.URL.Host, err)
	}
	return document, nil
}
