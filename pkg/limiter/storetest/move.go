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

// move runs a line about rights. The number is the total that a region is to have given, or
// has received, in the window that begins at the last time. The answer is what it gave,
// what it received, and what is left; or burned.
//
//	1s  give eu r*30 0s  -> 30 0 70
//	1s  got eu r*30 0s   -> 30 30 100
//	1s  burn eu r*1 0s   -> burned
func (r *runner) move(op string, words, want []string) {
	r.t.Helper()
	store, ok := r.store.(limiter.Mover)
	if !ok || len(words) != 3 {
		r.fail("needs a store that moves rights, a region, a count and a start")
	}
	c := r.checks(words[1:2], false)[0]
	m := limiter.Move{Limit: c.Limit, Key: c.Key, Region: words[0], Start: Epoch + r.duration(words[2]).Microseconds()}
	switch op {
	case "give":
		m.Upto = c.Cost
	case "got":
		m.Got = c.Cost
	case "burn":
		m.Burn = true
	}
	one := []limiter.Move{m}
	store.Move(context.Background(), one)
	got := fmt.Sprint(one[0].Gave, one[0].Known, one[0].Left)
	if one[0].Burned {
		got = "burned"
	}
	if one[0].Err != nil {
		r.fail("%v", one[0].Err)
	}
	if w := strings.Join(want, " "); got != w {
		r.fail("got %s, want %s", got, w)
	}
}

// RunMoves lets three regions share a limit in escrow: each has a part under its own key,
// and they move rights by messages that are lost, duplicated and late. It checks that no
// window passes more than the limit, and returns all answers, which are the same for every
// store.
func RunMoves(t *testing.T, sequences int, open Open) (answers []string) {
	for seed := range sequences {
		random := rand.New(rand.NewPCG(uint64(seed), 61))
		var parts [3]*limiter.Limit
		whole := int64(0)
		for i := range parts {
			size := 1 + random.Int64N(40)
			l, err := ParseLimit(strings.Fields(fmt.Sprintf("r fixed_window limit=%d window=10s global", size)))
			require.NoError(t, err)
			parts[i], whole = l, whole+size
		}
		var clock Clock
		store := open(t, clock.Now)
		passed := map[int64]int64{}
		type message struct {
			from, to int
			start    int64
			gave     int64
		}
		var messages []message
		now := time.Duration(0)
		for range 300 {
			now += time.Duration(random.Int64N(int64(200 * time.Millisecond))).Round(time.Millisecond)
			clock.Set(now)
			start := clock.Now() - clock.Now()%parts[0].Window.Microseconds()
			a := random.IntN(3)
			key := func(region int) []byte { return Key(string(rune('a'+region)), parts[region]) }
			move := func(m limiter.Move) limiter.Move {
				one := []limiter.Move{m}
				store.(limiter.Mover).Move(context.Background(), one)
				require.NoError(t, one[0].Err)
				answers = append(answers, fmt.Sprint(one[0].Gave, one[0].Left, one[0].Known, one[0].Burned))
				return one[0]
			}
			switch b := (a + 1 + random.IntN(2)) % 3; random.IntN(4) {
			case 0, 1:
				var d limiter.Decision
				cost := 1 + random.Int64N(4)
				require.NoError(t, store.Take(context.Background(), []limiter.Check{{Limit: parts[a], Key: key(a), Cost: cost}}, &d))
				if d.Allowed {
					passed[start] += cost
				}
				require.LessOrEqual(t, passed[start], whole, "seed %d", seed)
				r := d.Results[0]
				answers = append(answers, fmt.Sprint(r.Allowed, r.Remaining, r.RetryAfter, r.ResetAfter))
			case 2:
				at := start + parts[0].Window.Microseconds()*(random.Int64N(3)-1)
				m := move(limiter.Move{Limit: parts[a], Key: key(a), Region: fmt.Sprint(b), Start: at, Upto: random.Int64N(60), Keep: random.Int64N(5)})
				messages = append(messages, message{a, b, at, m.Gave})
			default:
				if len(messages) > 0 {
					m := messages[random.IntN(len(messages))]
					move(limiter.Move{Limit: parts[m.to], Key: key(m.to), Region: fmt.Sprint(m.from), Start: m.start, Got: m.gave})
				}
			}
		}
	}
	return answers
}
