package region

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// FollowConfig says whom a Follower asks.
type FollowConfig struct {
	// Regions are all of the fleet, named as in the topology.
	Regions []FollowedRegion
	Geo     Locator // nil: none
	// PassingShare is how much of a PoP's nodes must pass for it to be healthy,
	// 0..1; one must in any case.
	PassingShare float64
}

// FollowedRegion is a region and its Consul.
type FollowedRegion struct {
	Name   string
	Consul *Consul
}

// Follower keeps a View of the fleet up to date, by the Consul of every region.
// It goes on while regions are away: a node is down when its Consul says so, or
// when that cannot be asked and the node does not answer either.
type Follower struct {
	config FollowConfig
	view   atomic.Pointer[View]
	kick   chan struct{}

	mu    sync.Mutex
	facts map[string]*regionFacts // by region
}

// NewFollower returns a follower that knows nothing yet.
func NewFollower(c FollowConfig) *Follower {
	f := &Follower{config: c, kick: make(chan struct{}, 1), facts: map[string]*regionFacts{}}
	for _, r := range c.Regions {
		f.facts[r.Name] = &regionFacts{datacenter: cmp.Or(r.Consul.config.Datacenter, r.Name), reached: map[string]int{}}
	}
	f.view.Store(NewView(nil, nil, nil))
	return f
}

// View returns what is known now. It is never nil.
func (f *Follower) View() *View { return f.view.Load() }

// Run follows all regions until ctx ends. changed, which may be nil, is called on
// this goroutine with each new view, about once a second and at once on news.
func (f *Follower) Run(ctx context.Context, changed func(*View)) {
	var all sync.WaitGroup
	defer all.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, r := range f.config.Regions {
		all.Go(func() { f.follow(ctx, r) })
	}
	ticker := time.NewTicker(healthEvery)
	defer ticker.Stop()
	healths := map[string]health{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-f.kick:
		}
		var v *View
		v, healths = f.look(healths, time.Now())
		f.view.Store(v)
		if changed != nil {
			changed(v)
		}
	}
}

// look makes the next view.
func (f *Follower) look(healths map[string]health, now time.Time) (*View, map[string]health) {
	f.mu.Lock()
	facts := fleetFacts{regions: map[string]regionFacts{}, share: f.config.PassingShare}
	for name, r := range f.facts {
		copied := *r
		copied.reached = maps.Clone(r.reached)
		facts.regions[name] = copied
	}
	f.mu.Unlock()

	before := f.view.Load()
	var text string
	facts.topology, text = f.prevailing(facts.regions, before)
	states, healths := facts.states(healths, now)
	v := &View{Topology: facts.topology, PoPs: states, Regions: map[string]RegionState{}, At: now, chooser: before.chooser, text: text}
	if v.Topology != before.Topology {
		v.chooser = newChooser(v.Topology, f.config.Geo)
	}
	for name, r := range facts.regions {
		_, known := r.effective(now)
		s := RegionState{Known: known, Heard: r.heard, Err: errors.Join(r.err, r.topologyErr)}
		if r.second != nil && r.doubtful(now) {
			s.Via = r.second.via
		}
		v.Regions[name] = s
	}
	return v, healths
}

// prevailing is the topology that most deciding regions hold, or of as many the one
// that comes first in the configuration: all routers agree, also while it is published
// to one region after another. It is the one before, the same pointer, if that
// holds still.
func (f *Follower) prevailing(regions map[string]regionFacts, before *View) (*Topology, string) {
	regions = deciding(regions, func(r regionFacts) bool { return r.topology != nil })
	votes := map[string]int{}
	for _, r := range regions {
		votes[r.topologyText]++
	}
	var best regionFacts
	for _, r := range f.config.Regions {
		if facts := regions[r.Name]; facts.topology != nil && (best.topology == nil || votes[facts.topologyText] > votes[best.topologyText]) {
			best = facts
		}
	}
	if best.topology == nil || best.topologyText == before.text {
		return before.Topology, before.text
	}
	return best.topology, best.topologyText
}

// change changes what is known of one region.
func (f *Follower) change(region string, how func(*regionFacts)) {
	f.mu.Lock()
	how(f.facts[region])
	f.mu.Unlock()
	select {
	case f.kick <- struct{}{}:
	default:
	}
}

// follow follows one region until ctx ends. When its Consul comes back the watches
// begin anew: the old ones may wait for long on connections that are dead.
func (f *Follower) follow(ctx context.Context, r FollowedRegion) {
	var all sync.WaitGroup
	defer all.Wait()
	back := make(chan struct{}, 1)
	all.Go(func() { f.pulse(ctx, r, back) })
	all.Go(func() { f.learn(ctx, r) })
	for ctx.Err() == nil {
		inner, cancel := context.WithCancel(ctx)
		var watches sync.WaitGroup
		watches.Go(func() { f.watchNodes(inner, r) })
		watches.Go(func() { f.watchTopology(inner, r) })
		watches.Go(func() { f.watchDrains(inner, r) })
		select {
		case <-ctx.Done():
		case <-back:
		}
		cancel()
		watches.Wait()
	}
}

func (f *Follower) watchNodes(ctx context.Context, r FollowedRegion) {
	follow(ctx, source[[]seenNode]{
		read: func(ctx context.Context, q query) ([]seenNode, uint64, error) {
			nodes, called, index, err := r.Consul.catalogue(ctx, "", q, q.bound())
			if called != "" { // as a detour has to name it
				f.mu.Lock()
				f.facts[r.Name].datacenter = called
				f.mu.Unlock()
			}
			slices.SortFunc(nodes, func(a, b seenNode) int {
				return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Address, b.Address))
			})
			return nodes, index, err
		},
		same:  slices.Equal[[]seenNode],
		older: func(last, now []seenNode) bool { return len(last) > 0 && len(now) == 0 },
	}, func(err error) {
		f.change(r.Name, func(facts *regionFacts) {
			if err != nil {
				facts.fail(err, time.Now())
			} else {
				facts.answered(time.Now())
			}
		})
	}, func(nodes []seenNode) {
		// The watch compares with what it delivered, so that must not change.
		f.change(r.Name, func(facts *regionFacts) { facts.list(slices.Clone(nodes)) })
	})
}

// watchTopology keeps the last topology that could be read: neither a missing key
// nor nonsense says that there are no PoPs.
func (f *Follower) watchTopology(ctx context.Context, r FollowedRegion) {
	r.Consul.Watch(ctx, r.Consul.TopologyKey(), nil, func(e *Entry) {
		if e == nil {
			return
		}
		t, err := readTopology(e.Value)
		var text []byte
		if err == nil {
			text, err = json.Marshal(t)
		}
		f.change(r.Name, func(facts *regionFacts) {
			if err == nil {
				facts.topology, facts.topologyText, facts.topologyErr = t, string(text), nil
			} else {
				facts.topologyErr = r.Consul.unreadable(e.Key, err)
			}
		})
	})
}

func (f *Follower) watchDrains(ctx context.Context, r FollowedRegion) {
	prefix := r.Consul.Key("drain") + "/"
	follow(ctx, source[[]Entry]{
		read: func(ctx context.Context, q query) ([]Entry, uint64, error) {
			return r.Consul.listFor(ctx, prefix, q)
		},
		same: func(a, b []Entry) bool {
			return slices.EqualFunc(a, b, func(a, b Entry) bool { return a.Key == b.Key && bytes.Equal(a.Value, b.Value) })
		},
		older: func(last, now []Entry) bool { return len(last) > 0 && len(now) == 0 },
	}, nil, func(entries []Entry) {
		drains, _ := r.Consul.readDrains(entries) // what cannot be read drains, too
		f.change(r.Name, func(facts *regionFacts) { facts.drains = drains })
	})
}

// listFor is list for a watch.
func (c *Consul) listFor(ctx context.Context, prefix string, q query) ([]Entry, uint64, error) {
	ctx, cancel := q.within(ctx, q.bound())
	defer cancel()
	pairs, meta, err := c.api.KV().List(prefix, q.options(ctx))
	if err == nil && meta.ResultsFilteredByACLs {
		err = errHidden
	}
	if err != nil {
		return nil, 0, c.failure(ctx, "list "+prefix, err)
	}
	entries := make([]Entry, len(pairs))
	for i, p := range pairs {
		entries[i] = Entry{Key: p.Key, Value: p.Value, ModifyIndex: p.ModifyIndex}
	}
	return entries, meta.LastIndex, nil
}
