package shedding

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Parse refuses an input with a message, or rendering it keeps its meaning for every group.
func FuzzDocument(f *testing.F) {
	for _, seed := range []string{
		"{}", "", full, "enabled: false", "signals: {cpu: off}", "classes: []", "user: [a, b]", "[[[[", "a: &a [*a]", "<<: {}", "\x00", "- - - -",
		`{"signals":{"x":{"low":0,"high":1}},"upstreams":{"a":{"max_in_flight":{"read":1,"test":1}}}}`,
		"upstreams: {a: {signals: {}, max_in_flight: {}}}", "candidates: {}", "classes: [{name: read, max_in_flight: 1, match: []}]",
		"candidates: {a: {start: 0.9}, b: {law: cap}}", "signals: {x: {low: 1ns, high: 2540400h}}", "start: .nan", "start: 1e999", "patience: 1e9h",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := Parse(data)
		if err != nil {
			require.NotEmpty(t, err.Error())
			return
		}
		for _, group := range []string{"default", "a", "search"} {
			_, err := d.Settings(group)
			require.NoError(t, err)
		}
		_, err = d.Matcher()
		require.NoError(t, err)
		requireSame(t, d)
		_, err = Set(d, "enabled", "true")
		require.NoError(t, err)
	})
}
