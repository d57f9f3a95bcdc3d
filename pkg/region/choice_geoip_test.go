package region

import (
	"net/netip"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// geoData reads a database in the form of GeoLite2 City that tools/geodata writes.
func geoData(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile("testdata/" + name)
	require.NoError(t, err)
	return b
}

func readGeo(t testing.TB, data []byte) *GeoIP {
	t.Helper()
	g, err := NewGeoIP(data)
	require.NoError(t, err)
	return g
}

func TestGeoIP(t *testing.T) {
	g := readGeo(t, geoData(t, "six.mmdb"))
	f := func(addr string, want Location, network string, known bool) {
		t.Helper()
		at, n, ok := g.Locate(netip.MustParseAddr(addr))
		require.Equal(t, known, ok, addr)
		require.Equal(t, want, at)
		require.Equal(t, network, n.String())
	}
	f("198.51.100.7", utrecht, "198.51.100.0/24", true)
	f("198.51.99.255", frankfurt, "198.51.96.0/22", true)
	f("2001:db8:1::1", frankfurt, "2001:db8::/32", true)
	f("198.51.101.0", Location{}, "198.51.101.0/24", false)
	for _, addr := range []string{"100.1", "100.2", "100.3", "100.4"} {
		f(addr+".0.1", Location{}, addr+".0.0/16", false)
	}

	topology := mustParse(t, europe)
	v := NewView(topology, allUp(topology), g)
	a := v.Choose(Query{Client: netip.MustParsePrefix("198.51.97.0/24")})
	require.Equal(t, "fra1", a.PoPs[0])
	require.Equal(t, 22, a.Scope)
	a = v.Choose(Query{Client: netip.MustParsePrefix("198.51.100.0/24")})
	require.Contains(t, []string{"ams1", "ams2"}, a.PoPs[0])

	four := readGeo(t, geoData(t, "four.mmdb"))
	_, network, known := four.Locate(netip.MustParseAddr("2001:db8::1"))
	require.False(t, known)
	require.False(t, network.IsValid() && network.Addr().Is4())
	at, _, known := four.Locate(netip.MustParseAddr("198.51.100.1"))
	require.True(t, known)
	require.Equal(t, utrecht, at)

	_, err := NewGeoIP([]byte("hello"))
	require.ErrorContains(t, err, "read GeoIP database: ")
}
