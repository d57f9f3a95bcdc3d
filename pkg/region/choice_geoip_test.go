package region

import (
	"bytes"
	"net"
	"net/netip"
	"testing"

	"github.com/maxmind/mmdbwriter"
	"github.com/maxmind/mmdbwriter/mmdbtype"
	"github.com/stretchr/testify/require"
)

// geoDatabase builds a database in the form of GeoLite2 City.
func geoDatabase(t testing.TB, version int, records map[string]mmdbtype.Map) []byte {
	t.Helper()
	w, err := mmdbwriter.New(mmdbwriter.Options{DatabaseType: "GeoLite2-City", IPVersion: version, IncludeReservedNetworks: true})
	require.NoError(t, err)
	for network, record := range records {
		_, n, err := net.ParseCIDR(network)
		require.NoError(t, err)
		require.NoError(t, w.Insert(n, record))
	}
	var b bytes.Buffer
	_, err = w.WriteTo(&b)
	require.NoError(t, err)
	return b.Bytes()
}

func located(at Location) mmdbtype.Map {
	return mmdbtype.Map{"location": mmdbtype.Map{"latitude": mmdbtype.Float64(at.Lat), "longitude": mmdbtype.Float64(at.Lon)}}
}

func readGeo(t testing.TB, data []byte) *GeoIP {
	t.Helper()
	g, err := NewGeoIP(data)
	require.NoError(t, err)
	return g
}

func TestGeoIP(t *testing.T) {
	g := readGeo(t, geoDatabase(t, 6, map[string]mmdbtype.Map{
		"198.51.100.0/24": located(utrecht),
		"198.51.96.0/22":  located(frankfurt),
		"2001:db8::/32":   located(frankfurt),
		"100.1.0.0/16":    {"country": mmdbtype.Map{"iso_code": mmdbtype.String("NL")}},
		"100.2.0.0/16":    {"location": mmdbtype.Map{"latitude": mmdbtype.Float64(1)}},
		"100.3.0.0/16":    {"location": mmdbtype.Map{"latitude": mmdbtype.String("north"), "longitude": mmdbtype.String("east")}},
		"100.4.0.0/16":    located(Location{1000, 0}),
	}))
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

	four := readGeo(t, geoDatabase(t, 4, map[string]mmdbtype.Map{"198.51.100.0/24": located(utrecht)}))
	_, network, known := four.Locate(netip.MustParseAddr("2001:db8::1"))
	require.False(t, known)
	require.False(t, network.IsValid() && network.Addr().Is4())
	at, _, known := four.Locate(netip.MustParseAddr("198.51.100.1"))
	require.True(t, known)
	require.Equal(t, utrecht, at)

	_, err := NewGeoIP([]byte("hello"))
	require.ErrorContains(t, err, "read GeoIP database: ")
}
