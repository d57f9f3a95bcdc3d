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

// RunLeasedParts lets nodes of three regions lease units of their parts of a limit, and give
// some back, while rights move between the regions. It checks that no window passes more than
// the limit, and that what is given back can be spent again, and returns all answers, which are
// the same for every store.
func RunLeasedParts(t *testing.T, sequences int, open Open) (answers []string) {
	ctx := context.Background()
	for seed := range sequences {
		random := rand.New(rand.NewPCG(uint64(seed), 16))
		whole, err := ParseLimit(strings.Fields(fmt.Sprintf("r fixed_window limit=%d window=10s escrow leased", 3*(10+random.Int64N(40)))))
		require.NoError(t, err)
		part := &limiter.Limit{Rule: whole.Rule, Algorithm: whole.Algorithm, Limit: whole.Limit / 3, Window: whole.Window, Leased: true, Global: whole.Global, Whole: whole}
		key := func(region int) []byte { return Key(string(rune('a'+region)), part) }
		var clock Clock
		clock.Set(0)
		store := open(t, clock.Now)
		require.NoError(t, store.(limiter.TermStore).Open(ctx))
		type grant struct {
			region         int
			units, takenAt int64
		}
		var grants []grant
		spent := map[int64]int64{} // leased or passed, by window
		gave := map[[2]int]int64{} // in this window
		window := int64(0)
		now := time.Duration(0)
		for range 300 {
			now += time.Duration(random.Int64N(int64(200 * time.Millisecond))).Round(time.Millisecond)
			clock.Set(now)
			start := clock.Now() - clock.Now()%part.Window.Microseconds()
			if start != window {
				clear(gave)
				window = start
			}
			a := random.IntN(3)
			b := (a + 1 + random.IntN(2)) % 3
			switch random.IntN(5) {
			case 0:
				var d limiter.Decision
				require.NoError(t, store.Take(ctx, []limiter.Check{{Limit: part, Key: key(a), Cost: 1}}, &d))
				if d.Allowed {
					spent[start]++
				}
				answers = append(answers, fmt.Sprint(d.Allowed, d.Results[0].Remaining, d.Results[0].RetryAfter))
			case 1, 2:
				var d limiter.Decision
				require.NoError(t, store.Take(ctx, []limiter.Check{{Limit: part, Key: key(a), Cost: 1 + random.Int64N(10), Nodes: 1}}, &d))
				r := d.Results[0]
				spent[start] += r.Granted
				if r.Granted > 0 {
					grants = append(grants, grant{a, r.Granted, r.TakenAt})
				}
				answers = append(answers, fmt.Sprint(r.Granted, r.Remaining, r.ResetAfter))
			case 3:
				if len(grants) == 0 {
					continue
				}
				i := random.IntN(len(grants))
				g := grants[i]
				grants = append(grants[:i], grants[i+1:]...)
				look := func() int64 {
					one := []limiter.Move{{Limit: part, Key: key(g.region), Region: "nobody", Start: start}}
					store.(limiter.Mover).Move(ctx, one)
					require.NoError(t, one[0].Err)
					return one[0].Left
				}
				before := look()
				unspent := 1 + random.Int64N(g.units)
				d := limiter.Decision{Results: []limiter.Result{{Charged: true, TakenAt: g.takenAt}}}
				require.NoError(t, store.Return(ctx, []limiter.Check{{Limit: part, Key: key(g.region), Cost: unspent}}, &d))
				if g.takenAt < start {
					unspent = 0 // its window has ended
				}
				spent[start] -= unspent
				require.Equal(t, before+unspent, look(), "seed %d", seed)
			default:
				one := []limiter.Move{{Limit: part, Key: key(a), Region: fmt.Sprint(b), Start: start, Upto: gave[[2]int{a, b}] + random.Int64N(20)}}
				store.(limiter.Mover).Move(ctx, one)
				require.NoError(t, one[0].Err)
				gave[[2]int{a, b}] = one[0].Gave
				back := []limiter.Move{{Limit: part, Key: key(b), Region: fmt.Sprint(a), Start: start, Got: one[0].Gave}}
				store.(limiter.Mover).Move(ctx, back)
				require.NoError(t, back[0].Err)
				answers = append(answers, fmt.Sprint(one[0].Gave, one[0].Left, back[0].Known, back[0].Left))
			}
			require.LessOrEqual(t, spent[start], whole.Limit, "seed %d", seed)
		}
		// A store that has lost everything lets nothing be spent in this window, whatever is given
		// back to it.
		store = open(t, clock.Now)
		for _, g := range grants {
			d := limiter.Decision{Results: []limiter.Result{{Charged: true, TakenAt: g.takenAt}}}
			require.NoError(t, store.Return(ctx, []limiter.Check{{Limit: part, Key: key(g.region), Cost: g.units}}, &d))
		}
		for region := range 3 {
			for nodes := range 2 {
				var d limiter.Decision
				require.NoError(t, store.Take(ctx, []limiter.Check{{Limit: part, Key: key(region), Cost: 1, Nodes: nodes}}, &d))
				require.False(t, d.Allowed, "seed %d", seed)
			}
		}
	}
	return answers
}
