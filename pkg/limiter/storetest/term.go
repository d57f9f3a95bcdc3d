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

// RunTerms lets regions ask one store for windows. It checks that no window of a part is
// promised to two holders, and returns all answers, which are the same for every store.
func RunTerms(t *testing.T, sequences int, open Open) (answers []string) {
	for seed := range sequences {
		random := rand.New(rand.NewPCG(uint64(seed), 91))
		var clock Clock
		clock.Set(0)
		store := open(t, clock.Now).(limiter.TermStore)
		type promise struct {
			by       string // holder and division
			from, to int64
		}
		promised := map[string][]promise{}
		now := time.Duration(0)
		division := int64(7)
		life := int64(0)
		silent := -1 // a region that asks for nothing
		for range 200 {
			now += time.Duration(random.Int64N(int64(10 * time.Second))).Round(time.Millisecond)
			clock.Set(now)
			switch random.IntN(20) {
			case 0:
				division = 7 + random.Int64N(3)
			case 1:
				silent = random.IntN(4) - 1
			}
			part := random.IntN(3)
			holder := part
			if random.IntN(2) == 0 {
				holder = (part + 1) % 3
			}
			if holder == silent {
				continue
			}
			term := limiter.Term{
				Division: division, Part: fmt.Sprint("r", part), Holder: fmt.Sprint("r", holder), Draw: 1 + random.Int64N(1000), Settle: limiter.Settling(max(0, random.IntN(50)-46)), Others: [][]string{nil, {"r0"}, {"r1", "r2"}}[random.IntN(3)],
				Until: clock.Now() + random.Int64N((2 * time.Minute).Microseconds()) - (30 * time.Second).Microseconds(), Life: random.Int64N(3),
			}
			if life > 0 && random.IntN(2) == 0 {
				term.Life = life
			}
			one := []limiter.Term{term}
			store.Renew(context.Background(), one)
			require.NoError(t, one[0].Err)
			a := &one[0]
			life = a.Own
			answers = append(answers, fmt.Sprint(a.Promised, a.From, a.To, a.Sure, a.Own, a.Settled, a.First))
			require.LessOrEqual(t, a.To, clock.Now()+limiter.TermForgotten.Microseconds()+limiter.LongestTerm.Microseconds())
			if !a.Promised || a.From > a.To {
				continue
			}
			by := fmt.Sprint(term.Holder, term.Division)
			for _, p := range promised[term.Part] {
				if p.by != by {
					require.False(t, a.From <= p.to && p.from <= a.To, "seed %d: %s of %s was promised %v and %v", seed, by, term.Part, p, *a)
				}
			}
			promised[term.Part] = append(promised[term.Part], promise{by, a.From, a.To})
		}
	}
	return answers
}

// RunSettled checks that what was settled for one store does not apply to another.
func RunSettled(t *testing.T, open Open) {
	var clock Clock
	store := open(t, clock.Now).(limiter.TermStore)
	ask := func(life int64, as limiter.Settling) limiter.Term {
		one := []limiter.Term{{Division: 7, Part: "a", Holder: "a", Draw: 5, Life: life, Settle: as, Others: []string{"b"}, Until: clock.Now()}}
		store.Renew(context.Background(), one)
		require.NoError(t, one[0].Err)
		return one[0]
	}
	require.Equal(t, limiter.Unsettled, ask(4, limiter.SettledFirst).Settled, "the question was about the previous store")
	got := ask(0, limiter.Unsettled)
	require.EqualValues(t, 5, got.Own)
	require.True(t, got.First, "a life that this store never had does not count as heard")
	for _, as := range []limiter.Settling{limiter.WouldBeFirst, limiter.SettledFirst} {
		require.Equal(t, limiter.Unsettled, ask(5, as).Settled, "it could not vouch for the store of b")
	}
	store.Renew(context.Background(), []limiter.Term{{Division: 7, Part: "b", Holder: "b", Draw: 6, Life: 9, Until: clock.Now()}})
	require.Equal(t, limiter.WouldBeFirst, ask(5, limiter.WouldBeFirst).Settled)
	require.Equal(t, limiter.Unsettled, ask(0, limiter.Unsettled).Settled, "that was only a question")
	require.Equal(t, limiter.SettledFirst, ask(5, limiter.SettledFirst).Settled)
	require.Equal(t, limiter.SettledFirst, ask(5, limiter.SettledLater).Settled, "it is settled once")
}

// RunOpened checks that an empty store lets a region's part be spent in windows that begin
// later, and in earlier ones only once it is opened.
func RunOpened(t *testing.T, open Open) {
	ctx := context.Background()
	whole, err := ParseLimit(strings.Fields("r fixed_window limit=30 window=60s escrow"))
	require.NoError(t, err)
	of := func(size int64) *limiter.Limit {
		return &limiter.Limit{Rule: whole.Rule, Algorithm: whole.Algorithm, Limit: size, Window: whole.Window, Global: whole.Global, Whole: whole}
	}
	part := of(10)
	var clock Clock
	clock.Set(20 * time.Second)
	store := open(t, clock.Now)
	take := func(key string) bool {
		var d limiter.Decision
		require.NoError(t, store.Take(ctx, []limiter.Check{{Limit: part, Key: Key(key, part), Cost: 1}}, &d))
		return d.Allowed
	}
	move := func(m limiter.Move) limiter.Move {
		m.Limit, m.Key = part, Key("b", part)
		one := []limiter.Move{m}
		store.(limiter.Mover).Move(ctx, one)
		require.NoError(t, one[0].Err)
		return one[0]
	}
	require.False(t, take("a"), "what was spent before is unknown")
	m := move(limiter.Move{Region: "eu", Start: Epoch, Got: 5})
	require.Zero(t, m.Left, "what others gave may have been spent")
	require.True(t, m.Burned)
	var d limiter.Decision
	for _, key := range []string{"a", "b"} {
		require.NoError(t, store.Take(ctx, []limiter.Check{{Limit: of(20), Key: Key(key, part), Cost: 1}}, &d))
		require.False(t, d.Allowed, "%s: nor what the region could spend of parts that it inherits", key)
	}
	require.Zero(t, move(limiter.Move{Region: "eu", Start: Epoch, Upto: 5}).Gave)
	clock.Set(time.Minute)
	require.True(t, take("a"), "the next window")
	require.EqualValues(t, 5, move(limiter.Move{Region: "eu", Start: Epoch + time.Minute.Microseconds(), Upto: 5}).Gave)

	clock.Set(20 * time.Second)
	store = open(t, clock.Now)
	require.NoError(t, store.(limiter.TermStore).Open(ctx))
	require.True(t, take("a"))
	require.EqualValues(t, 15, move(limiter.Move{Region: "eu", Start: Epoch, Got: 5}).Left)
	require.True(t, take("c"))

	// Another store's clock may have been ahead when it was lost.
	clock.Set(55 * time.Second)
	store = open(t, clock.Now)
	require.False(t, take("a"))
	clock.Set(61 * time.Second)
	require.False(t, take("a"))
	require.False(t, take("d"))
	clock.Set(2 * time.Minute)
	require.True(t, take("a"))

	// Windows that begin a while after a loss was reported are open to the first request.
	clock.Set(2*time.Minute + 5*time.Second)
	store = open(t, clock.Now)
	require.NoError(t, store.(limiter.TermStore).Reopen(ctx))
	require.False(t, take("a"))
	clock.Set(3 * time.Minute)
	require.True(t, take("a"))
	require.True(t, take("e"))
}
