package dns

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/pkg/region"
)

// What each PoP gives to whom is said of all PoPs, also without a client.
func TestLoads(t *testing.T) {
	topology, err := region.ParseTopology([]byte(`{zone: e.example, steering: first, regions: [
		{name: eu-west, pops: [{name: ams1, addresses: [192.0.2.1]}, {name: fra1, addresses: [192.0.2.2]}]}, {name: us-east, pops: [{name: iad1, addresses: [192.0.2.3]}]}]}`))
	require.NoError(t, err)
	v := region.NewView(topology, map[string]region.PoPState{
		"ams1": {Healthy: true, Known: true, Demand: 930, Capacity: 1000}, "fra1": {Healthy: true, Known: true, Demand: 400, Capacity: 520, CapacityEstimated: true},
	}, nil)
	v.Spill = &region.Spill{Gifts: map[string]region.Gift{"ams1": {Own: 1200, Parts: map[string]region.Part{"iad1": {Share: 0.05}, "fra1": {Share: 0.2}, "gone": {}}}}}
	list := loads(v)
	require.Equal(t, []Given{{"fra1", 0.2}, {"iad1", 0.05}}, list[0].Gives)
	require.Empty(t, list[1].Gives)
	require.Nil(t, list[2].Demand, "iad1 has not reported")
	var b bytes.Buffer
	writeLoads(&b, list)
	require.Regexp(t, `(?m)^ams1 +1200 +930 +1000 +20.00% to fra1, 5.00% to iad1$`, b.String())
	require.Regexp(t, `(?m)^fra1 +- +400 +520 \(estimated\) +-$`, b.String())
	require.Regexp(t, `(?m)^iad1 +- +- +- +-$`, b.String())
}
