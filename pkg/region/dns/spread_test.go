package dns

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	wire "github.com/miekg/dns"
	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/pkg/region"
)

// order returns the positions of n addresses in one answer.
func order(n int, seed, turn uint64) []int {
	list := make([]wire.RR, n)
	for i := range list {
		list[i] = record("a.", netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 20)
	}
	spread(list, seed, turn)
	var got []int
	for _, rr := range list {
		a := rr.(*wire.A).A.To4()
		got = append(got, int(a[2])<<8|int(a[3]))
	}
	return got
}

func TestSpread(t *testing.T) {
	for _, n := range []int{1, 2, 3, 5, 9} {
		all := make([]int, n)
		for i := range all {
			all[i] = i
		}
		for block := range uint64(20) {
			var leaders []int
			for turn := range uint64(n) {
				got := order(n, 7, block*uint64(n)+turn)
				require.Equal(t, got, order(n, 7, block*uint64(n)+turn), "the same turn gives the same order")
				leaders = append(leaders, got[0])
				slices.Sort(got)
				require.Equal(t, all, got, "no address is lost")
			}
			slices.Sort(leaders)
			require.Equal(t, all, leaders, "of %d answers each address leads one", n)
		}
	}
}

// A client that asks every nth time gets every address equally often, and so do the clients
// that fall back from a dead one.
func TestSpreadDoesNotLock(t *testing.T) {
	const n, answers = 3, 9000
	leads, seconds := map[int]int{}, map[[2]int]int{}
	for i := range answers {
		got := order(n, 7, uint64(i*n))
		leads[got[0]]++
		seconds[[2]int(got[:2])]++
	}
	for i := range n {
		require.InDelta(t, answers/n, leads[i], answers/30)
	}
	require.Len(t, seconds, n*(n-1))
	for pair, count := range seconds {
		require.InDelta(t, answers/n/(n-1), count, answers/30, pair)
	}
}

// Answers for the same client, of both families, lead with each address equally often.
func TestAnswersSpread(t *testing.T) {
	s, err := New(config(view(t, fleet+`
  - name: us-west
    pops: [{name: sfo1, addresses: [192.0.2.4, "2001:db8::4", "2001:db8::5", "2001:db8::6"]}]
records: [{name: status, type: A, values: [198.51.100.1, 198.51.100.2]}]`, healthy)))
	require.NoError(t, err)
	f := func(name string, qtype uint16, want int) {
		t.Helper()
		leads := map[string]int{}
		for range 60 {
			packet, _ := s.answer(ask(t, name, qtype), netip.MustParseAddr("203.0.113.7"), true)
			m := new(wire.Msg)
			require.NoError(t, m.Unpack(packet))
			require.Len(t, m.Answer, want)
			leads[wire.Field(m.Answer[0], 1)]++
			_, _ = s.answer(ask(t, "sfo1.pop.edge.example.com.", wire.TypeA), netip.MustParseAddr("203.0.113.7"), true)
		}
		require.Len(t, leads, want)
		for _, n := range leads {
			require.Equal(t, 60/want, n, leads)
		}
	}
	f("edge.example.com.", wire.TypeA, 2)
	f("us-east.region.edge.example.com.", wire.TypeA, 2)
	f("nyc1.pop.edge.example.com.", wire.TypeA, 2)
	f("nyc1.pop.edge.example.com.", wire.TypeAAAA, 1)
	f("sfo1.pop.edge.example.com.", wire.TypeAAAA, 3)
	f("status.edge.example.com.", wire.TypeA, 2)
}

// If no PoP is healthy, the nearest still come first, each with its addresses in any order.
func TestFailOpenSpreadsWithinPoPs(t *testing.T) {
	text := "zone: edge.example.com\nregions: ["
	for i := range 25 { // the client belongs to the last
		text += fmt.Sprintf(`{name: r%d, pops: [{name: p%d, clients: [10.0.%d.0/24], addresses: [10.1.%d.0, 10.1.%d.1, 10.1.%d.2]}]},`, i, i, i, i, i, i)
	}
	s, err := New(config(view(t, text+"]", region.PoPState{})))
	require.NoError(t, err)
	leads := map[byte]int{}
	for range 30 {
		packet, kind := s.answer(ask(t, "edge.example.com.", wire.TypeA), netip.MustParseAddr("10.0.24.1"), true)
		require.Equal(t, kindFailOpen, kind)
		m := new(wire.Msg)
		require.NoError(t, m.Unpack(packet))
		require.Len(t, m.Answer, 29, "as many as fit")
		for i, rr := range m.Answer {
			pop := byte(24)
			if i >= 3 {
				pop = byte(i/3 - 1)
			}
			require.Equal(t, pop, rr.(*wire.A).A.To4()[2])
		}
		leads[m.Answer[0].(*wire.A).A.To4()[3]]++
	}
	require.Equal(t, map[byte]int{0: 10, 1: 10, 2: 10}, leads)
}

func TestSpreadAllocates(t *testing.T) {
	list := make([]wire.RR, 9)
	for i := range list {
		list[i] = record("a.", netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 20)
	}
	turn := rand.Uint64()
	require.Zero(t, testing.AllocsPerRun(1000, func() { spread(list, 7, turn); turn++ }))
}
