package main

import (
	"context"
	"sync"
	"time"

	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/memory"
	"github.com/weir-edge/weir/pkg/limiter/report"
)

// reportTrip is how long a report may take at most: the default of store.timeout.
const reportTrip = 25 * time.Millisecond

// reports returns a node's layer of reported rules, and what closes it.
func (w *world) reports(index int, next limiter.FullStore) (*report.Store, func()) {
	local := memory.New(memory.Config{})
	nodes := func() int { return w.nodes }
	fallback := limiter.NewFallback(next, local, nodes, nil)
	s := report.New(report.Config{Next: fallback, Reporter: reporter{w, index}, Local: fallback, Nodes: nodes, Trip: reportTrip})
	return s, func() {
		s.Close()
		fallback.Close()
	}
}

// reporter is a node's way to the counters of all masters.
type reporter struct {
	world *world
	node  int
}

// Report implements limiter.Reporter: one round trip to each master.
func (r reporter) Report(_ context.Context, reports []limiter.Report) {
	byMaster := map[*master][]*limiter.Report{}
	for i := range reports {
		m := r.world.master(reports[i].Key)
		byMaster[m] = append(byMaster[m], &reports[i])
	}
	var all sync.WaitGroup
	for m, list := range byMaster {
		all.Go(func() { m.count(r.node, list) })
	}
	all.Wait()
}

// Forget implements limiter.Reporter.
func (reporter) Forget(context.Context, [][]byte) error { return nil }

// reportCost is what a master takes for one report.
const reportCost = time.Microsecond

// count adds what a node reports, and records it as plain commands.
func (m *master) count(node int, list []*limiter.Report) {
	w := m.world
	time.Sleep(w.trip / 2)
	m.mu.Lock()
	if now := time.Now(); m.busy.Before(now) {
		m.busy = now
	}
	m.busy = m.busy.Add(batchCost + time.Duration(len(list))*reportCost)
	wait := time.Until(m.busy)
	b := batch{{kind: ask}}
	for _, r := range list {
		r.Err, r.Now = nil, time.Now().UnixMicro()
		b = append(b, m.add(&r.Count, r.Key, r.Units))
		if r.Earlier != nil {
			b = append(b, m.add(&r.Before, r.Earlier, r.Late))
		}
	}
	m.mu.Unlock()
	w.record(link{m, node}, b)
	time.Sleep(wait + w.trip/2)
}

func (m *master) add(sum *int64, key []byte, units int64) op {
	m.counts[string(key)] += units
	*sum = m.counts[string(key)]
	return op{kind: tally, name: string(key), cost: units}
}

// coldFor is how long nodes count as new: all began to measure at once, and tell the excess of
// each half minute from that of others (recent.Max).
const coldFor = 29 * time.Second

// exceeded returns by what part all nodes exceeded a limit in the last 30 to 60 seconds, and
// may at that load, as the nodes measured it: that of the worst key.
func exceeded(s *report.Store) (measured, bound float64) {
	for _, u := range s.Usages() {
		measured, bound = max(measured, u.Overshoot), max(bound, u.Bound)
	}
	return measured, bound
}
