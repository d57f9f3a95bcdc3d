package console

import (
	"crypto/subtle"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
)

// HeaderToken carries the token of GET /api/v1/session in every request that changes
// something. A page of another origin can neither read that answer nor set this header.
const HeaderToken = "Weir-Console-Token"

// policy lets a page load and run only what this console serves.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// hostsOf are the names by which a listener may be addressed. Any other in Host is a name
// that somebody pointed at this address, so that their page counts as this origin.
func hostsOf(addr netip.AddrPort) map[string]bool {
	port := fmt.Sprint(addr.Port())
	hosts := map[string]bool{addr.String(): true, netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port()).String(): true}
	if Loopback(addr) {
		hosts["localhost:"+port] = true
	}
	return hosts
}

// guard refuses what does not come from the console's own page, or from a program that is
// not a browser.
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		if !s.hosts[strings.ToLower(r.Host)] {
			refuse(w, http.StatusMisdirectedRequest, fmt.Sprintf("Host %q is not this console; open the address that it printed when it started", clip(r.Host)))
			return
		}
		// Links from elsewhere may open a page, and nothing more.
		page := r.Method == http.MethodGet && !strings.HasPrefix(r.URL.Path, "/api/")
		if origin := r.Header.Get("Origin"); origin != "" && origin != "http://"+r.Host {
			refuse(w, http.StatusForbidden, fmt.Sprintf("a page of %s may not ask this console", clip(origin)))
			return
		}
		if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" && site != "none" && !page {
			refuse(w, http.StatusForbidden, "a page of another origin may not ask this console")
			return
		}
		if r.Method != http.MethodGet && r.Method != http.MethodHead && r.Method != http.MethodPost {
			refuse(w, http.StatusMethodNotAllowed, "only GET and POST are answered")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// authorized reports whether a request may change something.
func (s *Server) authorized(r *http.Request) bool {
	return subtle.ConstantTimeCompare([]byte(r.Header.Get(HeaderToken)), []byte(s.token)) == 1
}

// clip keeps what a stranger sent from filling an answer.
func clip(text string) string {
	if len(text) > 100 {
		return text[:100] + "…"
	}
	return text
}
