package shedder

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/weir-edge/weir/internal/shedding"
	"github.com/weir-edge/weir/pkg/shedder"
)

// The example of docs/SHEDDING.md, for one node and for two.
func TestSuggest(t *testing.T) {
	example := origin{capacity: 1000, latency: 20 * time.Millisecond, wait: 36 * time.Millisecond, most: 100 * time.Millisecond, nodes: 1}
	for nodes, want := range map[int][]int64{1: {80, 120, 110, 100, 90}, 2: {40, 60, 55, 50, 45}} {
		o := example
		o.nodes = nodes
		s, err := o.suggest()
		require.NoError(t, err)
		got := []int64{int64(s.Signals[shedder.SignalInFlight].High.Value)}
		for _, c := range s.Classes {
			got = append(got, c.MaxInFlight)
		}
		require.Equal(t, want, got)

		text, err := yaml.Marshal(s)
		require.NoError(t, err)
		d, err := shedding.Parse(text)
		require.NoError(t, err, "%s", text)
		require.Equal(t, s.Classes, d.Classes)
	}
}

func TestSuggestRefuses(t *testing.T) {
	good := origin{capacity: 1000, latency: 20 * time.Millisecond, wait: 36 * time.Millisecond, nodes: 1}
	_, err := good.suggest()
	require.NoError(t, err, "the longest wait has a default")
	for want, spoil := range map[string]func(*origin){
		"--capacity: must be 0.1 to":            func(o *origin) { o.capacity = 0 },
		"--latency: must be over 0":             func(o *origin) { o.latency = -1 },
		"--wait: must be over 0":                func(o *origin) { o.wait = 0 },
		"--nodes: must be 1 to 10,000":          func(o *origin) { o.nodes = 0 },
		"--max-wait: must be at least --wait":   func(o *origin) { o.most = time.Millisecond },
		"--max-wait: must be at least 74ms, so": func(o *origin) { o.most = 40 * time.Millisecond },
	} {
		o := good
		spoil(&o)
		_, err := o.suggest()
		require.ErrorContains(t, err, want)
	}
}
