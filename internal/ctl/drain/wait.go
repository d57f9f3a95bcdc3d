package drain

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weir-edge/weir/internal/ctl/command"
	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/sites"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/pkg/region"
	"github.com/weir-edge/weir/pkg/region/consul"
)

const (
	// spreading is how long a router may take to learn of a drain.
	spreading = 2 * time.Second
	// Stray is the rate, in requests per second at a node, of scanners, outside checks, and
	// clients that never re-resolve addresses.
	Stray = 1.0
	// strayLooks is for how many consecutive looks that must hold.
	strayLooks = 2
)

// now returns what the regions that answered at first have after the change: as seen then, where
// they no longer answer.
func (d *draining) now(ctx context.Context) (list []*sites.Region) {
	seen, after := d.seen(), d.after()
	var answered []*fleet.Target
	for i, r := range d.engine.Regions {
		if r.Seen != nil {
			answered = append(answered, d.targets[i])
		}
	}
	for i, a := range fleet.Ask(ctx, answered, sites.Of) {
		if a.Err != nil {
			was := *seen[i]
			was.Drains = after[seen[i]]
			a.Value = &was
		}
		list = append(list, a.Value)
	}
	return list
}

// strands is sites.Strands for the drain as it is now. Of several drains at once, each of which
// leaves another PoP, at least the last one notices.
func (d *draining) strands(ctx context.Context) string {
	var without []*sites.Region
	with := map[*sites.Region]region.Drains{}
	for _, s := range d.now(ctx) {
		before := *s
		before.Drains = *s.Drains.With(d.pop, nil, d.next.At)
		without, with[&before] = append(without, &before), s.Drains
	}
	return sites.Strands(without, with)
}

// over reports whether someone has undrained the PoP since.
func (d *draining) over(ctx context.Context) bool {
	all := sites.DrainsOf(d.now(ctx))
	ended := region.Ended(d.pop, all)
	return !ended.Before(d.next.At) && region.Oldest(d.pop, all, ended) == nil
}

// nodeAt is a node with the region that it is in.
type nodeAt struct {
	target *fleet.Target
	node   consul.Node
}

// TrafficLeft is what a node still got at the end.
type TrafficLeft struct {
	ID       string  `json:"id"`
	Rate     float64 `json:"requests_per_second"`
	InFlight float64 `json:"in_flight"`
	Error    string  `json:"error,omitempty"` // why the rest is unknown
	reason   string  // the same without the edge's name
}

// leaving is the wait for the clients of a PoP to leave.
type leaving struct {
	p          *command.Program
	pop        string
	ttl, limit time.Duration
	began      time.Time // when it was drained

	before map[string]*fleet.Figures // by node
}

// run looks once per second. It ends when resolvers' cached answers have expired and only
// stray requests come, or at the limit. Its error names the nodes for which that is not
// certain.
func (w *leaving) run(ctx context.Context, nodes []nodeAt) ([]TrafficLeft, error) {
	if len(nodes) == 0 {
		w.p.Say("no edge of %s is registered that could be watched", w.pop)
	}
	w.before = map[string]*fleet.Figures{}
	progress := w.p.Progress()
	deadline := time.NewTimer(w.limit)
	defer deadline.Stop()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	quiet := 0
	for {
		now := w.look(ctx, nodes)
		if ctx.Err() != nil {
			return now, term.Interrupted("interrupted while waiting; %s is drained, and its edges serve the requests that still arrive", w.pop)
		}
		left := max(0, time.Until(w.began.Add(w.ttl+spreading)))
		busy := BusyNodes(now)
		if len(busy) == 0 {
			quiet++
		} else {
			quiet = 0
		}
		progress.Update([]string{w.describe(left, now)})
		if left == 0 && (quiet >= strayLooks || len(nodes) == 0) {
			return now, w.unreachable(ctx, nodes, now)
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		case <-deadline.C:
			switch {
			case left > 0:
				return now, term.Partial("drained, but resolvers may keep older answers for %s more; wait longer, with --wait, before you stop %s", left.Round(time.Second), w.pop)
			case len(busy) > 0:
				return now, term.Partial("drained, but requests still come to %s: from clients that ignore the TTL, or do not use DNS", strings.Join(busy, ", "))
			}
			return now, w.unreachable(ctx, nodes, now)
		}
	}
}

// describe returns a line that rarely changes, for readers of a log.
func (w *leaving) describe(left time.Duration, now []TrafficLeft) string {
	var rate, inFlight float64
	silent := 0
	for _, n := range now {
		rate += n.Rate
		inFlight += n.InFlight
		if n.Error != "" {
			silent++
		}
	}
	text := fmt.Sprintf("%s: %.0f requests/s, %.0f in flight", w.pop, rate, inFlight)
	if silent > 0 {
		text += fmt.Sprintf(", %s not asked", term.Plural(silent, "edge"))
	}
	if left > 0 {
		return text + "; resolvers keep the answer for up to " + left.Round(time.Second).String()
	}
	return text
}

func (w *leaving) look(ctx context.Context, nodes []nodeAt) []TrafficLeft {
	list := make([]TrafficLeft, len(nodes))
	found := make([]*fleet.Figures, len(nodes))
	fleet.Each(nodes, func(i int, n nodeAt) {
		f, err := n.target.Admin.Figures(ctx, n.node)
		list[i].ID = n.node.ID
		if err != nil {
			list[i].Error, list[i].reason = err.Error(), fleet.Reason(err)
			return
		}
		found[i], list[i].InFlight = f, f.InFlight
	})
	for i, f := range found {
		if f == nil {
			continue
		}
		id := list[i].ID
		list[i].Rate = f.Since(w.before[id]).Rate
		w.before[id] = f
	}
	return list
}

// BusyNodes returns the nodes that get more than stray requests, or have some in progress.
// It skips nodes that cannot be asked, which may have been stopped.
func BusyNodes(now []TrafficLeft) (ids []string) {
	for _, n := range now {
		if n.Rate > Stray || n.InFlight > 0 {
			ids = append(ids, fmt.Sprintf("%s (%.1f/s, %.0f in flight)", term.Printable(n.ID), n.Rate, n.InFlight))
		}
	}
	return ids
}

// unreachable names the nodes that cannot be asked but still pass their check according to
// Consul: they may still serve requests.
func (w *leaving) unreachable(ctx context.Context, nodes []nodeAt, now []TrafficLeft) error {
	var unknown fleet.Reasons
	for i, n := range nodes {
		if now[i].Error == "" {
			continue
		}
		passes := n.node.Passing
		if listed, err := n.target.Nodes(ctx); err == nil {
			passes = slices.ContainsFunc(listed, func(l consul.Node) bool { return l.ID == n.node.ID && l.Passing })
		}
		if passes {
			unknown.Add(n.node.ID, now[i].reason)
		}
	}
	lines := unknown.Lines("%s (%s)")
	if lines == nil {
		return nil
	}
	return term.Partial("drained, but it is unknown whether requests still come to %s; check there before you stop %s", strings.Join(lines, ", "), w.pop)
}
