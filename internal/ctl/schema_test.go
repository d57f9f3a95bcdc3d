package ctl

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/ctl/kinds"
	"github.com/weir-edge/weir/internal/ctl/versions"
)

// What nodes register decides which of them read documents of a later schema.
func TestUnread(t *testing.T) {
	f := startFleet(t, "eu-west")
	for id, reads := range map[string]int{"ams1-1": 2, "ams1-2": 1, "ams1-3": 3, "ams1-4": 0, "ams1-5": 1} {
		f.edge(t, "eu-west", "ams1", id, func(s *stub) { s.reads = reads })
	}
	p := f.program(strings.NewReader(""), &buffer{}, &buffer{})
	p.FleetFile, p.Timeout = f.file, ample
	later := *kinds.Rules
	later.Schema, later.Remedy = 2, "make it follow rules"
	targets, err := p.Targets(&later, nil)
	require.NoError(t, err)
	objections := versions.Unread(t.Context(), p, targets)
	require.Len(t, objections, 1)
	require.Equal(t, "rules need nodes that read schema 2; ams1-4 in eu-west reads none: make it follow rules; ams1-2 in eu-west reads 1, ams1-5 in eu-west reads 1: update it first", objections[0].Line)
	require.ElementsMatch(t, []string{"ams1-2 in eu-west reads 1", "ams1-4 in eu-west reads none", "ams1-5 in eu-west reads 1"}, objections[0].Of)
}
