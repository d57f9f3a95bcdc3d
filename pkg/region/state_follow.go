package region

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/pkg/region/consul"
	"github.com/weir-edge/weir/pkg/sign"
)

// FollowConfig configures a Follower.
type FollowConfig struct {
	// Regions are all regions of the fleet, named as in the topology.
	Regions []FollowedRegion
	Geo     Locator // nil: none
	// PassingShare is the share of a PoP's nodes, 0..1, that must pass for it to be
	// healthy; at least one must.
	PassingShare float64
	// TTL is how long clients keep an answer; 0: they do not.
	TTL time.Duration
	// Verify returns the keys of which one should have signed a topology; nil if none need
	// to.
	Verify func() (sign.Keys, error)
	// RequireSigned ignores a topology that none of them has signed. Otherwise the follower
	// only reports it.
	RequireSigned bool
	// Key signs this router's records for others, as one of the topology's routers; nil: it works
	// alone.
	Key *sign.Key
	// VerifyEvery is how often signatures are looked at again; 0: once per minute.
	VerifyEvery time.Duration
}

// FollowedRegion is a region and its Consul.
type FollowedRegion struct {
	Name   string
	Consul *consul.Client
}

// Follower maintains a View of the fleet by watching every region's Consul. It keeps
// working while regions are unreachable: a node is down if its Consul reports so, or if
// neither that Consul nor the node answers.
type Follower struct {
	config FollowConfig
	view   atomic.Pointer[View]
	kick   chan struct{}

	mu     sync.Mutex
	facts  map[string]*regionFacts // by region
	sights map[string]probeHistory // by PoP; replaced, never changed

	agreement Agreement
	adopted   *Spill           // the spill that the next look continues from; nil for its own
	spillErr  error            // why this router works alone
	refused   int              // records
	sequences map[signer]int64 // of the last record of each
}

// NewFollower returns a follower with an empty view.
func NewFollower(c FollowConfig) *Follower {
	f := &Follower{config: c, kick: make(chan struct{}, 1), facts: map[string]*regionFacts{}, sequences: map[signer]int64{}}
	for _, r := range c.Regions {
		f.facts[r.Name] = &regionFacts{datacenter: cmp.Or(r.Consul.Datacenter(), r.Name), reached: map[string]int{}}
	}
	v := NewView(nil, nil, nil)
	v.Spill = firstSpill(v.Spill, time.Now())
	f.view.Store(v)
	return f
}

// View returns the current view. It is never nil.
func (f *Follower) View() *View { return f.view.Load() }

// Run follows all regions until ctx ends. It calls changed, if not nil, on this goroutine
// with each new view: about once per second, and immediately after a change.
func (f *Follower) Run(ctx context.Context, changed func(*View)) {
	var all sync.WaitGroup
	defer all.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, r := range f.config.Regions {
		all.Go(func() { f.follow(ctx, r) })
	}
	all.Go(func() { f.probe(ctx) })
	all.Go(func() { f.share(ctx) })
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

// look builds the next view.
func (f *Follower) look(healths map[string]health, now time.Time) (*View, map[string]health) {
	f.mu.Lock()
	facts := fleetFacts{regions: map[string]regionFacts{}, share: f.config.PassingShare, sights: f.sights}
	for name, r := range f.facts {
		copied := *r
		copied.reached = maps.Clone(r.reached)
		facts.regions[name] = copied
	}
	before := f.view.Load()
	spill, spillErr, refused := cmp.Or(f.adopted, before.Spill), f.spillErr, f.refused
	f.adopted = nil
	f.mu.Unlock()

	var text string
	facts.topology, text = f.prevailing(facts.regions, before)
	states, healths := facts.states(healths, now)
	v := &View{Topology: facts.topology, PoPs: states, Regions: map[string]RegionState{}, At: now, Spill: spill, SpillErr: spillErr, Refused: refused, chooser: before.chooser, portions: before.portions, text: text}
	if v.Topology != before.Topology {
		v.chooser = newChooser(v.Topology, f.config.Geo)
	}
	if now.Sub(v.Spill.At) >= spillEvery || v.Topology != before.Topology || spill != before.Spill {
		v = v.Spilled(v.Spill, f.config.TTL, now)
		f.mu.Lock()
		f.agreement.Note(v.Spill)
		f.mu.Unlock()
	}
	for name, r := range facts.regions {
		_, known := r.effective(now)
		s := RegionState{Known: known, Heard: r.heard, Err: errors.Join(r.err, r.topologyErr, r.signatureErr, r.drainsErr), Unsigned: sign.IsFault(r.topologyErr) || sign.IsFault(r.signatureErr),
			Unreadable: r.err == nil && (r.drainsErr != nil || r.topologyErr != nil && !sign.IsFault(r.topologyErr))}
		if r.second != nil && r.doubtful(now) {
			s.Via = r.second.via
		}
		v.Regions[name] = s
	}
	return v, healths
}

// prevailing returns the topology that most deciding regions hold; in a tie, the first in
// configured order. So all routers agree even while it is being published region by region.
// If it has not changed, prevailing returns the same pointer as before.
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

// change updates the facts of one region.
func (f *Follower) change(region string, how func(*regionFacts)) {
	f.mu.Lock()
	how(f.facts[region])
	f.mu.Unlock()
	f.lookSoon()
}

// lookSoon makes Run build the next view now.
func (f *Follower) lookSoon() {
	select {
	case f.kick <- struct{}{}:
	default:
	}
}

// follow follows one region until ctx ends. When its Consul recovers, the watches
// restart: the old ones may hang on dead connections.
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
	r.Consul.WatchInstances(ctx, func(err error) {
		f.change(r.Name, func(facts *regionFacts) {
			if err != nil {
				facts.fail(err, time.Now())
			} else {
				facts.answered(time.Now())
			}
		})
	}, func(nodes []consul.Instance) {
		f.change(r.Name, func(facts *regionFacts) {
			for _, n := range nodes {
				facts.datacenter = cmp.Or(n.Datacenter, facts.datacenter) // a detour must name it
			}
			// The watch compares with what it delivered, which therefore must not change.
			facts.list(slices.Clone(nodes))
		})
	})
}

// watchTopology keeps the last readable topology: neither a missing key nor invalid data
// means that there are no PoPs.
func (f *Follower) watchTopology(ctx context.Context, r FollowedRegion) {
	watchPointer(ctx, r, TopologyKind, func(ctx context.Context, e *consul.Entry) {
		if e != nil {
			f.takeTopology(ctx, r, e)
		}
	})
}

// watchDrains keeps the last readable drains.
func (f *Follower) watchDrains(ctx context.Context, r FollowedRegion) {
	watchPointer(ctx, r, DrainsKind, func(ctx context.Context, _ *consul.Entry) {
		for failures := 0; ; failures++ {
			drains, _, err := PublishedDrains(ctx, r.Consul)
			if ctx.Err() != nil {
				return
			}
			f.change(r.Name, func(facts *regionFacts) {
				if facts.drainsErr = err; err == nil {
					facts.drains = drains
				}
			})
			if err == nil {
				return
			}
			_ = consul.Pause(ctx, consul.Backoff(failures, rand.Float64()))
		}
	})
}

// watchPointer calls take with each pointer to documents of a kind, nil while there is none. The
// context ends when the next one follows.
func watchPointer(ctx context.Context, r FollowedRegion, kind string, take func(context.Context, *consul.Entry)) {
	var taking sync.WaitGroup
	stop := func() {}
	r.Consul.Watch(ctx, r.Consul.Documents(kind).CurrentKey(), nil, func(e *consul.Entry) {
		stop()
		taking.Wait()
		var one context.Context
		one, stop = context.WithCancel(ctx)
		taking.Go(func() { take(one, e) })
	})
	stop()
	taking.Wait()
}
