package clientlist

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-edge/weir/pkg/region/consul"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func entry(network string, action Action, lasts time.Duration) *Entry {
	d := Decision{Action: action, By: "ana", Reason: "scans", Since: noon}
	if lasts > 0 {
		d.Until = noon.Add(lasts)
	}
	return &Entry{netip.MustParsePrefix(network), d}
}

func TestTheNarrowestNetworkDecides(t *testing.T) {
	list := []*Entry{
		entry("203.0.113.0/24", Block, 0), entry("203.0.113.64/26", Allow, 0), entry("203.0.113.65/32", Block, time.Hour),
		entry("2001:db8::/32", Block, 0), entry("2001:db8:7::/48", Allow, time.Hour),
	}
	table := NewTable("v", list, noon)
	require.Equal(t, noon.Add(time.Hour), table.Next)
	f := func(client, want string) {
		t.Helper()
		got := ""
		if e := table.Find(netip.MustParseAddr(client)); e != nil {
			got = e.Network.String()
		}
		require.Equal(t, want, got, client)
	}
	f("203.0.113.1", "203.0.113.0/24")
	f("203.0.113.64", "203.0.113.64/26")
	f("203.0.113.65", "203.0.113.65/32")
	f("::ffff:203.0.113.65", "203.0.113.65/32")
	f("203.0.114.1", "")
	f("2001:db8:1::1", "2001:db8::/32")
	f("2001:db8:7::1", "2001:db8:7::/48")
	f("::1", "")
	require.Nil(t, table.Find(netip.Addr{}))
	require.Nil(t, (*Table)(nil).Find(netip.MustParseAddr("203.0.113.1")))

	// After an entry expires, the wider network decides.
	table = NewTable("v", list, noon.Add(time.Hour))
	require.True(t, table.Next.IsZero())
	f("203.0.113.65", "203.0.113.64/26")
	f("2001:db8:7::1", "2001:db8::/32")
	require.Equal(t, 2, table.Blocks)
	require.Equal(t, 1, table.Allows)
}

func TestParse(t *testing.T) {
	good := func(text, want string) {
		t.Helper()
		p, err := Parse(text)
		require.NoError(t, err)
		require.Equal(t, want, p.String())
	}
	good("203.0.113.7", "203.0.113.7/32")
	good("203.0.113.0/24", "203.0.113.0/24")
	good("::ffff:203.0.113.7", "203.0.113.7/32")
	good("::ffff:203.0.113.0/120", "203.0.113.0/24")
	good("2001:DB8::/32", "2001:db8::/32")
	good("0.0.0.0/0", "0.0.0.0/0")
	bad := func(text, want string) {
		t.Helper()
		_, err := Parse(text)
		require.ErrorContains(t, err, want)
	}
	bad("", "must be an address or a network, such as 203.0.113.7 or 2001:db8::/32")
	bad("203.0.113.7/24", "203.0.113.7/24 has bits after its prefix; write 203.0.113.0/24 for the network, or 203.0.113.7 for the one address")
	bad("::ffff:203.0.113.7/120", "write 203.0.113.0/24 for the network")
	bad("::ffff:0:0/90", "covers IPv4 and IPv6")
	bad("fe80::1%eth0", "has a zone")
	bad("203.0.113.0/33", "must be an address or a network")
	bad("example.com", "must be an address or a network")
	for text, wide := range map[string]bool{"0.0.0.0/0": true, "10.0.0.0/7": true, "10.0.0.0/8": false, "::/0": true, "2001::/15": true, "2001::/16": false} {
		p := netip.MustParsePrefix(text).Masked()
		require.Equal(t, wide, Wide(p), text)
	}
}

// A table agrees with a linear search.
func TestFindAgreesWithASearch(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		network := rapid.Custom(func(r *rapid.T) netip.Prefix {
			if rapid.Bool().Draw(r, "4") { // few bits, to nest networks
				a := netip.AddrFrom4([4]byte{10, byte(rapid.IntRange(0, 3).Draw(r, "b")), 0, byte(rapid.IntRange(0, 3).Draw(r, "d"))})
				return netip.PrefixFrom(a, rapid.IntRange(0, 32).Draw(r, "bits")).Masked()
			}
			a := netip.AddrFrom16([16]byte{0x20, 1, byte(rapid.IntRange(0, 3).Draw(r, "c")), 15: byte(rapid.IntRange(0, 3).Draw(r, "p"))})
			return netip.PrefixFrom(a, rapid.IntRange(0, 128).Draw(r, "bits")).Masked()
		})
		byNetwork := map[netip.Prefix]*Entry{}
		for _, n := range rapid.SliceOf(network).Draw(r, "networks") {
			byNetwork[n] = entry(n.String(), rapid.SampledFrom([]Action{Block, Allow}).Draw(r, "action"), rapid.SampledFrom([]time.Duration{0, time.Minute, time.Hour}).Draw(r, "lasts"))
		}
		var list []*Entry
		for _, e := range byNetwork {
			list = append(list, e)
		}
		now := noon.Add(rapid.SampledFrom([]time.Duration{0, time.Minute, 2 * time.Hour}).Draw(r, "now"))
		client := network.Draw(r, "client").Addr()
		var want *Entry
		for _, e := range list {
			if !e.Expired(now) && e.Network.Contains(client) && (want == nil || e.Network.Bits() > want.Network.Bits()) {
				want = e
			}
		}
		require.Equal(r, want, NewTable("", list, now).Find(client))
	})
}

// many returns n different networks, mostly single addresses.
func many(n int) []*Entry {
	random := rand.New(rand.NewPCG(1, 2))
	seen := map[netip.Prefix]bool{}
	for len(seen) < n {
		var p netip.Prefix
		if random.IntN(4) == 0 {
			p = netip.PrefixFrom(netip.AddrFrom16([16]byte{0x20, 1, byte(random.IntN(256)), byte(random.IntN(256)), byte(random.IntN(256)), byte(random.IntN(256))}), 48).Masked()
		} else {
			a := netip.AddrFrom4([4]byte{byte(random.IntN(224)), byte(random.IntN(256)), byte(random.IntN(256)), byte(random.IntN(256))})
			p = netip.PrefixFrom(a, []int{32, 32, 32, 24, 20}[random.IntN(5)]).Masked()
		}
		seen[p] = true
	}
	list := make([]*Entry, 0, n)
	for p := range seen {
		list = append(list, &Entry{p, Decision{Action: Block, By: "ana", Reason: "drop list", Since: noon}})
	}
	return list
}

func TestFindDoesNotAllocate(t *testing.T) {
	table := NewTable("", many(10_000), noon)
	clients := []netip.Addr{netip.MustParseAddr("203.0.113.7"), netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("::ffff:10.0.0.1")}
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		for _, c := range clients {
			table.Find(c)
		}
	}))
}

// A Consul value holds 512 kB. With Max networks, no chunk exceeds that: neither with uniform
// imports nor with the longest texts.
func TestChunksFitIntoConsul(t *testing.T) {
	list := many(Max)
	f := func(what string, most int) {
		t.Helper()
		perChunk := map[int][]*Entry{}
		for _, e := range list {
			perChunk[chunkOf(e.Network)] = append(perChunk[chunkOf(e.Network)], e)
		}
		require.Len(t, perChunk, chunks)
		total, longest := 0, 0
		for number, entries := range perChunk {
			c, stored, err := newChunk(entries)
			require.NoError(t, err)
			total, longest = total+len(stored), max(longest, len(stored))
			if number == 0 {
				document, err := encode(entries)
				require.NoError(t, err)
				again, err := parseChunk(0, document)
				require.NoError(t, err)
				require.Equal(t, c, again)
			}
		}
		t.Logf("%s: %d networks take %d kB, the longest of %d chunks %d kB", what, len(list), total>>10, chunks, longest>>10)
		require.Less(t, longest, most)
	}
	f("alike", 32<<10)
	for i, e := range list {
		e.By, e.Reason = fmt.Sprintf("%0*d", MaxBy, i), fmt.Sprintf("%0*d", MaxReason, i)
		e.Until = noon.Add(time.Duration(i) * time.Second)
	}
	f("different", maxChunk)
}

func TestDamagedChunksAreRefused(t *testing.T) {
	good := entry("203.0.113.0/24", Block, 0)
	document, err := encode([]*Entry{good})
	require.NoError(t, err)
	number := chunkOf(good.Network)
	_, err = parseChunk(number, document)
	require.NoError(t, err)
	_, err = parseChunk(number+1, document)
	require.ErrorContains(t, err, "203.0.113.0/24 does not belong here")
	for text, want := range map[string]string{
		`{`: "unexpected end",
		`{"decisions":[{"action":"drop","by":"a","reason":"b","since":"2026-03-01T12:00:00Z"}]}`:                                                 "action: must be block or allow",
		`{"decisions":[{"action":"block","by":"","reason":"b","since":"2026-03-01T12:00:00Z"}]}`:                                                 "by: must be 1 to 128 bytes",
		`{"decisions":[{"action":"block","by":"a","reason":"a\nb","since":"2026-03-01T12:00:00Z"}]}`:                                             "reason: must be 1 to 200 bytes in one line",
		`{"decisions":[{"action":"block","by":"a","reason":"b"}]}`:                                                                               "since: must be the time",
		`{"decisions":[{"action":"block","by":"a","reason":"b","since":"2026-03-01T12:00:00Z","networks":["203.0.113.0/24","203.0.113.0/24"]}]}`: "occurs twice",
		`{"decisions":[{"action":"block","by":"a","reason":"b","since":"2026-03-01T12:00:00Z","networks":["203.0.113.1/24"]}]}`:                  "does not belong here",
		`{"decisions":[{"action":"block","by":"a","reason":"b","since":"2026-03-01T12:00:00Z","networks":[""]}]}`:                                "does not belong here",
		`{"decisions":[{"action":"block","by":"a","reason":"b","since":"2026-03-01T12:00:00Z","networks":["x"]}]}`:                               "x",
	} {
		_, err := parseChunk(number, []byte(text))
		require.ErrorContains(t, err, want, text)
	}
}

func TestDamagedIndexesAreRefused(t *testing.T) {
	f := func(change func(*contents), want string) {
		t.Helper()
		c := contents{Schema, "", map[string]part{"0a": {1, "00", "x"}}}
		change(&c)
		document, err := c.document()
		require.NoError(t, err)
		x, err := ParseIndex(document)
		if want == "" {
			require.NoError(t, err)
			require.Equal(t, consul.NewPointer(document, "", time.Time{}), x.Pointer)
			return
		}
		require.ErrorContains(t, err, want)
		if c.Schema == Schema {
			require.ErrorContains(t, err, "; delete the key, and import")
		}
	}
	f(func(*contents) {}, "")
	f(func(c *contents) { c.Schema = 2 }, "schema: must be at most 1, which this release reads (got 2); update it")
	f(func(c *contents) { c.Chunks["100"] = part{Entries: 1} }, `chunks: "100": is no chunk`)
	f(func(c *contents) { c.Chunks["0A"] = part{Entries: 1} }, `chunks: "0A": is no chunk`)
	f(func(c *contents) { c.Chunks["0b"] = part{Entries: -1} }, `chunks: "0b": is no chunk`)
	f(func(c *contents) { c.Chunks["0b"], c.Chunks["0c"] = part{Entries: Max}, part{Entries: Max} }, "must have at most 100000 networks (got 200001)")
	_, err := ParseIndex([]byte("x"))
	require.ErrorContains(t, err, "invalid character 'x' looking for beginning of value; delete the key, and import")
}

func BenchmarkFind(b *testing.B) {
	for _, n := range []int{0, 10, 1000, Max} {
		list := many(n)
		table := NewTable("", list, noon)
		var clients [1024]netip.Addr
		random := rand.New(rand.NewPCG(3, 4))
		for i := range clients {
			clients[i] = netip.AddrFrom4([4]byte{byte(random.IntN(224)), byte(random.IntN(256)), byte(random.IntN(256)), byte(random.IntN(256))})
			if n > 0 && i%2 == 0 {
				clients[i] = list[random.IntN(n)].Network.Addr()
			}
		}
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				table.Find(clients[i%len(clients)])
			}
		})
	}
}

func BenchmarkNewTable(b *testing.B) {
	list := many(Max)
	for b.Loop() {
		NewTable("", list, noon)
	}
}
