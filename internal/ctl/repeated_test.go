package ctl

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/ctl/command"
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
	once := func(fault, line string) {
		t.Helper()
		r := f.run(t, strings.Fields(line)...)
		require.NotEqual(t, term.StatusUsage, r.status, r.errOut)
		said := r.out + r.errOut
		require.Equal(t, 1, strings.Count(said, fault), "%s: %s", line, said)
		require.Contains(t, said, " and 2 more", line)
	}
	for _, s := range stubs {
		s.mu.Lock()
		s.silent = true
		s.mu.Unlock()
	}
	for _, line := range []string{"status", "rules status", "limits reset --rule r --client 192.0.2.1 --yes", "clients recent 192.0.2.1", "drain ams1 --message x --yes --force --wait 1m --ttl 0"} {
		once("the stub is silent", line)
	}
	for _, s := range stubs { // each has another address
		s.server.Close()
	}
	once("could not ask", "status")
}

// Without an answer from every region, nothing is claimed to be empty.
func TestNothingIsClaimedOfSilentRegions(t *testing.T) {
	t.Parallel()
	fleet := write(t, "fleet.yaml", "regions: [{name: eu-west, consul: {addr: \"127.0.0.1:1\"}}]")
	for _, line := range []string{"clients list", "clients show 192.0.2.1", "rules list", "rules history", "shedder history", "audit list"} {
		var out, errOut buffer
		err := run(t.Context(), command.NewProgram(term.New(strings.NewReader(""), &out, &errOut)), append(strings.Fields(line), "--fleet", fleet))
		require.Equal(t, term.StatusFailed, term.ExitStatus(err), line)
		for said := range strings.Lines(out.String()) {
			if strings.HasPrefix(said, "no ") || strings.Contains(said, " neither ") {
				require.Contains(t, said, ", as far as is known", line)
			}
		}
	}
}
