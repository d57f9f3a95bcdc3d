package region

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
)

// A topology from a person or from Consul is valid once it has been read.
func FuzzTopology(f *testing.F) {
	for _, seed := range []string{
		"zone: edge.example.com\nregions: [{name: eu, pops: [{name: ams1, addresses: [192.0.2.1, \"2001:db8::1\"], clients: [198.51.100.0/24], weight: 3, location: {lat: 52.3, lon: 4.8}}]}]",
		`{"zone":"a.b.","regions":[{"name":"eu","pops":[{"name":"x","addresses":["::ffff:1.2.3.4"]}]}]}`,
		"{}", "zone: &a x\nregions: [*a]", "regions: [{pops: [null]}, null]", "\x1f\x8b\x08\x00",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		testenv.Bounded(t, 64<<20, func() {
			for _, read := range []func([]byte) (*Topology, error){func(data []byte) (*Topology, error) { return ParseTopology(data) }, readTopology} {
				topology, err := read(data)
				if err != nil {
					require.NotEmpty(t, err.Error())
					continue
				}
				require.NoError(t, topology.Validate())
			}
		})
	})
}

// Drains that can be read are shown in one line of bounded length each, and written back the same.
func FuzzDrains(f *testing.F) {
	one := func(drain string) []byte { return []byte(`{"begun":{"ams1":` + drain + `}}`) }
	f.Add(one(`{"who":"ann","why":"kernel update","since":"2026-01-02T15:04:05Z","at":"2026-01-02T15:04:05Z"}`))
	f.Add(one(`{"who":"\n\u0000","why":7}`))
	f.Add(one(`{"who":"x` + strings.Repeat("é", maxWhy) + `","why":"` + strings.Repeat("y", 100_000) + `"}`))
	f.Fuzz(func(t *testing.T, document []byte) {
		drains, err := ParseDrains(document)
		if err != nil {
			return
		}
		for _, d := range drains.Begun {
			require.NotContains(t, d.Who+d.Why, "\n")
			require.LessOrEqual(t, max(len(d.Who), len(d.Why)), maxWhy, "a log line holds both")
			require.True(t, utf8.ValidString(d.Who+d.Why))
		}
		again, err := ParseDrains(drains.Document())
		require.NoError(t, err)
		require.Equal(t, drains.Document(), again.Document())
	})
}

// A damaged GeoIP database is refused or locates clients somewhere on Earth.
func FuzzGeoIP(f *testing.F) {
	for _, data := range [][]byte{geoData(f, "four.mmdb"), geoData(f, "six.mmdb")} {
		f.Add(data, []byte{})
		f.Add(data[:len(data)-1], []byte{})
		for i := range 64 { // each flips one byte of the search tree or of what follows it
			f.Add(data, []byte{byte(i * len(data) / 64 >> 8), byte(i * len(data) / 64), 0xff})
		}
	}
	f.Fuzz(func(t *testing.T, data, flips []byte) {
		data = slices.Clone(data)
		for ; len(flips) >= 3 && len(data) > 0; flips = flips[3:] {
			data[int(binary.BigEndian.Uint16(flips))%len(data)] ^= flips[2]
		}
		testenv.Bounded(t, 64<<20, func() {
			g, err := NewGeoIP(data)
			if err != nil {
				require.NotEmpty(t, err.Error())
				return
			}
			for _, a := range []string{"198.51.100.7", "100.1.2.3", "0.0.0.0", "255.255.255.255", "2001:db8::1", "::", "ffff::"} {
				addr := netip.MustParseAddr(a)
				at, network, known := g.Locate(addr)
				require.True(t, !network.IsValid() || network.Contains(addr), "%s in %s", a, network)
				require.True(t, !known || at.Lat >= -90 && at.Lat <= 90 && at.Lon >= -180 && at.Lon <= 180)
			}
		})
	})
}
