package blocklist

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/clientlist"
)

func TestParse(t *testing.T) {
	c, err := Parse([]byte("\ufeff; a list\r\n203.0.113.0/24 ; SBL1\r\n\n# more\n198.51.100.7\n203.0.113.0/24\n10.0.0.0/8 # bogon\n224.0.0.0/3\n127.0.0.1\n2001:db8:7::/48\nfe80::/10\n::1\n::ffff:198.51.100.8"), 100)
	require.NoError(t, err)
	require.Equal(t, "[198.51.100.7/32 198.51.100.8/32 203.0.113.0/24 2001:db8:7::/48]", fmt.Sprint(c.Networks))
	require.Equal(t, 5, c.Private)

	bad := func(text, want string) {
		t.Helper()
		_, err := Parse([]byte(text), 3)
		require.ErrorContains(t, err, want)
		require.Less(t, len(err.Error()), 300)
	}
	bad("", "has no public network")
	bad("# all of it was removed\n", "has no public network")
	bad("10.0.0.0/8\n", "has no public network")
	bad("203.0.113.1\n0.0.0.0/0\n", "line 2: 0.0.0.0/0 has a large part of all clients")
	bad("::/0", "line 1: ::/0 has a large part of all clients")
	bad("2000::/15", "has a large part of all clients")
	bad("64.0.0.0/7", "has a large part of all clients")
	bad("172.0.0.0/8", "172.0.0.0/8 has 172.16.0.0/12 in it, which is not public")
	bad("192.168.0.0/15", "line 1: 192.168.0.0/15 has 192.168.0.0/16 in it, which is not public")
	bad("203.0.113.7/24", "line 1: 203.0.113.7/24 has bits after its prefix")
	bad("203.0.113.1\n203.0.113.2\n203.0.113.3\n203.0.113.4\n", "has more than 3 networks")
	bad("<!doctype html>\n<title>Not found</title>", "line 1: must be an address or a network")
	bad("203.0.113.1\n"+strings.Repeat("1", 1<<20), "line 2: is 1048576 bytes long, and no network")
	bad("203.0.113.1 203.0.113.2", "line 1: must be an address or a network")
	bad("example.com", "line 1: must be")
	bad("203.0.113.1\x00", "line 1: must be")
}

// Many networks, none of them wide, are still an outage together.
func TestAListBlocksOnlyAPart(t *testing.T) {
	var b strings.Builder
	for i := range 16 {
		fmt.Fprintf(&b, "%d.0.0.0/8\n%d.7.0.0/16\n", 64+i, 64+i) // those inside count once
	}
	c, err := Parse([]byte(b.String()), 100)
	require.NoError(t, err)
	require.InDelta(t, 1.0/16, shareOf(c.Networks, true, 0), 1e-9)
	b.WriteString("203.0.113.1\n")
	_, err = Parse([]byte(b.String()), 100)
	require.ErrorContains(t, err, "of all IPv4 addresses; more than 6.2% would be an outage")
	b.Reset()
	for i := range 0x2000 / 16 {
		fmt.Fprintf(&b, "%x::/16\n", 0x2000+i)
	}
	_, err = Parse([]byte(b.String()+"3fff::/32\n"), 1000)
	require.ErrorContains(t, err, "of all public IPv6 addresses")
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"203.0.113.0/24 ; SBL1\n2001:db8::/32", "0.0.0.0/0", "10.0.0.0/8\n172.0.0.0/8", "\ufeff# x", "::ffff:0:0/96"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := Parse(text, 1000)
		if err != nil {
			require.Less(t, len(err.Error()), 1000)
			return
		}
		require.NotEmpty(t, c.Networks)
		for i, p := range c.Networks {
			require.True(t, p.IsValid() && p == p.Masked() && !clientlist.Wide(p))
			require.True(t, i == 0 || clientlist.Compare(c.Networks[i-1], p) < 0)
			for _, own := range append(private, netip.MustParsePrefix("fc00::/7"), netip.MustParsePrefix("::1/128")) {
				require.False(t, own.Overlaps(p), p)
			}
		}
	})
}
