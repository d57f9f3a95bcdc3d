package shedder

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/status"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/internal/shedding"
	"github.com/weir-edge/weir/pkg/shedder"
)

// Counts of the last hour replace those since the start; an edge that Prometheus does not scrape has none.
func TestLiveInTheLastHour(t *testing.T) {
	upstreams := []shedding.UpstreamStatus{{Name: "default", Classes: []shedder.ClassStatus{{Name: "read", ShedByLevel: 2}, {Name: "test", ShedByLevel: 2, ShedByCap: 1}}}}
	s := &Standing{Convergence: status.Convergence{Regions: []fleet.RegionView{{Region: "eu-west", Nodes: []fleet.NodeView{{ID: "ams1-1", Shedders: upstreams}, {ID: "ams1-2", Shedders: upstreams}}}}}}
	f := func(want ...string) {
		t.Helper()
		var b bytes.Buffer
		s.write(&b, term.Style{})
		for _, pattern := range want {
			require.Regexp(t, pattern, b.String())
		}
	}
	f(`SIGNAL +SHED\n`, `ams1-1 .* read 2, test 3 \(1 by cap\)\n`, `ams1-2 .* read 2, test 3 \(1 by cap\)\n`)
	s.Hour = &Hour{Upstreams: map[string]*UpstreamHour{"eu-west/ams1-1/default": {Shed: map[string]ShedHour{"read": {ByLevel: 12.4, ByCap: 0.2}, "test": {ByLevel: 3, ByCap: 7.4}}}}}
	f(`SIGNAL +SHED, 1H\n`, `ams1-1 .* read 12, test 10 \(7 by cap\)\n`, `ams1-2 .* -\n`)
}
