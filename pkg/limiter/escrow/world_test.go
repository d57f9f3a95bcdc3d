package escrow

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/global"
	"github.com/weir-edge/weir/pkg/limiter/memory"
	"github.com/weir-edge/weir/pkg/limiter/storetest"
)

// world is regions that divide a limit, with a node each: real stores and tenures, and messages
// that are late, lost and duplicated. Time is a number.
type world struct {
	random  *rand.Rand
	now     time.Duration
	limit   *limiter.Limit
	names   []string // of the regions in the topology
	changed time.Duration
	regions []*worldRegion
	late    []message
	loss    float64
	passed  map[int64]int64 // by window
	lostAt  time.Duration
	broken  broken
	tiers   []*limiter.Limit // limits that share the window, if any do
}

// broken are deliberate faults.
type broken struct {
	minority bool // one store's promise is enough
	forgets  bool // a store that lost everything promises as if it had not
	reopens  bool // ... and makes spendable what may have been spent
	doubles  bool // duplicates count each time
	generous bool // a giver's store charges nothing
}

type worldRegion struct {
	number  int
	name    string
	names   []string // that it knows
	skew    time.Duration
	store   *memory.Store
	checks  *Store
	tenure  global.Tenure
	ready   bool
	cut     time.Duration // until when it is isolated
	dead    time.Duration // until when it does nothing
	renewed time.Duration
}

// message arrives at a time.
type message struct {
	at       time.Duration
	from, to int
	deliver  func()
}

func newEscrowWorld(seed uint64) *world {
	random := rand.New(rand.NewPCG(seed, 23))
	w := &world{random: random, now: time.Duration(random.Int64N(int64(time.Hour))), passed: map[int64]int64{}, loss: random.Float64() * 0.4}
	var err error
	w.limit, err = storetest.ParseLimit(strings.Fields(fmt.Sprintf("r fixed_window limit=%d window=%ds escrow", 1+random.IntN(60), []int{5, 10, 30, 300}[random.IntN(4)])))
	if err != nil {
		panic(err)
	}
	listed := 1 + random.IntN(5)
	w.changed = w.now
	for i := range max(listed, min(5, 10*(listed/3))) { // the others of five may be listed later
		name := string(rune('a' + i))
		if i < listed {
			w.names = append(w.names, name)
		}
		r := &worldRegion{number: i, name: name, skew: time.Duration(random.Int64N(int64(10*time.Second))) - 5*time.Second}
		w.regions = append(w.regions, r)
	}
	for _, r := range w.regions {
		r.names = w.names
		w.lose(r)
		w.restart(r)
	}
	return w
}

// change adds or removes a listed region, which nodes learn at different times.
func (w *world) change() {
	if len(w.names) < 3 || w.now-w.changed < 4*time.Minute {
		return
	}
	w.changed = w.now
	name := w.regions[w.random.IntN(len(w.regions))].name
	without := slices.DeleteFunc(slices.Clone(w.names), func(s string) bool { return s == name })
	switch {
	case len(without) == len(w.names):
		w.names = append(without, name)
	case len(without) >= 3:
		w.names = without
	}
}

// tell gradually tells regions which ones are listed.
func (w *world) tell() {
	for _, r := range w.regions {
		if w.random.IntN(20) == 0 || w.now-w.changed > time.Minute {
			r.names = w.names
		}
	}
}

func (w *world) wall(r *worldRegion) int64 {
	return storetest.Epoch + (w.now + r.skew).Microseconds()
}

// lose empties a region's store.
func (w *world) lose(r *worldRegion) {
	again := r.store != nil
	r.store = memory.New(memory.Config{Clock: func() int64 { return w.wall(r) }})
	if again && w.broken.reopens {
		_ = r.store.Open(context.Background())
	}
	held := global.Held(nil)
	if r.checks != nil {
		held = r.checks.Held()
	}
	r.checks = New(limiter.NoDenied{FullStore: r.store}, func() int64 { return w.wall(r) })
	r.checks.Hold(held)
}

// restart makes a region's node forget what it knows.
func (w *world) restart(r *worldRegion) {
	r.tenure, r.ready, r.renewed = global.Tenure{}, false, 0
	r.checks.Hold(nil)
}

func (w *world) draw() int64 { return 1 + w.random.Int64N(1<<40) }

// send delivers a message late, twice, or never.
func (w *world) send(from, to int, deliver func()) {
	for n := 1 + w.random.IntN(5)/4; n > 0; n-- {
		if w.random.Float64() >= w.loss {
			late := time.Duration(w.random.Int64N(int64(300 * time.Millisecond)))
			if w.random.IntN(50) == 0 {
				late = time.Duration(w.random.Int64N(int64(2 * time.Minute)))
			}
			w.late = append(w.late, message{w.now + late, from, to, deliver})
		}
	}
}

func (w *world) reaches(r int) bool { return w.now >= w.regions[r].cut && w.now >= w.regions[r].dead }

// step advances the time and delivers what is due.
func (w *world) step(d time.Duration) {
	w.now += d
	due := w.late
	w.late = nil
	for _, m := range due {
		switch {
		case m.at > w.now:
			w.late = append(w.late, m)
		case w.reaches(m.from) && w.reaches(m.to):
			m.deliver()
		}
	}
}

// renew does the work of across without its goroutines.
func (w *world) renew(r *worldRegion) {
	r.renewed = w.now
	if !r.tenure.SetRegions(r.name, r.names, w.now) {
		return
	}
	terms := r.tenure.Ask(w.wall(r), w.draw())
	r.store.Renew(context.Background(), terms)
	ask := r.tenure.OwnAnswered(terms)
	w.hold(r)
	regions, self := r.tenure.Regions()
	for voter, name := range regions {
		if voter == self {
			continue
		}
		to := int(name[0] - 'a')
		other := w.regions[to]
		w.send(r.number, to, func() {
			list := append([]limiter.Term(nil), ask...)
			for i := range list {
				list[i].Draw, list[i].Settle = w.draw(), limiter.Unsettled
			}
			if global.Division(slices.Sorted(slices.Values(other.names))) != list[0].Division {
				return
			}
			other.store.Renew(context.Background(), list)
			if w.broken.forgets {
				for i := range list {
					list[i].Sure = 0
				}
			}
			w.send(to, r.number, func() {
				if now, _ := r.tenure.Regions(); !slices.Equal(now, regions) {
					return
				}
				r.tenure.Hear(voter, append([]limiter.Term(nil), list...))
				if !w.broken.minority {
					w.hold(r)
					return
				}
				for i := range list {
					if t := &list[i]; t.Promised {
						r.checks.Hold(r.checks.Held().With(slices.Index(regions, t.Part), len(regions), []global.Span{{From: t.From, To: t.To}}))
					}
				}
			})
		})
	}
}

func (w *world) hold(r *worldRegion) {
	held := r.tenure.Held()
	settled, due, first := r.tenure.Settled(w.now)
	if !settled && due {
		life, draw := r.tenure.Life(), w.draw()
		settle := func(as limiter.Settling) limiter.Settling {
			one := r.tenure.Settle(w.wall(r), draw, life, as)
			r.store.Renew(context.Background(), one)
			r.tenure.OwnAnswered(one)
			return one[0].Settled
		}
		if !first {
			settle(limiter.SettledLater)
		} else if settle(limiter.WouldBeFirst) == limiter.WouldBeFirst {
			_ = r.store.Open(context.Background())
			settle(limiter.SettledFirst)
		}
		settled, _, _ = r.tenure.Settled(w.now)
	}
	if r.ready = r.ready || settled; r.ready {
		r.checks.Hold(held)
	}
}

// share lets clients of a smaller tier spend from the same window.
func (w *world) share() {
	small, err := storetest.ParseLimit(strings.Fields(fmt.Sprintf("r fixed_window limit=%d window=%s escrow", 1+w.random.Int64N(w.limit.Limit), w.limit.Window)))
	if err != nil {
		panic(err)
	}
	w.tiers = []*limiter.Limit{w.limit, small}
	for _, l := range w.tiers {
		l.Shared, l.Slowest = true, small.Limit
	}
}

// tier returns the limit of the client that asks now.
func (w *world) tier() *limiter.Limit {
	if w.tiers == nil {
		return w.limit
	}
	return w.tiers[w.random.IntN(len(w.tiers))]
}

// flood asks all regions at once for twice the limit. Like ask, it returns false if too much
// has passed.
func (w *world) flood() bool {
	for _, r := range w.regions {
		if w.now >= r.dead && !w.ask(r, 2*int(w.limit.MaxCost())) {
			return false
		}
	}
	return true
}

// move makes a region ask another for rights of a window.
func (w *world) move(to, from *worldRegion) {
	start := w.limit.WindowStart(w.wall(to))
	upto, keep := w.random.Int64N(2*w.limit.Limit), w.random.Int64N(3)
	w.send(to.number, from.number, func() {
		gave := w.moved(from, limiter.Move{Region: to.name, Start: start, Upto: upto, Keep: keep})
		if w.broken.generous && gave.Gave == 0 {
			gave.Gave = upto
		}
		w.send(from.number, to.number, func() {
			got := gave.Gave
			if w.broken.doubles {
				got += w.moved(to, limiter.Move{Region: from.name, Start: start}).Known
			}
			w.moved(to, limiter.Move{Region: from.name, Start: start, Got: got})
		})
	})
}

func (w *world) moved(r *worldRegion, m limiter.Move) limiter.Move {
	l, key := w.tier(), storetest.Key("k", w.limit)
	units, ok := global.Part(r.checks.Held(), l, key, m.Start)
	if !ok {
		return limiter.Move{}
	}
	m.Limit, m.Key = r.checks.Part(l, units), key
	one := []limiter.Move{m}
	r.store.Move(context.Background(), one)
	return one[0]
}

// ask makes a region's clients ask for units at once. It returns false if more than the limit
// has passed.
func (w *world) ask(r *worldRegion, times int) bool {
	var d limiter.Decision
	for range times {
		if err := r.checks.Take(context.Background(), []limiter.Check{{Limit: w.tier(), Key: storetest.Key("k", w.limit), Cost: 1}}, &d); err != nil {
			panic(err)
		}
		if !d.Allowed {
			return true
		}
		start := w.limit.WindowStart(d.Results[0].TakenAt)
		if w.passed[start]++; w.passed[start] > w.limit.Limit {
			return false
		}
	}
	return true
}

// run returns false as soon as more than the limit has passed in a window.
func (w *world) run(steps int) bool {
	for range steps {
		w.step(time.Duration(w.random.Int64N(int64(2 * time.Second))))
		w.tell()
		for _, r := range w.regions {
			if w.now >= r.dead && w.now-r.renewed >= 5*time.Second {
				w.renew(r)
			}
		}
		some := w.regions[w.random.IntN(len(w.regions))]
		switch w.random.IntN(60) {
		case 0, 1:
			some.cut = w.now + time.Duration(w.random.Int64N(int64(3*time.Minute)))
		case 2:
			some.dead = w.now + time.Duration(w.random.Int64N(int64(3*time.Minute)))
		case 3: // not all stores before they hear from each other: nobody would know
			// what they held.
			if len(w.regions) > 1 && (w.lostAt == 0 || w.now-w.lostAt > 5*time.Minute) {
				w.lostAt = w.now
				w.lose(some)
			}
		case 4, 5:
			w.restart(some)
		case 8:
			w.change()
		case 6: // its clock is moved forward, at most as far as clocks are apart
			some.skew = min(5*time.Second, some.skew+time.Duration(w.random.Int64N(int64(time.Second))))
		case 7: // all clients at once, everywhere
			if !w.flood() {
				return false
			}
		}
		if len(w.regions) > 1 && w.random.IntN(2) == 0 {
			a := w.random.IntN(len(w.regions))
			b := (a + 1 + w.random.IntN(len(w.regions)-1)) % len(w.regions)
			w.move(w.regions[a], w.regions[b])
		}
		if w.now >= some.dead && !w.ask(some, 1+w.random.IntN(20)) {
			return false
		}
	}
	return true
}

// Under random events, no window passes more than the limit.
func TestRandomWorlds(t *testing.T) {
	worlds := 150
	if os.Getenv("WEIR_SOAK") == "1" {
		worlds = 10_000
	}
	total := int64(0)
	for seed := range worlds {
		w := newEscrowWorld(uint64(seed))
		require.True(t, w.run(600), "seed %d: %d regions, %d in %s: %v", seed, len(w.regions), w.limit.Limit, w.limit.Window, w.passed)
		for _, n := range w.passed {
			total += n
		}
	}
	require.True(t, newEscrowWorld(14_878).run(600), "a store is lost between what others say of it and what follows from that")
	require.Greater(t, total, int64(100*worlds), "worlds in which something passes")
}

// Tiers that share a window never pass more than the limit of the largest.
func TestRandomWorldsOfTiers(t *testing.T) {
	worlds := 100
	if os.Getenv("WEIR_SOAK") == "1" {
		worlds = 10_000
	}
	for seed := range worlds {
		w := newEscrowWorld(uint64(seed))
		w.share()
		require.True(t, w.run(600), "seed %d: %d regions, %d and %d in %s: %v", seed, len(w.regions), w.limit.Limit, w.tiers[1].Limit, w.limit.Window, w.passed)
	}
}

// Each of these faults makes some world pass more than the limit.
func TestBrokenWorldsAreCaught(t *testing.T) {
	for name, b := range map[string]broken{
		"a minority promises":                {minority: true},
		"a store forgets what it promised":   {forgets: true},
		"a store forgets what was spent":     {reopens: true},
		"what arrives twice counts twice":    {doubles: true},
		"what is given is not charged first": {generous: true},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range 3000 {
				w := newEscrowWorld(uint64(seed))
				w.broken = b
				if !w.run(600) {
					return
				}
			}
			t.Error("no world noticed")
		})
	}
}
