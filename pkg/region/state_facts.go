package region

import (
	"maps"
	"slices"
	"time"

	"github.com/weir-edge/weir/pkg/region/consul"
)

// awayAfter is how long a Consul may fail before the follower asks others about its region.
const awayAfter = time.Second

// regionFacts is everything known about one region.
type regionFacts struct {
	heard  time.Time         // when its Consul last answered
	listed bool              // it has listed its nodes at least once
	nodes  []consul.Instance // the last list; an empty list does not replace a non-empty one
	// emptied means that it no longer lists any node, which may indicate data loss.
	emptied bool
	failing time.Time // since when its Consul has not answered; zero: it answers
	err     error     // why it does not answer

	datacenter string
	topology   *Topology
	// topologyText is topology as JSON: equal text means equal topology.
	topologyText string
	// topologyErr is why the current one cannot be read; topology is the last readable
	// one.
	topologyErr error
	signed      *SignedTopology // topology with its signatures, if one was verified
	// signatureErr is why the current one counts as unsigned although it is accepted.
	signatureErr error
	drains       *Drains
	drainsErr    error    // why the current ones cannot be read; drains are the last readable ones
	second       *opinion // nil unless the region is in doubt
	// reached holds the addresses of nodes that have accepted a connection from here, and
	// how many consecutive probes each has left unanswered since.
	reached map[string]int
}

// reach is the outcome of connecting to a node.
type reach int

const (
	silent reach = iota
	refused
	accepted
)

// opinion is what others report about a region.
type opinion struct {
	via   string            // the region whose Consul could reach it, if any
	nodes []consul.Instance // the nodes that it listed
	gone  bool              // no Consul that answered can reach it either
	reach map[string]reach
}

// reported reports whether the region's nodes are known at all.
func (f *regionFacts) reported() bool {
	return f.listed || f.second != nil && f.second.via != ""
}

// doubtful reports whether the follower must ask others.
func (f *regionFacts) doubtful(now time.Time) bool {
	return f.emptied || !f.failing.IsZero() && now.Sub(f.failing) >= awayAfter
}

// effective returns the most likely state of the nodes, and whether it is known. If Consul
// does not report, each node is probed. A node that accepts a connection serves. A failed
// probe counts only if this node was reached before, since there may be no route from here.
// A refused connection then means that the node does not serve. Silence means that only if
// another region's Consul also reports the region gone, because the network in between may
// have failed; if the region's own Consul answers, the network works.
func (f *regionFacts) effective(now time.Time) (nodes []consul.Instance, known bool) {
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
	nodes = make([]consul.Instance, len(f.nodes))
	for i, n := range f.nodes {
		_, had := f.reached[n.Address]
		switch how, known := o.reach[n.Address]; {
		case !known: // there was no time for it
		case how == accepted:
			n.Passing = true
		case how == refused:
			n.Passing = n.Passing && !had
		case how == silent:
			n.Passing = n.Passing && !(had && (o.gone || f.failing.IsZero()))
		}
		nodes[i] = n
	}
	return nodes, false
}

// answered records that Consul answered.
func (f *regionFacts) answered(now time.Time) {
	f.heard, f.failing, f.err = now, time.Time{}, nil
	if !f.emptied {
		f.second = nil
	}
}

// list records the nodes that Consul listed.
func (f *regionFacts) list(nodes []consul.Instance) {
	f.listed = true
	if f.emptied = len(nodes) == 0 && len(f.nodes) > 0; f.emptied {
		return
	}
	f.carryOver(nodes)
	f.nodes, f.second = nodes, nil
}

// carryOver keeps the last state of nodes that have not been checked yet.
func (f *regionFacts) carryOver(nodes []consul.Instance) {
	passed := map[string]bool{}
	for _, n := range f.nodes {
		passed[n.ID+" "+n.Address] = n.Passing
	}
	for i := range nodes {
		if n := &nodes[i]; n.Unchecked {
			n.Passing = passed[n.ID+" "+n.Address]
		}
	}
}

// hear records what others report.
func (f *regionFacts) hear(o *opinion) {
	f.carryOver(o.nodes)
	f.second = o
	for address, how := range o.reach {
		if how == accepted {
			f.reached[address] = 0
		}
	}
}

// learn records the results of probing passing nodes while Consul answers. A node that
// stays silent now would not be reachable when it matters, either.
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
		return looks >= forgetAfter || !slices.ContainsFunc(f.nodes, func(n consul.Instance) bool { return n.Address == address })
	})
}

// fail records that Consul did not answer.
func (f *regionFacts) fail(err error, now time.Time) {
	if f.err = err; f.failing.IsZero() {
		f.failing = now
	}
}
