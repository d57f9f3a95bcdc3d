package clientlist

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func remote(network, list string) *Entry {
	e := entry(network, Block, 0)
	e.By, e.Reason = ByList(list), "list https://lists.example.com/"+list
	return e
}

// A remote list cannot block clients that an operator allows, however narrow its network.
func TestListsYieldToAllows(t *testing.T) {
	list := []*Entry{
		remote("203.0.113.7/32", "drop"), remote("203.0.113.64/27", "drop"), remote("203.0.113.70/32", "other"), remote("198.51.100.0/24", "drop"),
		entry("203.0.113.0/24", Allow, time.Hour), entry("203.0.113.64/26", Block, 0), entry("198.51.100.7/32", Allow, 0),
	}
	require.Equal(t, "drop", list[0].List())
	require.Empty(t, list[4].List())
	f := func(now time.Time, client, want string) {
		t.Helper()
		e := NewTable("v", list, now).Find(netip.MustParseAddr(client))
		require.Equal(t, want, e.Network.String(), client)
	}
	f(noon, "203.0.113.7", "203.0.113.0/24")
	f(noon, "203.0.113.65", "203.0.113.64/27")
	f(noon, "203.0.113.70", "203.0.113.70/32")
	f(noon, "198.51.100.7", "198.51.100.7/32")
	f(noon, "198.51.100.8", "198.51.100.0/24")
	require.Equal(t, 4, NewTable("v", list, noon).Blocks)
	// The allow has ended.
	f(noon.Add(time.Hour), "203.0.113.7", "203.0.113.7/32")
}

// A table of lists and manual decisions agrees with a search: the narrowest manual decision
// wins if it is an allow; otherwise the narrowest of all wins.
func TestListsAgreeWithASearch(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		network := rapid.Custom(func(r *rapid.T) netip.Prefix {
			a := netip.AddrFrom4([4]byte{10, 0, 0, byte(rapid.IntRange(0, 15).Draw(r, "d"))})
			return netip.PrefixFrom(a, rapid.IntRange(26, 32).Draw(r, "bits")).Masked()
		})
		byNetwork := map[netip.Prefix]*Entry{}
		for _, n := range rapid.SliceOf(network).Draw(r, "networks") {
			if e := entry(n.String(), Block, 0); rapid.Bool().Draw(r, "by hand") {
				e.Action = rapid.SampledFrom([]Action{Block, Allow}).Draw(r, "action")
				byNetwork[n] = e
			} else {
				byNetwork[n] = remote(n.String(), "drop")
			}
		}
		var list []*Entry
		client := network.Draw(r, "client").Addr()
		var hand, all *Entry
		for n, e := range byNetwork {
			list = append(list, e)
			if !n.Contains(client) {
				continue
			}
			if all == nil || n.Bits() > all.Network.Bits() {
				all = e
			}
			if e.List() == "" && (hand == nil || n.Bits() > hand.Network.Bits()) {
				hand = e
			}
		}
		want := all
		if hand != nil && hand.Action == Allow {
			want = hand
		}
		require.Equal(r, want, NewTable("", list, noon).Find(client))
	})
}
