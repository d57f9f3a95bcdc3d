package storetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/pkg/limiter"
)

// RunLeases lets lease holders spend what a store grants them at any moment until the lease
// ends, mixed with requests that the store decides, and checks that no more passes than the
// limit's model allows. Some holders return what they have left, some vanish. It returns
// all that passed, which is the same for every store.
func RunLeases(t *testing.T, sequences int, open Open) (passed []Passed) {
	for _, line := range []string{
		"r fixed_window limit=%d window=%s",
		"r sliding_window limit=%d window=%s",
		"r token_bucket limit=%d window=%s burst=%d",
		"r rolling_window limit=%d window=%s",
		"r rolling_window limit=%d window=%s storage=sorted_set",
	} {
		words := strings.Fields(line)
		t.Run(strings.TrimSuffix(strings.Join(append(words[1:2], words[4:]...), " "), " burst=%d"), func(t *testing.T) {
			for seed := range sequences {
				h := &holders{T: t, random: rand.New(rand.NewPCG(uint64(seed), 2))}
				h.clock.Set(time.Duration(h.random.Int64N(int64(time.Hour))))
				h.store = open(t, h.clock.Now)
				limit, window := 1+h.random.Int64N(300), []string{"10s", "10001ms", "60s"}[h.random.IntN(3)]
				filled := fmt.Sprintf(strings.Replace(line, " burst=%d", "", 1), limit, window)
				if words[1] == "token_bucket" {
					filled += fmt.Sprintf(" burst=%d", 2+h.random.Int64N(limit+20))
				}
				l, err := ParseLimit(strings.Fields(filled))
				require.NoError(t, err)
				l.Leased = true
				if l.Validate() != nil {
					continue // a burst too small to lease
				}
				h.limit = l
				for range 400 {
					h.step()
				}
				passed = append(passed, h.log...)
				require.Empty(t, Replay(l, h.log), "seed %d: %s", seed, filled)
			}
		})
	}
	return passed
}

type holders struct {
	*testing.T
	random *rand.Rand
	clock  Clock
	store  limiter.FullStore
	limit  *limiter.Limit
	held   []holding
	log    []Passed
}

// holding is what is left of one grant.
type holding struct{ units, until, takenAt int64 }

func (h *holders) step() {
	lease := h.limit.LeaseTime()
	now := time.Duration(h.clock.Now()-Epoch) * time.Microsecond
	switch h.random.IntN(10) {
	case 0:
		now += time.Duration(h.random.Int64N(int64(h.limit.Window / 8)))
	case 1: // the last moment of a lease
		if len(h.held) > 0 {
			now = max(now, time.Duration(h.held[0].until-1-Epoch)*time.Microsecond)
		}
	default:
		now += time.Duration(h.random.Int64N(int64(lease / 4)))
	}
	h.clock.Set(now)
	h.lapse()
	switch h.random.IntN(4) {
	case 0:
		h.ask()
	case 1: // spend all held units at once, and all that the store passes
		for i := range h.held {
			h.spend(&h.held[i], h.held[i].units)
		}
		for range h.limit.Limit + h.limit.Burst {
			if !h.take(1) {
				break
			}
		}
	case 2:
		h.take(1 + h.random.Int64N(3))
	case 3:
		if len(h.held) > 0 {
			one := &h.held[h.random.IntN(len(h.held))]
			h.spend(one, h.random.Int64N(one.units+1))
		}
	}
}

func (h *holders) check(cost int64) limiter.Check {
	return limiter.Check{Limit: h.limit, Key: Key("a", h.limit), Cost: cost}
}

func (h *holders) ask() {
	c := h.check(1 + h.random.Int64N(min(h.limit.Limit, limiter.MaxEntries)))
	c.Nodes = 1 + h.random.IntN(3)
	var d limiter.Decision
	require.NoError(h, h.store.Take(context.Background(), []limiter.Check{c}, &d))
	r := &d.Results[0]
	require.Equal(h, r.Granted > 0, r.Charged)
	require.LessOrEqual(h, r.Granted, c.Cost)
	if r.Granted == 0 {
		return
	}
	lives := h.limit.LeaseTime()
	switch h.limit.Algorithm {
	case limiter.FixedWindow:
		lives = min(lives, r.ResetAfter)
	case limiter.SlidingWindow:
		lives = min(lives, r.ResetAfter-h.limit.Window)
	}
	h.held = append(h.held, holding{r.Granted, h.clock.Now() + lives.Microseconds(), r.TakenAt})
}

func (h *holders) take(cost int64) bool {
	var d limiter.Decision
	require.NoError(h, h.store.Take(context.Background(), []limiter.Check{h.check(cost)}, &d))
	if d.Allowed {
		h.log = append(h.log, Passed{h.clock.Now(), cost})
	}
	return d.Allowed
}

func (h *holders) spend(one *holding, units int64) {
	if units > 0 {
		one.units -= units
		h.log = append(h.log, Passed{h.clock.Now(), units})
	}
}

// lapse ends leases that can no longer be spent. Most are returned, occasionally early.
func (h *holders) lapse() {
	var kept []holding
	for _, one := range h.held {
		early := h.random.IntN(20) == 0
		switch {
		case one.units == 0:
		case !early && h.clock.Now() < one.until:
			kept = append(kept, one)
		case h.random.IntN(4) > 0:
			d := limiter.Decision{Results: []limiter.Result{{Charged: true, TakenAt: one.takenAt}}}
			require.NoError(h, h.store.Return(context.Background(), []limiter.Check{h.check(one.units)}, &d))
		}
	}
	h.held = kept
}
