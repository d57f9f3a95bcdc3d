package region

import (
	"context"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/consul/api"
)

// awayAfter is how long a Consul may fail before others are asked about its region.
const awayAfter = time.Second

// seenNode is an edge node as the follower needs it.
type seenNode struct {
	Node
	shedLevel float64
	// unchecked is a node that its agent has not looked at yet, as after a restart
	// of Consul: its check is critical and has said nothing.
	unchecked bool
}

// regionFacts is what is known of one region.
type regionFacts struct {
	heard  time.Time  // when its Consul last answered
	listed bool       // it has listed the nodes
	nodes  []seenNode // as it last did; an empty list does not replace one that is not
	// emptied says that it lists none any more, which may be a loss of data.
	emptied bool
	failing time.Time // since when its Consul does not; zero: it does
	err     error     // why not

	datacenter string
	topology   *Topology
	// topologyText is topology as JSON: what says the same, is the same.
	topologyText string
	// topologyErr is why the present one cannot be read; topology is the last that
	// could.
	topologyErr error
	drains      map[string]Drain
	second      *opinion // nil unless it is in doubt
	// reached are the addresses of nodes that accepted a connection from here, with
	// how many looks in a row they have been silent since.
	reached map[string]int
}

// reach is what came of connecting to a node.
type reach int

const (
	silent reach = iota
	refused
	accepted
)

// opinion is what others say of a region.
type opinion struct {
	via   string     // the region whose Consul could ask, if any
	nodes []seenNode // what it was told
	gone  bool       // all that answered cannot reach it either
	reach map[string]reach
}

// told reports whether anything was ever heard of the region's nodes.
func (f *regionFacts) told() bool {
	return f.listed || f.second != nil && f.second.via != ""
}

// doubtful reports whether others must be asked.
func (f *regionFacts) doubtful(now time.Time) bool {
	return f.emptied || !f.failing.IsZero() && now.Sub(f.failing) >= awayAfter
}

// effective returns the nodes as they are most likely now, and whether that is
// known. Where Consul does not tell, each node is asked. One that accepts a
// connection serves. What else it does counts only if it had accepted one before,
// for there may be no way from here: one that refuses does not serve, and of one
// that is silent only another region's Consul tells that it is gone, and not the
// network between here and there. If its own Consul answers, the network is well.
func (f *regionFacts) effective(now time.Time) (nodes []seenNode, known bool) {
	if !f.doubtful(now) {
		return f.nodes, f.failing.IsZero() && f.listed
	}
	o := f.second
	if o == nil {
		return f.nodes, false
	}
	if o.via != "" && len(o.nodes) > 0 {
		return o.nodes, true
	}
	nodes = make([]seenNode, len(f.nodes))
	for i, n := range f.nodes {
		_, had := f.reached[n.Address]
		switch o.reach[n.Address] {
		case accepted:
			n.Passing = true
		case refused:
			n.Passing = n.Passing && !had
		case silent:
			n.Passing = n.Passing && !(had && (o.gone || f.failing.IsZero()))
		}
		nodes[i] = n
	}
	return nodes, false
}

// answered takes that Consul did.
func (f *regionFacts) answered(now time.Time) {
	f.heard, f.failing, f.err = now, time.Time{}, nil
	if !f.emptied {
		f.second = nil
	}
}

// list takes what Consul said.
func (f *regionFacts) list(nodes []seenNode) {
	f.listed = true
	if f.emptied = len(nodes) == 0 && len(f.nodes) > 0; f.emptied {
		return
	}
	f.carryOver(nodes)
	f.nodes, f.second = nodes, nil
}

// carryOver has nodes that were not looked at yet pass as they last did.
func (f *regionFacts) carryOver(nodes []seenNode) {
	passed := map[string]bool{}
	for _, n := range f.nodes {
		passed[n.ID+" "+n.Address] = n.Passing
	}
	for i := range nodes {
		if n := &nodes[i]; n.unchecked {
			n.Passing = passed[n.ID+" "+n.Address]
		}
	}
}

// hear takes what others say.
func (f *regionFacts) hear(o *opinion) {
	f.carryOver(o.nodes)
	f.second = o
	for address, how := range o.reach {
		if how == accepted {
			f.reached[address] = 0
		}
	}
}

// learn takes what came of connecting to nodes that pass, while Consul answers. One
// that is silent for long could not be reached when it matters, either.
func (f *regionFacts) learn(results map[string]reach) {
	if !f.failing.IsZero() || f.emptied {
		return
	}
	for address, how := range results {
		if how == accepted {
			f.reached[address] = 0
		} else if _, had := f.reached[address]; had && how == silent {
			f.reached[address]++
		}
	}
	maps.DeleteFunc(f.reached, func(address string, looks int) bool {
		return looks >= forgetAfter || !slices.ContainsFunc(f.nodes, func(n seenNode) bool { return n.Address == address })
	})
}

// fail takes that Consul did not answer.
func (f *regionFacts) fail(err error, now time.Time) {
	if f.err = err; f.failing.IsZero() {
		f.failing = now
	}
}

// catalogue reads the edge nodes of a datacenter, and what it is called; "" is
// that of the client.
func (c *Consul) catalogue(ctx context.Context, datacenter string, q query, bound time.Duration) (nodes []seenNode, called string, index uint64, err error) {
	ctx, cancel := q.within(ctx, bound)
	defer cancel()
	o := q.options(ctx)
	o.Datacenter = datacenter
	entries, meta, err := c.api.Health().Service(Service, "", false, o)
	if err == nil && meta.ResultsFilteredByACLs {
		err = errHidden
	}
	if err != nil {
		return nil, "", 0, c.failure(ctx, "read the nodes of "+Service, err)
	}
	for _, e := range entries {
		if e == nil || e.Service == nil {
			continue
		}
		if e.Node != nil {
			called = e.Node.Datacenter
		}
		// Two fleets may share a Consul.
		if n := newSeenNode(e); n.Prefix == "" || n.Prefix == c.prefix {
			nodes = append(nodes, n)
		}
	}
	return nodes, called, meta.LastIndex, nil
}

func newSeenNode(e *api.ServiceEntry) seenNode {
	n := seenNode{Node: newNode(e), shedLevel: parseShedLevel(e.Service.Meta["shed_level"])}
	n.unchecked = !n.Passing
	for _, check := range e.Checks {
		// Consul's own check of a node in maintenance has no output.
		n.unchecked = n.unchecked && (check.Status == api.HealthPassing || strings.TrimSpace(check.Output) == "" && !strings.HasPrefix(check.CheckID, "_"))
	}
	return n
}

// parseShedLevel reads a level of 0..1. Nodes that shed nothing need not say so.
func parseShedLevel(text string) float64 {
	level, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(level) {
		return 0
	}
	return min(max(level, 0), 1)
}
