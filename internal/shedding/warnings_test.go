package shedding

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWarnings(t *testing.T) {
	f := func(text string, want ...string) {
		t.Helper()
		d, err := Parse([]byte(text))
		require.NoError(t, err)
		got := d.Warnings()
		require.Len(t, got, len(want), "%q", got)
		for i := range want {
			require.Contains(t, got[i], want[i])
		}
	}
	f("enabled: true")
	f("signals: {inflight: {low: 0, high: 80}}", "signals.inflight.high: 80 is far below the cap of the class test: up to 700 requests can wait for as long as patience (28s)")
	f("signals: {inflight: {low: 0, high: 200}}")
	f("signals: {inflight: off}")
	f("{signals: {inflight: {low: 0, high: 80}}, patience: 1s}")
	f("{signals: {inflight: {low: 0, high: 80}}, law: cap}")
	f("signals: {inflight: {low: 0, high: {min: 20, max: 400}}}")
	f("{signals: {inflight: {low: 0, high: 80}}, classes: [{name: all, max_in_flight: 100}], default_class: all}", "a single one only its max_in_flight")
	// A group's warnings are about its own settings.
	f("upstreams: {search: {signals: {inflight: {low: 0, high: 100}}}, other: {start: 0.7}}", "upstreams.search.signals.inflight.high: 100 is far below")
	f("upstreams: {search: {signals: {inflight: {low: 0, high: 100}}, max_in_flight: {critical: 120, write: 110, read: 100, test: 90}}}")
}
