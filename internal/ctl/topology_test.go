package ctl

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/ctl/topology"
	"github.com/weir-edge/weir/pkg/region"
)

// topologyOf returns a topology with a PoP in each of two regions; n varies it.
func topologyOf(n int) string {
	return fmt.Sprintf(`zone: edge.example.com
regions:
  - name: eu-west
    pops: [{name: ams1, addresses: [203.0.113.%d], clients: [198.51.100.0/24]}]
  - name: us-east
    pops: [{name: iad1, addresses: ["203.0.113.200", "2001:db8::1"], location: {lat: 38.9, lon: -77.4}, weight: 3}]
`, n)
}

// The sample in the help text is valid and has every field.
func TestTopologyHelpHasEveryField(t *testing.T) {
	_, sample, _ := strings.Cut(topology.Help, "\n\n")
	parsed, err := region.ParseTopology([]byte(sample))
	require.NoError(t, err)
	require.NotNil(t, parsed.Probe)
	pop := reflect.ValueOf(parsed.Regions[0].PoPs[0])
	for i := range pop.NumField() {
		require.False(t, pop.Field(i).IsZero(), pop.Type().Field(i).Name)
	}
}
