package decide

import (
	"net/netip"

	"github.com/weir-edge/weir/internal/policy"
	"github.com/weir-edge/weir/pkg/limiter/rules"
)

// clientOf returns the number that identifies the client of a request.
func (c *Conduct) clientOf(p *policy.Policy, r *Request) uint64 {
	if key := r.subject(p); key != nil {
		return c.names.Load().place(key)
	}
	return c.addressOf(r.Client)
}

// subject returns what identifies the client under the policy, in the form of a rule's key,
// valid until r.buf is used again; nil if its address does. No key has the form of an
// address here.
func (r *Request) subject(p *policy.Policy) []byte {
	if p.Subject == nil {
		return nil
	}
	key, ok := rules.AppendKey(r.buf[:0], p.Subject, asked{r}, &r.scratch)
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
	if p := r.Risk.Policy; p != nil {
		return string(r.subject(p))
	}
	return ""
}

// addressOf identifies an address as rules do by default: IPv6 by its /64.
func (c *Conduct) addressOf(a netip.Addr) uint64 {
	b := a.Unmap().As16()
	if a.Is6() && !a.Is4In6() {
		clear(b[8:])
	}
	return c.names.Load().place(b[:])
}
