package decide

import (
	"net/http"
	"net/netip"

	"github.com/weir-edge/weir/internal/policy"
	"github.com/weir-edge/weir/pkg/behavior"
	"github.com/weir-edge/weir/pkg/limiter/rules"
	"github.com/weir-edge/weir/pkg/paths"
)

// clientOf returns the number that identifies the client of a request.
func (c *Behavior) clientOf(p *policy.Policy, r *Request) uint64 {
	client := uint64(0)
	if key := r.subject(p); key != nil {
		client = c.names.Load().hash(key)
	} else {
		client = c.addressOf(r.Client)
	}
	if r.CrossSite() {
		return behavior.CrossSite(client)
	}
	return client
}

// CrossSite reports whether a browser says that another site's page made it send the request.
func (r *Request) CrossSite() bool {
	site := r.Fields.Header("Sec-Fetch-Site")
	return len(site) == 1 && string(site[0]) == "cross-site"
}

// logsIn reports whether a request may be an attempt to log in. Whoever gets the form has proven nothing, whatever
// cookies it sends.
func logsIn(r *Request) bool {
	switch string(r.Method) {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return false
	}
	return true
}

// routeOf returns the number that identifies the route of a request, in all spellings of its path.
func (c *Behavior) routeOf(r *Request) uint64 {
	r.buf = paths.AppendRoute(r.buf[:0], r.path)
	return c.names.Load().hash(r.buf)
}

// subject returns what identifies the client under the policy, in the form of a rule's key,
// valid until r.buf is used again; nil if its address does. No key has the form of an
// address here.
func (r *Request) subject(p *policy.Policy) []byte {
	if p.Subject == nil {
		return nil
	}
	key, ok := rules.AppendKey(r.buf[:0], p.Subject, view{r}, &r.scratch)
	r.buf = key
	if !ok {
		return nil
	}
	return key
}

// Route returns the path that identifies the request's route, truncated if long.
func (r *Request) Route() []byte { return r.path[:min(len(r.path), 200)] }

// Subject returns what identifies the client under the policy, in the form of a rule's key;
// "" if its address does.
func (r *Request) Subject() string {
	if p := r.BehaviorResult.Policy; p != nil {
		return string(r.subject(p))
	}
	return ""
}

// addressOf identifies an address as rules do by default: IPv6 by its /64.
func (c *Behavior) addressOf(a netip.Addr) uint64 {
	b := a.Unmap().As16()
	if a.Is6() && !a.Is4In6() {
		clear(b[8:])
	}
	return c.names.Load().hash(b[:])
}
