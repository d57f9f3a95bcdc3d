package console

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/weir-edge/weir/internal/console/access"
	"github.com/weir-edge/weir/internal/httpconns"
	"github.com/weir-edge/weir/internal/webpage"
)

// originsOf maps each Host header that the console accepts to the origin of its pages there.
// Any other Host is a foreign name that resolves to this address (DNS rebinding), whose pages
// the browser would treat as this origin.
func originsOf(public string, addr netip.AddrPort) map[string]string {
	origins := map[string]string{}
	if u, err := url.Parse(public); err == nil && u.Host != "" {
		origins[u.Host] = public
		if u.Port() == "" {
			origins[u.Host+":443"] = public
		}
		return origins
	}
	hosts := []string{addr.String(), netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port()).String()}
	if Loopback(addr) {
		hosts = append(hosts, fmt.Sprintf("localhost:%d", addr.Port()))
	}
	for _, host := range hosts {
		origins[host] = "http://" + host
	}
	return origins
}

// guard refuses requests that come neither from the console's own page nor from a program that
// is not a browser.
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		webpage.Protect(w.Header())
		w.Header().Set("Cache-Control", "no-store")
		if strings.HasPrefix(s.Origin, "https://") {
			w.Header().Set("Strict-Transport-Security", "max-age=31536000") // a year
		}
		if err := s.Access.Admit(r); err != nil {
			s.denied(w, r, err)
			return
		}
		own, known := s.origins[strings.ToLower(r.Host)]
		if !known {
			refuse(w, http.StatusMisdirectedRequest, fmt.Sprintf("Host %q is not this console; open the address that it printed when it started. A proxy must pass Host on", clip(r.Host)))
			return
		}
		// Links on other sites may open a page, and nothing else.
		page := r.Method == http.MethodGet && !strings.HasPrefix(r.URL.Path, "/api/")
		if origin := r.Header.Get("Origin"); origin != "" && origin != own {
			refuse(w, http.StatusForbidden, fmt.Sprintf("a page of %s may not call this console", clip(origin)))
			return
		}
		if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" && site != "none" && !page {
			refuse(w, http.StatusForbidden, "a page of another origin may not call this console")
			return
		}
		if r.Method != http.MethodGet && r.Method != http.MethodHead && r.Method != http.MethodPost {
			refuse(w, http.StatusMethodNotAllowed, "only GET and POST are answered")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// known passes only authenticated requests, and ends them when their session ends.
func (s *Server) known(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		person, err := s.Access.Identify(r)
		if err != nil {
			s.denied(w, r, err)
			return
		}
		httpconns.Known(r, true)
		ctx := context.WithValue(r.Context(), personKey{}, person)
		if !person.Until.IsZero() {
			var cancel context.CancelFunc
			ctx, cancel = context.WithDeadline(ctx, person.Until)
			defer cancel()
		}
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// holds reports whether a request carries its person's token.
func holds(r *http.Request, person access.Person) bool {
	return subtle.ConstantTimeCompare([]byte(r.Header.Get(access.HeaderToken)), []byte(person.Token)) == 1
}

type personKey struct{}

// personOf returns the person that known identified, or the zero Person.
func personOf(r *http.Request) access.Person {
	person, _ := r.Context().Value(personKey{}).(access.Person)
	return person
}

// denied answers a request of a person who is unknown or has no role.
func (s *Server) denied(w http.ResponseWriter, r *http.Request, err error) {
	why := &access.Refusal{Status: http.StatusForbidden, Detail: err.Error()}
	_ = errors.As(err, &why) // every error of Access is a Refusal
	if why.After > 0 {
		w.Header().Set("Retry-After", fmt.Sprint(int(why.After.Seconds())))
	} else { // frequent requests would fill the log, too
		s.Log.Warn("denied", "path", clip(r.URL.Path), "peer", r.RemoteAddr, "status", why.Status, "why", why.Detail)
	}
	reply(w, why.Status, Problem{Type: "about:blank", Title: http.StatusText(why.Status), Status: why.Status, Detail: why.Detail, Reason: why.Reason, Login: why.Login})
}

// clip shortens an unknown caller's text for an answer.
func clip(text string) string {
	if len(text) > 100 {
		return text[:100] + "…"
	}
	return text
}
