package decide

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/policy"
	"github.com/weir-edge/weir/pkg/behavior"
)

// BenchmarkBehavior measures all that judging adds to a request: standing, fingerprint, and learning.
func BenchmarkBehavior(b *testing.B) {
	p, err := policy.Parse([]byte("{}"))
	require.NoError(b, err)
	for _, clients := range []int{1000, 1_000_000} {
		b.Run(fmt.Sprint(clients), func(b *testing.B) {
			d, _ := decider(b, "rules: []", calm)
			c := NewBehavior(func() *policy.Policy { return p }, clients, time.Now())
			c.AboveMildest, c.Rose = func(*Request) {}, func(*Request, *Rise) {}
			d.Behavior = c
			addresses := make([]netip.Addr, clients)
			for i := range addresses {
				addresses[i] = netip.AddrFrom4([4]byte{11, byte(i >> 16), byte(i >> 8), byte(i)})
			}
			often := rand.NewZipf(rand.New(rand.NewPCG(1, 1)), 1.1, 1, uint64(clients-1))
			order := make([]uint32, 1<<20)
			for i := range order {
				order[i] = uint32(often.Uint64())
			}
			r := &Request{Method: get, Host: host, Fields: fields{"User-Agent": {[]byte("curl")}, "Accept": {[]byte("*/*")}}}
			require.NoError(b, d.ReadPath(r, []byte("/api/items")))
			now := time.Now()
			run := func(i int) {
				now = now.Add(50 * time.Microsecond)
				r.BehaviorResult, r.Began, r.Client = BehaviorResult{}, now, addresses[order[i%len(order)]]
				c.Classify(r)
				c.enforce(r)
				c.Learn(r, Pass, http.StatusOK, now)
			}
			for i := range order {
				run(i)
			}
			i := 0
			for b.Loop() {
				run(i)
				i++
			}
		})
	}
}

// Most routes never deny, and need no place: whatever paths clients make up, those at which
// somebody guesses keep theirs.
func TestRoutesThatNeverDenyTakeNoPlace(t *testing.T) {
	d, _ := decider(t, "rules: []", calm)
	d.Behavior = behaviorFor(t, "signals: {presence: {weight: 0}}")
	d.Behavior.AboveMildest, d.Behavior.Rose = func(*Request) {}, func(*Request, *Rise) {}
	ask := func(path string, status int) {
		r := &Request{Began: time.Now()}
		d.ask(t, r, "198.51.100.7", []byte(path), nil)
		d.Behavior.Learn(r, d.Decide(r), status, time.Now())
		r.Permit.Done()
	}
	for i := range 1000 {
		ask(fmt.Sprintf("/%d", i), []int{http.StatusOK, http.StatusMovedPermanently}[i%2])
	}
	require.Zero(t, d.Behavior.Routes.Counts().Subjects)
	ask("/login", http.StatusForbidden)
	ask("/login", http.StatusOK)
	require.Equal(t, 1, d.Behavior.Routes.Counts().Subjects)
}

// A client that other nodes' counts moved to a severer tier is told of once, when it asks again
// and its name is known.
func TestWhatOtherNodesFoundIsToldOnce(t *testing.T) {
	p, err := policy.Parse([]byte("{mode: enforce}"))
	require.NoError(t, err)
	nodes := make([]*Behavior, 2)
	d, _ := decider(t, "rules: []", calm)
	var rises []Rise
	ask := func(c *Behavior, status int) {
		d.Behavior = c
		r := &Request{Began: time.Now()}
		d.ask(t, r, "198.51.100.7", []byte("/login"), nil)
		c.Learn(r, d.Decide(r), status, time.Now())
		r.Permit.Done()
	}
	for i := range nodes {
		c := NewBehavior(func() *policy.Policy { return p }, 1000, time.Now())
		c.SetNames(NewSecret(make([]byte, 32)))
		c.AboveMildest, c.Rose = func(*Request) {}, func(_ *Request, rise *Rise) { rises = append(rises, *rise) }
		c.Clients.Divide(2)
		nodes[i] = c
		for range 30 {
			ask(c, http.StatusUnauthorized)
		}
	}
	require.Empty(t, rises, "30 failures are below 40")
	var others behavior.Region
	require.True(t, others.Add(nodes[1].Clients.AppendAccounts(nil, time.Now(), 10)))
	found := nodes[0].Clients.Merge(time.Now(), &others)
	require.Len(t, found, 1)
	require.NotEmpty(t, found[0].Reasons)
	for range 3 {
		ask(nodes[0], http.StatusOK)
	}
	require.Len(t, rises, 1)
	require.Equal(t, KindClient, rises[0].Kind)
	require.True(t, rises[0].Shared)
	require.Equal(t, behavior.Failures, rises[0].Reasons[0].Signal)
	require.EqualValues(t, 60, rises[0].Reasons[0].Value)
}

// Both tables together, when they are full.
func TestAMillionClientsAndTheirRoutesTakeAQuarterOfAGibibyte(t *testing.T) {
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	const million = 1_000_000
	now, before := time.Now(), heap()
	c := NewBehavior(func() *policy.Policy { return nil }, million, now)
	place := func(n int) uint64 { return uint64(n) * 0x9e3779b97f4a7c15 }
	for n := range million {
		c.Clients.Observe(place(n), now, &behavior.Event{Status: http.StatusOK})
		c.Routes.ObserveRoute(place(n), now, http.StatusForbidden, behavior.Status{})
	}
	got := heap() - before
	t.Logf("%d clients and %d routes: %.1f MiB", c.Clients.Counts().Subjects, c.Routes.Counts().Subjects, float64(got)/(1<<20))
	require.LessOrEqual(t, got, uint64(256<<20))
	runtime.KeepAlive(c)
}
