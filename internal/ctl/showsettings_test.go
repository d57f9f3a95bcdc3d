package ctl

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/kinds"
	"github.com/weir-edge/weir/internal/ctl/shedder"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/internal/shedding"
)

func TestCompareSettings(t *testing.T) {
	f := func(old, now string, want ...string) {
		t.Helper()
		before, err := fleet.ParseDocument(kinds.Shedder, "", []byte(old))
		require.NoError(t, err)
		after, err := fleet.ParseDocument(kinds.Shedder, "", []byte(now))
		require.NoError(t, err)
		c := after.Body.(kinds.Comparer).Compare(before.Body).(*kinds.FieldChanges)
		var got []string
		for _, f := range c.Fields {
			got = append(got, f.Field+": "+f.Old+" → "+f.New)
		}
		require.Equal(t, want, got)
		require.Greater(t, c.Unchanged, 10)
	}
	f("{}", "enabled: true\npatience: 28000ms\nrotate: 60s\n")
	f("enabled: true", `{"enabled": false}`, "enabled: true → false")
	f("{}", "signals: {cpu: off, queue: {low: 1, high: 2.5}}",
		"signals.cpu: none → off", "signals.queue.low: none → 1", "signals.queue.high: none → 2.5", "signals.cpu.low: 0.6 → none", "signals.cpu.high: 0.98 → none")
	f("classes: [{name: a, max_in_flight: 5}, {name: b, max_in_flight: 5}]\ndefault_class: a", "classes: [{name: b, max_in_flight: 5}, {name: a, max_in_flight: 4, match: [{paths: [/x]}]}]\ndefault_class: b",
		"classes: [a, b] → [b, a]", "classes.a.max_in_flight: 5 → 4", `classes.a.match: none → [{"paths":["/x"]}]`, "default_class: a → b")
	f("upstreams: {search: {start: 0.9}}", "upstreams: {search: {max_in_flight: {test: 9}}}",
		"upstreams.search.max_in_flight.test: none → 9", "upstreams.search.start: 0.9 → none")
	f("{}", "user: [\"header:X-Api-Key\"]\nretry_after: {min: 2s}", "user: [client_ip] → [header:X-Api-Key]", "retry_after.min: 1s → 2s")
}

// One assignment may be valid only after another, whatever their order.
func TestSetAll(t *testing.T) {
	for _, args := range [][]string{{"start=0.6", "target=0.5"}, {"target=0.5", "start=0.6"}, {"signals.inflight.low=900", "signals.inflight.high=1000"}} {
		_, err := shedder.SetAll(shedding.Defaults(), args)
		require.NoError(t, err, "%v", args)
	}
	_, err := shedder.SetAll(shedding.Defaults(), []string{"enabled=false", "start=1", "patience=soon", "laws=pi"})
	found := term.Problems(err)
	require.Len(t, found, 3)
	require.Equal(t, "start", found[0].Path)
	require.Equal(t, "patience", found[1].Path)
}
