package documents

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

// IsTrustedURL reports whether text is a URL whose answer can be trusted: TLS, or a
// program on this machine.
func IsTrustedURL(text string) bool {
	u, err := url.Parse(text)
	return err == nil && u.Opaque == "" && authentic(u)
}

func authentic(u *url.URL) bool {
	return u.Hostname() != "" && u.User == nil && (u.Scheme == "https" || u.Scheme == "http" && local(u))
}

// mayLead reports whether a redirect is followed. Another machine must not make this one
// call its own programs.
func mayLead(from, to *url.URL) bool { return authentic(to) && (local(from) || !local(to)) }

// local reports whether u leads to this machine.
func local(u *url.URL) bool {
	addr, err := netip.ParseAddr(u.Hostname())
	return u.Hostname() == "localhost" || err == nil && addr.IsLoopback()
}

// Fetch gets what the address of a field holds. An error does not show the address,
// which may be signed.
func Fetch(ctx context.Context, field, address string) ([]byte, error) {
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true, MaxResponseHeaderBytes: 64 << 10}
	client := &http.Client{Timeout: bootstrapTimeout, Transport: transport, CheckRedirect: func(r *http.Request, via []*http.Request) error {
		if len(via) > 3 || !mayLead(via[0].URL, r.URL) {
			return fmt.Errorf("redirected to %s://%s, which is not followed", r.URL.Scheme, r.URL.Host)
		}
		return nil
	}}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, fmt.Errorf("%s is not a valid URL", field)
	}
	answer, err := client.Do(r)
	if err != nil {
		var wrapped *url.Error
		if errors.As(err, &wrapped) {
			err = wrapped.Err
		}
		return nil, fmt.Errorf("%s, %s: %w", field, r.URL.Host, err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s, %s: answered %s; it must be 200", field, r.URL.Host, answer.Status)
	}
	document, err := io.ReadAll(io.LimitReader(answer.Body, consul.MaxDocument+1))
	if err == nil && len(document) > consul.MaxDocument {
		err = fmt.Errorf("is longer than %d bytes", consul.MaxDocument)
	}
	if err != nil {
		return nil, fmt.Errorf("%s, %s: %w", field, r.URL.Host, err)
	}
	return document, nil
}
