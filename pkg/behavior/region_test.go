package behavior

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// region is several nodes that tell each other, in virtual time, what they counted.
type region struct {
	t      *testing.T
	nodes  []*Table
	now    time.Time
	silent bool // nobody tells anything
	most   int
	rose   int
}

func newRegion(t *testing.T, nodes int) *region {
	r := &region{t: t, now: start, most: 100}
	for range nodes {
		table := NewTable(4096, Default(), start)
		table.Divide(nodes)
		r.nodes = append(r.nodes, table)
	}
	return r
}

// second passes one: each node tells, and half of it later learns what the others told.
func (r *region) second() {
	r.t.Helper()
	told := make([][]byte, len(r.nodes))
	for i, n := range r.nodes {
		n.Divide(len(r.nodes))
		told[i] = n.AppendAccounts(nil, r.now, r.most)
		require.LessOrEqual(r.t, len(told[i]), r.most*AccountSize)
	}
	r.now = r.now.Add(time.Second / 2)
	for i, n := range r.nodes {
		var others Region
		for k := range r.nodes {
			if k != i && !r.silent {
				require.True(r.t, others.Add(told[k]))
			}
		}
		r.rose += len(n.Merge(r.now, &others))
	}
	r.now = r.now.Add(time.Second / 2)
}

// Behavior that is below each threshold on three nodes, and above in all.
var spread = map[string]func(i int) Event{
	"failures": func(i int) Event { return Event{Route: key(1), Fingerprint: key(i), Status: 401} },
	"scan": func(i int) Event {
		return Event{Route: key(i), Fingerprint: key(i), Status: []int{404, 200, 200, 200, 200}[i/3%5]}
	},
	"repetition": func(int) Event { return Event{Route: key(1), Fingerprint: key(1), Status: 200} },
}

func TestASpreadClientIsSeenAsOne(t *testing.T) {
	for name, event := range spread {
		t.Run(name, func(t *testing.T) {
			rate := 2
			switch name {
			case "scan":
				rate = 6
			case "repetition":
				rate = 42
			}
			for _, silent := range []bool{true, false} {
				r := newRegion(t, 3)
				r.silent = silent
				worst := 0
				for i := range 55 * rate {
					if i%rate == 0 {
						r.second()
					}
					e := event(i)
					r.nodes[i%3].Observe(key(0), r.now, &e)
					for _, n := range r.nodes {
						worst = max(worst, n.Status(key(0), r.now).Tier)
					}
				}
				if silent {
					require.Zero(t, worst, "no node sees enough alone")
				} else {
					require.NotZero(t, worst)
					require.NotZero(t, r.rose)
					announced := 0
					for _, n := range r.nodes {
						st := n.Status(key(0), r.now)
						require.NotZero(t, st.Score, "all nodes know")
						if st.Rose {
							announced++
							require.True(t, n.Announce(key(0)))
						}
						require.False(t, n.Announce(key(0)), "once")
						require.False(t, n.Status(key(0), r.now).Rose)
					}
					require.NotZero(t, announced)
				}
			}
		})
	}
}

// What nodes tell each other adds nothing by itself: a client that stops loses its score as on
// one node, and one that was refused is free when its refusal ends.
func TestNoLoopBetweenNodes(t *testing.T) {
	r := newRegion(t, 3)
	for s := range 30 {
		r.second()
		for i := range 9 {
			r.nodes[i%3].Observe(key(0), r.now, &Event{Route: key(s), Fingerprint: key(i), Status: 403})
		}
	}
	for _, n := range r.nodes {
		require.NotZero(t, n.Status(key(0), r.now).Refused, "each refuses it")
	}
	stopped := r.now
	var last [3]float64
	for s := range 3 * 120 {
		r.second()
		for i, n := range r.nodes {
			st := n.Status(key(0), r.now)
			if s > 5 {
				require.LessOrEqual(t, st.Score, last[i], "a score rose without a request, %d s after the last", s)
			}
			last[i] = st.Score
		}
	}
	require.Equal(t, 3*Default().HalfLife, r.now.Sub(stopped))
	for _, n := range r.nodes {
		require.Zero(t, n.Status(key(0), r.now).Tier, "it is normal within three half-lives")
	}
	// And it stays so while it behaves.
	rose := r.rose
	for i := range 300 {
		r.second()
		st := r.nodes[i%3].Observe(key(0), r.now, &Event{Route: key(i % 5), Fingerprint: key(i % 5), Status: 200})
		require.Zero(t, st.Tier)
	}
	require.Equal(t, rose, r.rose)
}

// Of what stays below the thresholds in all, nothing becomes of it by being told.
func TestASpreadClientBelowTheThresholdsIsLeftAlone(t *testing.T) {
	r := newRegion(t, 5)
	random := rand.New(rand.NewPCG(1, 1))
	for range 900 {
		r.second()
		for range 20 { // 1,200 per minute with many fingerprints, 12 misses in 15 minutes
			e := Event{Route: key(random.IntN(200)), Fingerprint: key(random.IntN(500)), Status: 200}
			if random.IntN(1500) == 0 {
				e.Status = 404
			}
			r.nodes[random.IntN(5)].Observe(key(0), r.now, &e)
		}
	}
	require.Zero(t, r.rose)
	for _, n := range r.nodes {
		require.Zero(t, n.Status(key(0), r.now).Score)
	}
}

// However many clients ask, a node tells of so many, and those that are nearest come first.
func TestANodeTellsOfTheNearest(t *testing.T) {
	r := newRegion(t, 3)
	n := r.nodes[0]
	for i := range 20_000 {
		n.Observe(key(i), r.now, &Event{Route: 1, Fingerprint: 1, Status: 401})
	}
	require.Empty(t, n.AppendAccounts(nil, r.now, 100), "one failure is not near 40")
	for i := range 20_000 {
		for range 7 {
			n.Observe(key(i), r.now, &Event{Route: 1, Fingerprint: 1, Status: 401})
		}
	}
	for range 12 {
		n.Observe(key(3), r.now, &Event{Route: 1, Fingerprint: 1, Status: 401})
	}
	told := n.AppendAccounts(nil, r.now, 100)
	require.Len(t, told, 100*AccountSize)
	var first subject
	require.True(t, first.readAccount(told))
	require.Equal(t, key(3), first.key)
	for i := range n.shards {
		require.LessOrEqual(t, len(n.shards[i].listed), maxListed)
	}
	// Nobody hears of those that have stopped.
	require.Empty(t, n.AppendAccounts(nil, r.now.Add(time.Minute), 100))
	for i := range n.shards {
		require.Empty(t, n.shards[i].listed)
	}
}

func TestAccounts(t *testing.T) {
	random := rand.New(rand.NewPCG(2, 2))
	table := NewTable(64, Default(), start)
	table.Divide(2)
	for i := range 500 {
		table.Observe(key(0), start, &Event{Route: random.Uint64() % 90, Fingerprint: random.Uint64() % 3, Status: 200 + 204*(i%2), LacksHeaders: i%3 == 0})
	}
	told := table.AppendAccounts(nil, start, 9)
	require.Len(t, told, AccountSize)
	var got subject
	require.True(t, got.readAccount(told))
	want := table.shard(key(0)).find(key(0)).current(0)
	require.Equal(t, want.appendAccount(nil), got.appendAccount(nil))
	require.Equal(t, want.minuteWalk, got.minuteWalk)
	require.Equal(t, want.longWalk, got.longWalk)

	// Two nodes with the same counts: routes are the same, counts double.
	sum := got
	sum.add(&got)
	require.Equal(t, 2*got.total, sum.total)
	require.Equal(t, got.minuteWalk.seen, sum.minuteWalk.seen)
	require.Equal(t, 2*got.printCounts[0], sum.printCounts[0])
	for range 20 {
		sum.add(&sum)
	}
	require.Greater(t, sum.total, uint16(math.MaxUint16/2))
	require.InDelta(t, float64(got.gone)/float64(got.total), float64(sum.gone)/float64(sum.total), 0.01, "shares stay true")
	require.InDelta(t, float64(got.minuteWalk.gone)/float64(got.minuteWalk.total), float64(sum.minuteWalk.gone)/float64(sum.minuteWalk.total), 0.01)

	var others Region
	require.False(t, others.Add(told[1:]), "cut off")
	bad := append([]byte(nil), told...)
	copy(bad[12:], "\xff\xff\xff\xff") // baseline: not a number
	require.False(t, others.Add(bad))
	require.Empty(t, others.others)
}

// Whatever a node says, judging by it does not fail, and no score exceeds the most.
func FuzzMerge(f *testing.F) {
	f.Add(make([]byte, AccountSize), uint8(1))
	f.Fuzz(func(t *testing.T, said []byte, n uint8) {
		table := NewTable(64, Default(), start)
		for range n {
			table.Observe(0, start, &Event{Status: 404})
		}
		var others Region
		said = said[:len(said)/AccountSize*AccountSize]
		others.Add(said)
		others.Add(said)
		table.Merge(start, &others)
		for at := 0; at < len(said); at += AccountSize {
			var s subject
			s.readAccount(said[at:])
			require.LessOrEqual(t, table.Status(s.key, start).Score, MaxScore+0.001)
		}
	})
}
