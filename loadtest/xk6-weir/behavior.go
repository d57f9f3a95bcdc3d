package weir

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/grafana/sobek"

	"github.com/weir-edge/weir/internal/behaviorsim/corpus"
)

type behaviorOptions struct {
	Kind    string `json:"kind"`
	N       int64  `json:"n"`
	HeldOut string `json:"heldOut"`
	CIDR    string `json:"cidr"`
}

// Behavior is one subject of the corpus that behavior policies are judged on, as a script sees it.
// It belongs to one VU.
type Behavior struct {
	kind *corpus.Kind
	site string // of the kind's own: kinds share no route
	act  corpus.Actor
	last corpus.Answer
	base netip.Addr // of its first client
}

// mostSubjects is how many subjects of a kind a script may tell apart.
const mostSubjects = 1 << 20

func newBehavior(v sobek.Value) (*Behavior, error) {
	var o behaviorOptions
	if err := decode(v, "behavior", &o); err != nil {
		return nil, err
	}
	c := &Behavior{}
	var names []string
	for i := range corpus.Kinds {
		if names = append(names, corpus.Kinds[i].Name); o.Kind == corpus.Kinds[i].Name {
			c.kind, c.site = &corpus.Kinds[i], fmt.Sprintf("/behavior/%d", i)
		}
	}
	if c.kind == nil {
		return nil, fmt.Errorf("behavior: kind: must be one of %s (got %q)", strings.Join(names, "; "), o.Kind)
	}
	if o.N < 0 || o.N >= mostSubjects {
		return nil, fmt.Errorf("behavior: n: must be from 0 to %d (got %d)", mostSubjects-1, o.N)
	}
	network, err := netip.ParsePrefix(o.CIDR)
	if err != nil || !network.Addr().Is4() {
		return nil, fmt.Errorf("behavior: cidr: must be a network of IPv4, such as 10.1.0.0/16 (got %q)", o.CIDR)
	}
	clients := int64(max(1, c.kind.Clients))
	if room := int64(1) << (32 - network.Bits()); (o.N+1)*clients > room {
		return nil, fmt.Errorf("behavior: cidr: %s has no room for subject %d, who has %d addresses", network, o.N, clients)
	}
	c.base = addressAt(network.Masked().Addr(), o.N*clients)
	if c.act = c.kind.Subject(int(o.N)); o.HeldOut != "" {
		c.act = c.kind.HeldOut(o.HeldOut, int(o.N))
	}
	return c, nil
}

func addressAt(base netip.Addr, n int64) netip.Addr {
	b := base.As4()
	v := uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
	v += uint32(n)
	return netip.AddrFrom4([4]byte{byte(v >> 24), byte(v >> 16), byte(v >> 8), byte(v)})
}

// Next returns the next request, and how long to wait before it. The origin must answer with the
// status in X-Behavior-Status: what the site answers is a part of behavior.
func (c *Behavior) Next() map[string]any {
	wait, q := c.act(c.last)
	c.last = corpus.Answer{}
	headers := map[string]any{"User-Agent": "behavior", "X-Behavior-Status": fmt.Sprint(q.Status)}
	if !q.Lacks {
		headers["Accept"] = "*/*"
	}
	return map[string]any{
		"wait": wait.Seconds(), "client": addressAt(c.base, int64(q.Client)).String(), "headers": headers,
		// The name in the query is a part of the fingerprint.
		"path": fmt.Sprintf("%s/%x?p%x=1", c.site, q.Route, q.Print),
	}
}

// Answered tells the subject the outcome of its last request; retryAfter is negative if the answer had none.
func (c *Behavior) Answered(status int, retryAfter float64) {
	c.last = corpus.Answer{Status: status, RetryAfter: time.Duration(max(0, retryAfter) * float64(time.Second))}
}

// kinds lists the kinds of subjects.
func kinds() []map[string]any {
	list := make([]map[string]any, len(corpus.Kinds))
	for i, k := range corpus.Kinds {
		list[i] = map[string]any{"name": k.Name, "hostile": k.Hostile, "within": k.Within.Seconds(), "clients": max(1, k.Clients), "goal": !k.Reports}
	}
	return list
}
