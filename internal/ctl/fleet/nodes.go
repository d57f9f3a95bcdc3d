package fleet

import (
	"cmp"
	"context"
	"time"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/shedding"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// NodeView is what is known of one edge node.
type NodeView struct {
	ID      string `json:"id"`
	PoP     string `json:"pop"`
	Address string `json:"address"`
	Admin   string `json:"admin"`
	// Passing is the result of Consul's check of the node; Output says why it fails.
	Passing bool   `json:"passing"`
	Output  string `json:"output,omitempty"`

	Version string            `json:"version"`
	Since   time.Time         `json:"since,omitzero"`
	Source  string            `json:"source,omitempty"`
	Canary  bool              `json:"canary,omitempty"`
	Refused *adminapi.Refusal `json:"refused,omitempty"`
	// ConsulError is why the node cannot follow Consul at the moment.
	ConsulError string `json:"consul_error,omitempty"`
	// Expected is the version that the node should run, Converged whether it does.
	Expected  string `json:"expected"`
	Converged bool   `json:"converged"`
	// Seen says where the version comes from: the node's "admin" listener, or what it
	// registered in the "catalog", if AdminError says that it could not be asked.
	Seen       string `json:"seen"`
	AdminError string `json:"admin_error,omitempty"`
	// Shedders are those of its upstream groups, if it was asked for them.
	Shedders []shedding.UpstreamStatus `json:"upstreams,omitempty"`
	// Off says that the kill switch is on.
	Off bool `json:"off,omitempty"`
}

// RegionView is what is known of one region at one moment.
type RegionView struct {
	Region  string          `json:"region"`
	At      time.Time       `json:"-"` // the moment, by the region's clock
	Pointer *consul.Pointer `json:"pointer"`
	// Canaries are those that have not expired, by PoP.
	Canaries  map[string]consul.Pointer `json:"canaries"`
	Nodes     []NodeView                `json:"nodes"`
	Converged bool                      `json:"converged"`
	Error     string                    `json:"error,omitempty"`
	// Notes report keys with invalid data that affect nothing.
	Notes []string `json:"notes,omitempty"`
}

// Behind returns the nodes that do not run what they should.
func (v *RegionView) Behind() []NodeView {
	var list []NodeView
	for _, n := range v.Nodes {
		if !n.Converged {
			n.Shedders = nil // this is about what it runs
			list = append(list, n)
		}
	}
	return list
}

// Active returns the document that the region's pointer names now, or nil.
func (v *RegionView) Active() *consul.Named {
	if v.Pointer == nil {
		return nil
	}
	return v.Pointer.ActiveAt(v.At)
}

// expected returns the version that a PoP's nodes should run, "" if there is none, and Own
// if it is that of their configuration.
func (v *RegionView) expected(k *Kind, pop string) string {
	if c, ok := v.Canaries[pop]; ok {
		return c.Version
	}
	if n := v.Active(); n != nil {
		return n.Version
	}
	if k.Temporary && v.Error == "" {
		return Own
	}
	return ""
}

// Own stands for the version of an edge's own configuration.
const Own = shedding.VersionConfig

func runs(version, expected string) bool {
	return expected != "" && version == expected || expected == Own && version == shedding.VersionBuiltIn
}

// View reads a region: its pointers, and those of its nodes that wanted accepts (nil: all).
// They should run version or, if that is empty, what the pointers say.
func (t *Target) View(ctx context.Context, wanted func(consul.Node) bool, version string) (*RegionView, error) {
	brief, cancel := t.Bounded(ctx)
	defer cancel()
	v := &RegionView{Region: t.Name, Canaries: map[string]consul.Pointer{}, Nodes: []NodeView{}}
	var s Current
	var canaries map[string]consul.Pointer
	var wrong []error
	var nodes []consul.Node
	if err := Together(func() (err error) {
		s, err = LookAtPointer(brief, t)
		return err
	}, func() (err error) {
		if t.Kind.Canaries {
			canaries, wrong, err = t.Docs.Canaries(brief)
		}
		return err
	}, func() (err error) {
		nodes, err = t.Nodes(brief)
		return err
	}); err != nil {
		return nil, err
	}
	v.Pointer, v.At = s.Pointer, s.At
	if s.Damage != nil {
		v.Error = s.Damage.Error()
	}
	for _, err := range wrong {
		v.Notes = append(v.Notes, err.Error())
	}
	for pop, c := range canaries {
		if !c.Expired(s.At) {
			v.Canaries[pop] = c
		}
	}
	if wanted != nil {
		nodes = Filter(nodes, wanted)
	}
	v.Nodes = make([]NodeView, len(nodes))
	Each(nodes, func(i int, n consul.Node) {
		v.Nodes[i] = viewNode(ctx, t, n, cmp.Or(version, v.expected(t.Kind, n.PoP)))
	})
	v.Converged = v.Error == "" && len(v.Nodes) > 0 && len(v.Behind()) == 0
	return v, nil
}

// NodeAnswer is what a node says of the documents of a kind.
type NodeAnswer interface{ Running() adminapi.Running }

// AtOnce is how many nodes of a region are asked concurrently.
const AtOnce = 16

// viewNode asks a node what it runs, or uses what it registered.
func viewNode(ctx context.Context, t *Target, n consul.Node, expected string) NodeView {
	v := NodeView{
		ID: n.ID, PoP: n.PoP, Address: n.Address, Admin: n.Admin, Passing: n.Passing, Output: n.Output,
		Expected: expected, Seen: "catalog",
	}
	var refused string
	if v.Version, refused = t.Kind.Registered(n); refused != "" {
		v.Refused = adminapi.ParseRefusal(refused)
	}
	answer := t.Kind.Answer()
	if err := t.Admin.Get(ctx, n, t.Kind.Path, t.Kind.Query, answer); err != nil {
		v.AdminError = Reason(err)
	} else {
		r := answer.Running()
		v.Version, v.Since, v.Source, v.Canary, v.Refused, v.Seen = r.Version, r.Since, r.Source, r.Canary, r.Refused, "admin"
		v.Shedders = r.Upstreams
		v.Off = r.Off
		if r.Consul != nil && !r.Consul.OK {
			v.ConsulError = cmp.Or(r.Consul.Error, "no answer yet")
		}
	}
	// What a dead node registered last says nothing about it.
	v.Converged = runs(v.Version, v.Expected) && (v.AdminError == "" || v.Passing)
	return v
}

func (n *NodeView) Refuses() bool {
	return !n.Converged && n.Refused != nil && n.Refused.Version == n.Expected && n.Expected != ""
}
