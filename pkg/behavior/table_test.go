package behavior

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
)

var start = time.Date(2026, 1, 5, 9, 0, 0, 0, time.UTC)

// key spreads small numbers as a hash would.
func key(n int) uint64 {
	x := uint64(n+1) * 0x9e3779b97f4a7c15
	x ^= x >> 29
	x *= 0xbf58476d1ce4e5b9
	return x ^ x>>32
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func TestAMillionSubjectsTakeAQuarterOfAGibibyte(t *testing.T) {
	require.LessOrEqual(t, unsafe.Sizeof(subject{}), uintptr(256))
	before := heap()
	table := NewTable(million, Default(), start)
	for n := range million {
		table.Observe(key(n), start, &Event{Route: key(n), Status: 200})
	}
	got := heap() - before
	t.Logf("%d subjects: %.1f MiB, %d bytes each", million, float64(got)/(1<<20), got/million)
	require.LessOrEqual(t, got, uint64(256<<20)*million/1_000_000)
	require.Zero(t, table.Counts().Untracked)
	require.GreaterOrEqual(t, table.Counts().Subjects, million*97/100, "keys spread over the shards")
	require.Equal(t, uint64(million), uint64(table.Counts().Subjects)+table.Counts().Evicted)
}

// guess makes a subject fail until its tier refuses it.
func guess(t *testing.T, table *Table, key uint64, now time.Time) {
	t.Helper()
	for range 500 {
		if table.Observe(key, now, &Event{Route: 1, Fingerprint: 1, Status: 401}).Refused > 0 {
			return
		}
	}
	require.Fail(t, "500 failed logins are let through")
}

func TestAFloodOfSubjectsNeitherGrowsTheTableNorEvictsTheBlocked(t *testing.T) {
	const size, flood, blocked, rising = 4096, 10 * million, 300, 300
	table := NewTable(size, Default(), start)
	for n := range blocked {
		guess(t, table, key(n), start)
	}
	for n := range rising { // scores count more than being seen
		for range 50 {
			table.Observe(key(blocked+n), start, &Event{Status: 401})
		}
	}
	now := start
	before := heap()
	for n := range flood {
		if n%(flood/20) == 0 {
			now = now.Add(time.Second)
		}
		table.Observe(key(million+n), now, &Event{Route: uint64(n), Fingerprint: uint64(n), Status: 200})
	}
	require.LessOrEqual(t, heap(), before+1<<20)
	require.LessOrEqual(t, table.Counts().Subjects, size)
	for n := range blocked {
		require.NotZero(t, table.Status(key(n), now).Refused, "subject %d", n)
	}
	kept := 0
	for n := range rising {
		if table.Status(key(blocked+n), now).Score > 0 {
			kept++
		}
	}
	require.Equal(t, rising, kept)
}

func TestATableFullOfBlockedSubjectsTracksNoNewOnes(t *testing.T) {
	const size = 64
	table := NewTable(size, Default(), start)
	n := 0
	for ; table.Counts().Subjects < size; n++ {
		if found := table.shard(key(n)); found.n < found.max {
			guess(t, table, key(n), start)
		}
	}
	before := table.Counts().Untracked
	for i := range 100 {
		require.Equal(t, Status{}, table.Observe(key(n+i), start, &Event{Status: 401}))
	}
	require.Equal(t, before+100, table.Counts().Untracked)
	// When the refusals end, they give way again.
	later := start.Add(2 * time.Minute)
	table.Observe(key(n), later, &Event{Status: 200})
	require.Equal(t, before+100, table.Counts().Untracked)
}

// Places stay consistent through any sequence of additions and evictions.
func TestPlaces(t *testing.T) {
	table := NewTable(640, Default(), start)
	random := rand.New(rand.NewPCG(1, 2))
	for range 50_000 {
		// Keys of one shard whose places collide.
		table.Observe(uint64(random.IntN(40))<<32|uint64(random.IntN(4)), start, &Event{Status: 200})
	}
	s := &table.shards[0]
	used := 0
	for i := range s.slots {
		if s.slots[i] != 0 {
			used++
			require.Same(t, s.in(uint32(i)), s.find(s.in(uint32(i)).key))
		}
	}
	require.Equal(t, int(s.n), used)
	require.Equal(t, int(s.max), used)
}

func TestConcurrentUse(t *testing.T) {
	table := NewTable(512, Default(), start)
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(g)))
			for i := range 20_000 {
				now, k := start.Add(time.Duration(i)*time.Millisecond), key(random.IntN(2000))
				table.Observe(k, now, &Event{Route: random.Uint64(), Fingerprint: random.Uint64(), Status: 200 + 100*random.IntN(4), Refused: i%7 == 0})
				table.Status(k, now)
				switch i % 1000 {
				case 0:
					table.SetPolicy(Default())
				case 1:
					table.Reasons(k, now, nil)
					table.Counts()
				case 2:
					table.ObserveRoute(k, now, 401, Status{})
					table.Announce(k)
				}
			}
		})
	}
	wg.Wait()
	require.Equal(t, 512, table.Counts().Subjects)
}

func TestNothingIsAllocatedForARequest(t *testing.T) {
	table := NewTable(1024, Default(), start)
	now, n := start, 0
	for ; n < 2000; n++ { // full
		table.Observe(key(n), now, &Event{Status: 200})
	}
	require.Zero(t, testing.AllocsPerRun(10_000, func() {
		n++
		now = now.Add(time.Millisecond)
		table.Observe(key(n%3000), now, &Event{Route: uint64(n), Fingerprint: uint64(n), Status: 404})
		table.Status(key(n%3000), now)
	}))
}

// kept is what a benchmark has read.
var kept uint64

// On the request path: one Status and one Observe each.
func BenchmarkTable(b *testing.B) {
	table := NewTable(million, Default(), start)
	for n := range million {
		table.Observe(key(n), start, &Event{Status: 200})
	}
	random := rand.New(rand.NewPCG(1, 2))
	keys := make([]uint64, 1<<22) // so that nearly every subject is among them
	for i := range keys {
		keys[i] = key(random.IntN(million))
	}
	few := keys[:1000]
	zipf := rand.NewZipf(random, 1.1, 1, million-1)
	skewed := make([]uint64, 1<<22)
	for i := range skewed {
		skewed[i] = key(int(zipf.Uint64()))
	}
	run := func(name string, keys []uint64, do func(key uint64, i int, now time.Time)) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			now := start
			for i := range b.N {
				now = now.Add(100 * time.Microsecond)
				do(keys[i%len(keys)], i, now)
			}
		})
	}
	observe := func(key uint64, i int, now time.Time) {
		table.Observe(key, now, &Event{Route: uint64(i), Fingerprint: uint64(i), Status: 200})
	}
	look := func(key uint64, _ int, now time.Time) { table.Status(key, now) }
	run("Look/1000", few, look)
	run("Look/1000000", keys, look)
	run("Observe/1000", few, observe)
	run("Observe/1000000", keys, observe)
	run("Observe/1000000/zipf", skewed, observe)
	// What memory alone takes: the place of a subject, then a line of it, each read once the
	// one before is there.
	run("Memory/1000000", keys, func(key uint64, _ int, _ time.Time) {
		s := table.shard(key)
		n := s.slots[uint32(key+kept%2)&uint32(len(s.slots)-1)] & numbers
		kept += uint64(s.at(n % s.n).seen)
	})
	run("Observe/flood", keys, func(_ uint64, i int, now time.Time) { observe(key(million+i), i, now) })
	scored := keys[2000:3000]
	for _, k := range scored {
		for range 45 {
			table.Observe(k, start, &Event{Status: 401})
		}
	}
	run("Observe/scored", scored, observe)
}
