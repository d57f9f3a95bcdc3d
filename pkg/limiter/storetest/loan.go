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

// WholeBucket is the plain model of a bucket in escrow: one bucket that never refuses. In every
// interval at most its burst and what refills passes, if and only if it is never over-full.
type WholeBucket struct {
	limit     *limiter.Limit
	at, level int64
}

// NewWholeBucket returns an empty one.
func NewWholeBucket(l *limiter.Limit) *WholeBucket { return &WholeBucket{limit: l} }

// Pass notes units that passed at a time, in Unix microseconds, and returns how many too many
// that are.
func (w *WholeBucket) Pass(at, units int64) (over float64) {
	drain, unit := w.limit.Rate()
	if d := at - w.at; d > 0 {
		if d > w.level/drain {
			w.level = 0
		} else {
			w.level -= d * drain
		}
		w.at = at
	}
	w.level += units * unit
	return float64(w.level-w.limit.Burst*unit) / float64(unit)
}

// bucketPart returns a part of a bucket.
func bucketPart(whole *limiter.Limit, burst int64, p limiter.Portion) *limiter.Limit {
	return &limiter.Limit{
		Rule: whole.Rule, Algorithm: whole.Algorithm, Limit: whole.Limit, Window: whole.Window, Burst: burst,
		Global: whole.Global, Whole: whole, Portion: &p,
	}
}

// RunLoans lets three regions share a bucket in escrow: each has a part of it under a key of its
// own, parts change hands, and tokens move by messages that are lost, doubled and late. It holds
// what passes to the plain model, and returns all answers, which are the same for every store.
func RunLoans(t *testing.T, sequences int, open Open) (answers []string) {
	for seed := range sequences {
		random := rand.New(rand.NewPCG(uint64(seed), 67))
		burst := 3 + random.Int64N(40)
		whole, err := ParseLimit(strings.Fields(fmt.Sprintf("r token_bucket limit=%d window=%ds burst=%d escrow", 1+random.IntN(50), 1+random.IntN(10), burst)))
		require.NoError(t, err)
		var clock Clock
		store := open(t, clock.Now)
		require.NoError(t, store.(limiter.Registrar).Open(context.Background()))
		model := NewWholeBucket(whole)
		parts := make([]*limiter.Limit, 3)
		holder := []int{0, 1, 2}
		divide := func(young, gained int) {
			for r := range parts {
				n, have := int64(0), int64(0)
				for p := range 3 {
					if holder[p] == r {
						n, have = n+1, have+(burst+int64(p))/3
					}
				}
				p := limiter.Portion{Num: n, Den: 3, Have: have}
				if r == young && n > 0 {
					p.Since, p.OldNum, p.OldDen, p.Young = clock.Now(), n-1, 3, (burst+int64(gained))/3
				}
				parts[r] = bucketPart(whole, have, p)
			}
		}
		divide(-1, 0)
		type message struct {
			from, to  int
			id, asked int64
			gave      int64
			closed    int64
		}
		var messages []message
		now := time.Duration(0)
		for range 400 {
			now += time.Duration(random.Int64N(int64(300 * time.Millisecond))).Round(time.Millisecond)
			if random.IntN(20) == 0 {
				now += time.Duration(random.Int64N(int64(20 * time.Second))).Round(time.Millisecond)
			}
			clock.Set(now)
			a := random.IntN(3)
			key := func(region int) []byte { return Key(string(rune('a'+region)), whole) }
			move := func(m limiter.Move) limiter.Move {
				one := []limiter.Move{m}
				store.(limiter.Mover).Move(context.Background(), one)
				require.NoError(t, one[0].Err)
				answers = append(answers, fmt.Sprint(seed, one[0].Gave, one[0].Closed, one[0].Left, one[0].Known, one[0].ID))
				return one[0]
			}
			take := func(a int, cost int64) (charged bool) {
				var d limiter.Decision
				checks := []limiter.Check{{Limit: parts[a], Key: key(a), Cost: cost, Peek: random.IntN(10) == 0}}
				require.NoError(t, store.Take(context.Background(), checks, &d))
				r := d.Results[0]
				answers = append(answers, fmt.Sprint(seed, r.Allowed, r.Remaining, r.RetryAfter, r.ResetAfter))
				switch {
				case !r.Charged:
				case random.IntN(10) == 0:
					require.NoError(t, store.Return(context.Background(), checks, &d))
				default:
					require.LessOrEqual(t, model.Pass(clock.Now(), cost), 0.0, "seed %d: %s", seed, now)
				}
				return r.Charged
			}
			switch b := (a + 1 + random.IntN(2)) % 3; random.IntN(9) {
			case 0, 1:
				take(a, 1+random.Int64N(min(burst, 6)))
			case 2: // all clients at once, everywhere
				for r := range parts {
					for random.IntN(2) == 0 && take(r, max(1, burst/4)) || take(r, 1) {
					}
				}
			case 3, 4, 5:
				ask := move(limiter.Move{Limit: parts[b], Key: key(b), Region: fmt.Sprint(a), Loan: limiter.Loan{Step: limiter.LoanAsk}})
				gave := move(limiter.Move{
					Limit: parts[a], Key: key(a), Region: fmt.Sprint(b), Upto: ask.Known + random.Int64N(burst), Keep: random.Int64N(3),
					Loan: limiter.Loan{Step: limiter.LoanGive, ID: ask.ID, Closed: ask.Closed},
				})
				messages = append(messages, message{a, b, ask.ID, ask.Asked, gave.Gave, gave.Closed})
			case 6, 7:
				if n := len(messages); n > 0 {
					m := messages[max(0, n-1-random.IntN(4+26*random.IntN(2)))]
					move(limiter.Move{
						Limit: parts[m.to], Key: key(m.to), Region: fmt.Sprint(m.from), Got: m.gave,
						Loan: limiter.Loan{Step: limiter.LoanTake, ID: m.id, Asked: m.asked, Closed: m.closed},
					})
				}
			default:
				if random.IntN(10) > 0 {
					break
				}
				p := random.IntN(3)
				before := holder[p]
				if holder[p] = p; random.IntN(2) == 0 {
					holder[p] = (p + 1) % 3
				}
				now += limiter.PartRests // what was lent has ended by then
				clock.Set(now)
				if holder[p] != before {
					divide(holder[p], p)
				}
			}
		}
	}
	return answers
}

// RunFineLoans lets one of many regions borrow so much of a bucket that is counted in fine units
// that its level has more than 14 digits, beyond which Lua shows no whole number.
func RunFineLoans(t *testing.T, open Open) {
	b := openPart(t, open, "r token_bucket limit=999983 window=24h burst=500 escrow", limiter.Portion{Num: 1, Den: 50, Have: 10})
	b.clock.Set(time.Hour)
	ask := b.move(limiter.Move{Loan: limiter.Loan{Step: limiter.LoanAsk}})
	require.EqualValues(t, 10, ask.Left)
	require.EqualValues(t, 210, b.move(limiter.Move{Got: 200, Loan: limiter.Loan{Step: limiter.LoanTake, ID: ask.ID, Asked: ask.Asked}}).Left)
	var d limiter.Decision
	take := func(cost int64) limiter.Result {
		require.NoError(t, b.store.Take(context.Background(), []limiter.Check{{Limit: b.limit, Key: b.key, Cost: cost}}, &d))
		return d.Results[0]
	}
	for spent := int64(1); spent <= 100; spent++ {
		r := take(1)
		require.True(t, r.Allowed, "token %d of 210", spent)
		require.EqualValues(t, 210-spent, r.Remaining)
	}
	b.clock.Set(time.Hour + limiter.LoanLasts + time.Millisecond)
	require.EqualValues(t, 9, take(1).Remaining, "what was borrowed and not spent has ended")
}

// RunLoansAfterClockSetBack lets a region lose its counters while its clock is set back: others
// lend to it again once what they gave before has ended.
func RunLoansAfterClockSetBack(t *testing.T, open Open) {
	b := openPart(t, open, "r token_bucket limit=60 window=60s burst=30 escrow", limiter.Portion{Num: 1, Den: 3, Have: 10})
	give := func(at time.Duration, id int64) int64 {
		b.clock.Set(at)
		return b.move(limiter.Move{Upto: 4, Loan: limiter.Loan{Step: limiter.LoanGive, ID: id}}).Gave
	}
	ahead := Epoch + time.Hour.Microseconds()
	require.EqualValues(t, 4, give(time.Minute, ahead))
	back := time.Minute + time.Second
	for ; back < time.Minute+limiter.LoanHeld; back += time.Second {
		require.Zero(t, give(back, Epoch), "what it gave may still be spent")
	}
	require.EqualValues(t, 4, give(back+time.Second, Epoch))
	require.Zero(t, give(back+2*time.Second, Epoch-1), "a late message")
}

// lentPart is a region's part of a bucket, in a store of its own.
type lentPart struct {
	t     *testing.T
	clock *Clock
	store limiter.TakeReturner
	limit *limiter.Limit
	key   []byte
}

// openPart opens an empty store for a part that holds portion.Have tokens.
func openPart(t *testing.T, open Open, line string, portion limiter.Portion) *lentPart {
	whole, err := ParseLimit(strings.Fields(line))
	require.NoError(t, err)
	b := &lentPart{t: t, clock: &Clock{}, limit: bucketPart(whole, portion.Have, portion), key: Key("k", whole)}
	b.clock.Set(0)
	b.store = open(t, b.clock.Now)
	require.NoError(t, b.store.(limiter.Registrar).Open(context.Background()))
	return b
}

// move exchanges tokens with another region.
func (b *lentPart) move(m limiter.Move) limiter.Move {
	m.Limit, m.Key, m.Region = b.limit, b.key, "b"
	list := []limiter.Move{m}
	b.store.(limiter.Mover).Move(context.Background(), list)
	require.NoError(b.t, list[0].Err)
	return list[0]
}
