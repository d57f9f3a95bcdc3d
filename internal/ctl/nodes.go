package ctl

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/weir-edge/weir/internal/shedding"
	"github.com/weir-edge/weir/pkg/region"
)

// nodeView is what is known of one edge node.
type nodeView struct {
	ID      string `json:"id"`
	PoP     string `json:"pop"`
	Address string `json:"address"`
	Admin   string `json:"admin"`
	// Passing is what Consul's check of the node says; Output why it does not.
	Passing bool   `json:"passing"`
	Output  string `json:"output,omitempty"`

	Version string    `json:"version"`
	Since   time.Time `json:"since,omitzero"`
	Source  string    `json:"source,omitempty"`
	Canary  bool      `json:"canary,omitempty"`
	Refused *refusal  `json:"refused,omitempty"`
	// ConsulError is why the node cannot follow Consul at the moment.
	ConsulError string `json:"consul_error,omitempty"`
	// Expected is the version that the node should run, Converged whether it does.
	Expected  string `json:"expected"`
	Converged bool   `json:"converged"`
	// Seen tells where the version is known from: the node's "admin" listener, or
	// what it wrote into the "catalogue", if AdminError kept it from being asked.
	Seen       string `json:"seen"`
	AdminError string `json:"admin_error,omitempty"`
	// Shedders are those of its upstream groups, if it was asked for them.
	Shedders []shedding.UpstreamStatus `json:"upstreams,omitempty"`
	// Off is the kill switch of them.
	Off bool `json:"off,omitempty"`
}

// regionView is what is known of one region at a moment.
type regionView struct {
	Region  string          `json:"region"`
	Pointer *region.Pointer `json:"pointer"`
	// Canaries are those that have not expired, by PoP.
	Canaries  map[string]region.Pointer `json:"canaries"`
	Nodes     []nodeView                `json:"nodes"`
	Converged bool                      `json:"converged"`
	Error     string                    `json:"error,omitempty"`
	// Notes tell of keys that hold nonsense and keep nobody from anything.
	Notes []string `json:"notes,omitempty"`
}

// converge says whether all nodes run what they should. None is not all.
func (v *regionView) converge() {
	v.Converged = v.Error == "" && len(v.Nodes) > 0 && len(v.behind()) == 0
}

// behind are the nodes that do not run what they should.
func (v *regionView) behind() []nodeView {
	var list []nodeView
	for _, n := range v.Nodes {
		if !n.Converged {
			n.Shedders = nil // this is about what it runs
			list = append(list, n)
		}
	}
	return list
}

// expected is the version that a PoP's nodes should run, "" if there is none, own if
// it is that of their configuration.
func (v *regionView) expected(k *kind, pop string) string {
	if c, ok := v.Canaries[pop]; ok {
		return c.Version
	}
	if v.Pointer != nil {
		if n := v.Pointer.InForce(time.Now()); n != nil {
			return n.Version
		}
	}
	if k.temporary && v.Error == "" {
		return own
	}
	return ""
}

// own stands for the version of what the configuration of an edge says.
const own = shedding.VersionConfig

// runs reports whether an edge of this version runs what is expected.
func runs(version, expected string) bool {
	return expected != "" && version == expected || expected == own && version == shedding.VersionBuiltIn
}

// view looks at a region: its pointers, and those of its nodes that wanted accepts
// (nil: all). They should run version, or if that is empty, what the pointers say.
func (p *program) view(ctx context.Context, t *target, wanted func(region.Node) bool, version string) (*regionView, error) {
	brief, cancel := p.bounded(ctx)
	defer cancel()
	v := &regionView{Region: t.name, Canaries: map[string]region.Pointer{}, Nodes: []nodeView{}}
	s, err := lookAtPointer(brief, t)
	if err != nil {
		return nil, err
	}
	v.Pointer = s.pointer
	if s.broken != nil {
		v.Error = s.broken.Error()
	}
	if t.kind.canaries {
		canaries, wrong, err := t.docs.Canaries(brief)
		if err != nil {
			return nil, err
		}
		for _, err := range wrong {
			v.Notes = append(v.Notes, err.Error())
		}
		now := time.Now()
		for pop, c := range canaries {
			if !c.Expired(now) {
				v.Canaries[pop] = c
			}
		}
	}
	nodes, err := t.nodes(brief)
	if err != nil {
		return nil, err
	}
	if wanted != nil {
		nodes = filter(nodes, wanted)
	}
	v.Nodes = make([]nodeView, len(nodes))
	each(nodes, func(i int, n region.Node) {
		v.Nodes[i] = viewNode(ctx, t, n, cmp.Or(version, v.expected(t.kind, n.PoP)))
	})
	v.converge()
	return v, nil
}

// atOnce is how many nodes of a region are asked at the same time.
const atOnce = 16

// viewNode asks a node what it runs, or takes what it registered.
func viewNode(ctx context.Context, t *target, n region.Node, expected string) nodeView {
	v := nodeView{
		ID: n.ID, PoP: n.PoP, Address: n.Address, Admin: n.Admin, Passing: n.Passing, Output: n.Output,
		Expected: expected, Seen: "catalogue",
	}
	var refused string
	if v.Version, refused = t.kind.registered(n); refused != "" {
		v.Refused = registeredRefusal(refused)
	}
	if r, err := t.admin.runs(ctx, t.kind, n); err != nil {
		v.AdminError = err.Error()
	} else {
		v.Version, v.Since, v.Source, v.Canary, v.Refused, v.Seen = r.Version, r.Since, r.Source, r.Canary, r.Refused, "admin"
		v.Shedders = r.Upstreams
		v.Off = r.Document != nil && !r.Document.Enabled
		if r.Consul != nil && !r.Consul.OK {
			v.ConsulError = cmp.Or(r.Consul.Error, "no answer yet")
		}
	}
	v.Converged = runs(v.Version, v.Expected)
	return v
}

// registeredRefusal reads what a node registers: VERSION: REASON, without the version
// if none was named.
func registeredRefusal(text string) *refusal {
	version, reason, ok := strings.Cut(text, ": ")
	if !ok || len(version) != 12 || strings.Trim(version, "0123456789abcdef") != "" {
		version, reason = "", text
	}
	return &refusal{Version: version, Errors: []string{reason}}
}

// refuses reports whether the node refused what it should run.
func (n *nodeView) refuses() bool {
	return !n.Converged && n.Refused != nil && n.Refused.Version == n.Expected && n.Expected != ""
}

// why is what keeps a node behind, in a line.
func (n *nodeView) why() string {
	text := fmt.Sprintf("%s runs %s", printable(n.ID), orDash(n.Version))
	if n.Canary {
		text += ", a canary"
	}
	if n.Source == "admin" {
		text += ", set on the node itself"
	}
	switch {
	case n.refuses():
		text = fmt.Sprintf("%s refuses %s", printable(n.ID), printable(n.Refused.Version))
	case !n.Passing:
		text += ", and does not pass its check"
	}
	return text
}

// reasons are why a node refused a document, one a line.
func (n *nodeView) reasons() string {
	if n.Refused == nil {
		return ""
	}
	list := n.Refused.Errors
	const most = 10
	var lines []string
	for _, e := range list[:min(len(list), most)] {
		lines = append(lines, printable(e))
	}
	if more := len(list) - most; more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(lines, "\n")
}

func filter[T any](list []T, keep func(T) bool) []T {
	var out []T
	for _, v := range list {
		if keep(v) {
			out = append(out, v)
		}
	}
	return out
}

// each calls f for every element, several at once.
func each[T any](list []T, f func(int, T)) {
	places := make(chan struct{}, atOnce)
	var all sync.WaitGroup
	for i, v := range list {
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			f(i, v)
		})
	}
	all.Wait()
}
