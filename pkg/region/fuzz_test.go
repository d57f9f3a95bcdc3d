package region

import (
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

// An unreadable drain drains anyway, and is shown in one line of bounded length.
func FuzzDrain(f *testing.F) {
	f.Add([]byte(`{"who":"ann","why":"kernel update","since":"2026-01-02T15:04:05Z"}`))
	f.Add([]byte(`{"who":"\n\u0000","why":7}`))
	f.Add([]byte(`{"who":"x` + strings.Repeat("é", maxWhy) + `","why":"` + strings.Repeat("y", 100_000) + `"}`))
	f.Fuzz(func(t *testing.T, value []byte) {
		d, err := parseDrain(value)
		require.NotContains(t, d.Who+d.Why, "\n")
		require.LessOrEqual(t, max(len(d.Who), len(d.Why)), maxWhy, "a log line holds both")
		require.True(t, utf8.ValidString(d.Who+d.Why))
		if err != nil {
			require.NotEmpty(t, d.Who)
		}
	})
}
