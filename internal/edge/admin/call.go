package admin

import (
	"fmt"
	"math/rand/v2"
	"net/url"
	"strings"

	"github.com/weir-edge/weir/internal/edge/decide"
	"github.com/weir-edge/weir/pkg/limiter/rules"
)

// maxDescribedEntries is the most entries that a descriptor of a call may have.
const maxDescribedEntries = 16

// matchCall finds the checks of a call of Envoy's rate limit service with one descriptor: domain, and
// entry=key=value for each entry, in order.
func matchCall(running decide.Rules, q url.Values) (*decide.Request, error) {
	for name := range q {
		if name != "domain" && name != "entry" && name != "rule" {
			return nil, fmt.Errorf("%s: a call has domain and entry only", name)
		}
	}
	d := rules.Descriptor{Hits: 1}
	for _, text := range q["entry"] {
		key, value, ok := strings.Cut(text, "=")
		if !ok || key == "" {
			return nil, fmt.Errorf("entry: must be key=value (got %q)", text)
		}
		d.Pairs = append(d.Pairs, rules.Pair{Key: key, Value: value})
	}
	switch n := len(d.Pairs); {
	case q.Get("domain") == "":
		return nil, fmt.Errorf("domain: must be given with entry, as in domain=edge")
	case n == 0 || n > maxDescribedEntries:
		return nil, fmt.Errorf("entry: must be given 1 to %d times, as in entry=user=bob (got %d)", maxDescribedEntries, n)
	}
	r := &decide.Request{Rules: running, DryRun: true}
	return r, running.Set().MatchCall(q.Get("domain"), []rules.Descriptor{d}, rand.Uint64(), &r.Match)
}
