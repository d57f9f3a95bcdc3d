package admin

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/weir-edge/weir/internal/edge/config"
	"github.com/weir-edge/weir/internal/httpconns"
)

// guarded refuses requests that a page in an operator's browser could send: those from
// another origin and, where neither token nor certificate is required, those to a name that
// an attacker's DNS may have bound to this address.
func (a *Admin) guarded(next http.Handler) http.Handler {
	listen, _, _ := net.SplitHostPort(a.Config.Listen.Admin)
	advertised, _, _ := config.Advertised(a.Config.Consul.AdvertiseAdmin, a.Config.Listen.Admin)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if site := r.Header.Get("Sec-Fetch-Site"); site == "cross-site" || site == "same-site" {
			adminError(w, http.StatusForbidden, errors.New("another site's page makes your browser ask; enter the address yourself"))
			return
		}
		if origin := r.Header.Get("Origin"); origin != "" {
			if u, err := url.Parse(origin); err != nil || u.Host != r.Host {
				adminError(w, http.StatusForbidden, errors.New("the Origin is not this host"))
				return
			}
		}
		// Load balancers send probes under any name.
		if !httpconns.Probe(r) && a.Config.Listen.Open() && !plainHost(r.Host, listen, advertised) {
			adminError(w, http.StatusForbidden, errors.New("ask by address, localhost or the name in listen.admin or consul.advertise_admin, or set listen.admin_token_file"))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// plainHost reports whether a host is an address, localhost or one of names, which the
// operator chose. An attacker's DNS cannot bind those to this node.
func plainHost(host string, names ...string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	_, err := netip.ParseAddr(host)
	return err == nil || slices.ContainsFunc(append(names, "localhost"), func(name string) bool { return name != "" && strings.EqualFold(host, name) })
}
