package ctl

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/ctl/term"
)

// What is wrong with many edges is said once, with the edges.
func TestOneErrorOfManyEdges(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "eu-west")
	var stubs []*stub
	for i := range 5 {
		stubs = append(stubs, f.edge(t, "eu-west", "ams1", fmt.Sprintf("ams1-%d", i+1)))
	}
	f.good(t, "topology", "apply", write(t, "topology.yaml", "{zone: e.example, regions: [{name: eu-west, pops: [{name: ams1, addresses: [203.0.113.1]}, {name: ams2, addresses: [203.0.113.2]}]}]}"), "--yes")
	f.good(t, "rules", "apply", write(t, "rules.yaml", rulesOf(1)), "--yes")
	once := func(fault, command string) {
		t.Helper()
		r := f.run(t, strings.Fields(command)...)
		require.NotEqual(t, term.StatusUsage, r.status, r.errOut)
		said := r.out + r.errOut
		require.Equal(t, 1, strings.Count(said, fault), "%s: %s", command, said)
		require.Contains(t, said, " and 2 more", command)
	}
	for _, s := range stubs {
		s.mu.Lock()
		s.silent = true
		s.mu.Unlock()
	}
	for _, command := range []string{"status", "rules status", "limits reset --rule r --client 192.0.2.1 --yes", "clients recent 192.0.2.1", "drain ams1 --reason x --yes --force --wait 1m --ttl 0"} {
		once("the stub is silent", command)
	}
	for _, s := range stubs { // each has another address
		s.server.Close()
	}
	once("connection refused", "status")
}
