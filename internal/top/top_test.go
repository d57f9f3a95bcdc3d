package top

import (
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/pkg/limiter/rules"
)

var (
	noon   = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	client = netip.MustParseAddr("203.0.113.7")
	seed   = maphash.MakeSeed()
)

func (s *Sketch) count(at time.Time, name string) {
	s.Add(at, maphash.String(seed, name), client, []byte(name), nil)
}

// state is what a reader sees, as NAME AT-LEAST to AT-MOST.
func (s *Sketch) state(now time.Time) (list []string) {
	for _, k := range s.Read(now).Keys {
		list = append(list, fmt.Sprintf("%s %d to %d", k.Name, k.AtLeast, k.AtMost))
	}
	return list
}

// Counts are exact for few keys, last for the window and the one after it, and are forgotten then.
func TestWindows(t *testing.T) {
	s := &Sketch{}
	for range 3 {
		s.count(noon, "a")
	}
	s.count(noon.Add(59*time.Second), "b")
	s.count(noon.Add(Window), "b")
	s.count(noon.Add(Window), "b")
	require.Equal(t, []string{"a 3 to 3", "b 3 to 3"}, s.state(noon.Add(Window)))
	c := s.Read(noon.Add(2*Window - 1))
	require.Equal(t, noon, c.Since)
	require.EqualValues(t, 6, c.Total)
	require.Equal(t, []string{"b 2 to 2"}, s.state(noon.Add(2*Window)))
	require.Empty(t, s.state(noon.Add(3*Window)))
	// A request that waited until its window was over does not end the current one.
	s.count(noon.Add(4*Window), "c")
	s.count(noon.Add(2*Window), "late")
	require.Equal(t, []string{"c 1 to 1"}, s.state(noon.Add(4*Window)))
	// A clock that was set does.
	s.count(noon.Add(-time.Hour), "c")
	require.Equal(t, []string{"c 1 to 1"}, s.state(noon.Add(-time.Hour)))
}

// Among a hundred thousand hostile keys, those with a large share are found, in fixed memory, and the
// bounds hold for each that is listed.
func TestManyKeys(t *testing.T) {
	require.LessOrEqual(t, unsafe.Sizeof(Sketch{}), uintptr(8<<10))
	const keys, n = 100_000, 400_000
	random := rand.New(rand.NewPCG(1, 2))
	s, truth := &Sketch{}, map[string]uint64{}
	for i := range n {
		name := fmt.Sprintf("hostile-%d", random.IntN(keys))
		switch {
		case i%10 == 0:
			name = "tenth"
		case i%16 == 1:
			name = "sixteenth"
		}
		truth[name]++
		s.count(noon.Add(Window*time.Duration(i/(n/2))), name) // half of them in each window
	}
	c := s.Read(noon.Add(Window))
	require.EqualValues(t, n, c.Total)
	require.Equal(t, "tenth", c.Keys[0].Name)
	require.Equal(t, "sixteenth", c.Keys[1].Name)
	for _, k := range c.Keys {
		require.LessOrEqual(t, k.AtLeast, truth[k.Name], k.Name)
		require.GreaterOrEqual(t, k.AtMost, truth[k.Name], k.Name)
		require.LessOrEqual(t, k.AtMost-k.AtLeast, uint64(n/Keys), k.Name)
	}
	// Without these two, nobody stands out.
	flood := &Sketch{}
	for i := range n {
		flood.count(noon, fmt.Sprintf("hostile-%d", i%keys))
	}
	require.Empty(t, flood.Read(noon).Keys)
}

// The bounds hold for any sequence, however the shares are distributed, over both windows.
func TestBounds(t *testing.T) {
	for world := range uint64(200) {
		random := rand.New(rand.NewPCG(world, 1))
		s, truth, keys, n := &Sketch{}, map[string]uint64{}, 1+random.IntN(200), 1+random.IntN(3000)
		var perWindow [2]uint64
		for range n {
			name, window := fmt.Sprint(min(random.IntN(keys), random.IntN(keys), random.IntN(keys))), random.IntN(2)
			if world%2 == 0 {
				window = 1
			}
			truth[name]++
			perWindow[window]++
			s.count(noon.Add(Window*time.Duration(window)), name)
		}
		c, listed := s.Read(noon.Add(Window)), map[string]bool{}
		for _, k := range c.Keys {
			listed[k.Name] = true
			require.LessOrEqual(t, k.AtLeast, truth[k.Name], "world %d", world)
			require.GreaterOrEqual(t, k.AtMost, truth[k.Name], "world %d", world)
			require.LessOrEqual(t, k.AtMost-k.AtLeast, perWindow[0]/Keys+perWindow[1]/Keys, "world %d", world)
		}
		for name, count := range truth {
			if count > 2*uint64(n)/Keys+2 { // at least half of it is certain
				require.True(t, listed[name], "world %d: %s, %d of %d", world, name, count, n)
			}
		}
		require.True(t, slices.IsSortedFunc(c.Keys, func(a, b Key) int { return int(b.AtLeast) - int(a.AtLeast) }))
	}
}

func TestAddingAllocatesNothing(t *testing.T) {
	s, name, i := &Sketch{}, make([]byte, 100), uint64(0)
	require.Zero(t, testing.AllocsPerRun(10_000, func() {
		i++
		binary.LittleEndian.PutUint64(name, i)
		s.Add(noon, maphash.Bytes(seed, name), client, name, name)
	}))
}

// Writers do not wait for each other or for readers: each request is counted or missed.
func TestTogether(t *testing.T) {
	const each = 5000
	s, all := &Sketch{}, sync.WaitGroup{}
	s.count(noon, "a") // begins the window
	for w := range 4 {
		all.Go(func() {
			for i := range each {
				s.count(noon, fmt.Sprint(w, i%50))
			}
		})
	}
	for range 100 {
		for _, k := range s.Read(noon).Keys {
			require.LessOrEqual(t, k.AtLeast, k.AtMost)
		}
	}
	all.Wait()
	c := s.Read(noon)
	require.EqualValues(t, 4*each+1, c.Total+c.Missed)
}

// Names are the values that operators write, and contain nothing that a client made up.
func TestValues(t *testing.T) {
	f := func(key string, parts []string, want ...string) {
		t.Helper()
		list, err := rules.ParseKey(parts)
		if len(parts) > 0 {
			require.NoError(t, err)
		}
		s := &Sketch{}
		subject, rest := Split([]byte(key), len(list))
		s.Add(noon, 1, client, subject, rest)
		require.Equal(t, append([]string{}, want...), s.Read(noon).Keys[0].Values(list))
	}
	const hash = "~0123456789abcdef0123456789abcdef"
	f("weir:{203.0.113.7}:per-client:sw", []string{"client_ip"}, "203.0.113.7")
	f("weir:{2001:db8::/64}:per-client:sw.x.try", []string{"client_ip"}, "2001:db8::/64")
	f("weir:{"+hash+"}:keyed:tb:%2Fa%3Cb%3E", []string{"header:X-Api-Key", "path"}, "header:X-Api-Key="+hash, "path=%2Fa%3Cb%3E")
	f("weir:{GET}:keyed:tb:2001%3Adb8%3A%3A%2F64:~missing", []string{"method", "client_ip", "host"}, "method=GET", "2001:db8::/64", "host=~missing")
	f("weir:{*}:all:fw", nil)
	f("strange", []string{"client_ip", "path"}, "", "path=strange")
	long := "weir:{" + hash + "}:r:tb:" + hash + ":" + hash
	f(long, []string{"header:A", "header:B", "header:C"}, hash+":"+hash+":"+hash[:18]+"…")
}

func TestClients(t *testing.T) {
	s := &Sketch{}
	for i, a := range []string{"203.0.113.7", "2001:db8::7", ""} {
		from, _ := netip.ParseAddr(a)
		s.Add(noon, uint64(i), client, nil, nil)
		s.Add(noon, uint64(i), from, nil, nil)
		require.Contains(t, s.Read(noon).Keys, Key{Hash: uint64(i), Client: from, AtLeast: 2, AtMost: 2}, "the latest")
	}
}

func BenchmarkAdd(b *testing.B) {
	s, i := &Sketch{}, uint64(0)
	b.ReportAllocs()
	for b.Loop() {
		i++
		s.Add(noon, i%1000*0x9e3779b97f4a7c15, client, []byte("203.0.113.7"), nil)
	}
}
