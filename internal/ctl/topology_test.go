package ctl

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/ctl/rollout"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/pkg/region"
)

// topologyOf is one with a PoP in each of two regions; n makes it another one.
func topologyOf(n int) string {
	return fmt.Sprintf(`zone: edge.example.com
regions:
  - name: eu-west
    pops: [{name: ams1, addresses: [203.0.113.%d], clients: [198.51.100.0/24]}]
  - name: us-east
    pops: [{name: iad1, addresses: ["203.0.113.200", "2001:db8::1"], location: {lat: 38.9, lon: -77.4}, weight: 3}]
`, n)
}

func TestTopology(t *testing.T) {
	f := startFleet(t, "eu-west", "us-east")
	first := write(t, "topology.yaml", topologyOf(1))

	r := f.run(t, "topology", "show")
	require.Equal(t, term.StatusFailed, r.status)
	require.Contains(t, r.errOut, "no topology is active")
	require.Equal(t, term.StatusUsage, f.run(t, "topology", "apply", first).status, "nobody can be asked")
	r = f.good(t, "topology", "apply", first, "--yes")
	require.Contains(t, r.out, "+ pop iad1 of us-east: 2001:db8::1, 203.0.113.200; at 38.9, -77.4; weight 3")
	require.Equal(t, 2, strings.Count(r.out, rollout.Applied.String()))
	require.Contains(t, f.good(t, "topology", "apply", first).out, "no difference", "and nobody is asked")

	// What is shown can be applied, and is the same.
	shown := f.good(t, "topology", "show").out
	require.Contains(t, f.good(t, "topology", "apply", write(t, "again.yaml", shown), "--yes").out, "no difference")
	require.Equal(t, "edge.example.com", parse[region.Topology](t, f.good(t, "topology", "show", "-o", "json").out).Zone)

	bad := write(t, "bad.yaml", strings.NewReplacer("us-east", "us-west", "203.0.113.200", "x").Replace(topologyOf(1)))
	r = f.run(t, "topology", "apply", bad, "--yes")
	require.Equal(t, term.StatusUsage, r.status)
	require.Contains(t, r.errOut, "regions[1].pops[0].addresses[0]: must be an IP address")
	r = f.run(t, "topology", "apply", write(t, "bad.yaml", strings.ReplaceAll(topologyOf(1), "us-east", "us-west")), "--yes")
	require.Equal(t, term.StatusUsage, r.status)
	require.Contains(t, r.errOut, `regions[1].name: "us-west" is no region of the fleet file, which has eu-west, us-east`)

	// Someone else is faster.
	s := f.converse(t, "topology", "apply", write(t, "topology.yaml", topologyOf(2)))
	s.sees(t, "Apply to eu-west, us-east?")
	f.good(t, "topology", "apply", write(t, "topology.yaml", topologyOf(3)), "--yes")
	s.answer(t, "y")
	r = s.end(t)
	require.Equal(t, term.StatusConflict, r.status, r.errOut)
	require.Contains(t, r.errOut, "nothing was changed anywhere: eu-west: someone else has changed the topology meanwhile")
	require.Contains(t, f.good(t, "topology", "show").out, "203.0.113.3\n")

	// A region that is away keeps everybody waiting, unless told otherwise; the same
	// again finishes the job.
	f.consuls["us-east"].Kill()
	next := write(t, "topology.yaml", topologyOf(4))
	r = f.run(t, "topology", "apply", next, "--yes", "--timeout", "1s")
	require.Equal(t, term.StatusFailed, r.status)
	require.Contains(t, r.errOut, "nothing was changed, because us-east cannot be reached")
	r = f.run(t, "topology", "apply", next, "--yes", "--partial", "--timeout", "1s", "-o", "json")
	require.Equal(t, term.StatusPartial, r.status)
	require.Equal(t, []rollout.Outcome{rollout.Applied, rollout.Unreachable}, results(parse[topologyReport](t, r.out)))
	f.consuls["us-east"].Start()
	r = f.run(t, "topology", "show")
	require.Equal(t, term.StatusUsage, r.status)
	require.Contains(t, r.errOut, "different topologies")
	r = f.good(t, "topology", "apply", next, "--yes", "-o", "json")
	require.Equal(t, []rollout.Outcome{rollout.AlreadyThere, rollout.Applied}, results(parse[topologyReport](t, r.out)))

	// What cannot be read is replaced.
	_, err := f.consuls["us-east"].Client().KV().Put(kv("weir/topology", "nonsense"), nil)
	require.NoError(t, err)
	require.Contains(t, f.good(t, "topology", "apply", next, "--yes").out, "cannot be read, and will be replaced")
}

func results(r topologyReport) (list []rollout.Outcome) {
	for _, c := range r.Regions {
		list = append(list, c.Result)
	}
	return list
}

func TestDrain(t *testing.T) {
	f := startFleet(t, "eu-west", "us-east")
	f.good(t, "topology", "apply", write(t, "topology.yaml", topologyOf(1)), "--yes")
	ams := f.edge(t, "eu-west", "ams1", "ams1-1")

	r := f.run(t, "drain", "nope", "--reason", "x", "--yes")
	require.Equal(t, term.StatusUsage, r.status)
	require.Contains(t, r.errOut, `no PoP "nope" in the topology; it has ams1, iad1`)
	require.Equal(t, term.StatusUsage, f.run(t, "drain", "ams1", "--yes").status, "no reason")
	r = f.run(t, "drain", "ams1", "--reason", "x", "--yes")
	require.Equal(t, term.StatusFailed, r.status)
	require.Contains(t, r.errOut, "no healthy PoP would be left")
	f.edge(t, "us-east", "iad1", "iad1-1")
	require.Equal(t, term.StatusUsage, f.run(t, "drain", "ams1", "--reason", "x").status, "nobody can be asked")

	// Requests go on for a while.
	busy := 3
	ams.mu.Lock()
	ams.traffic = func(s *stub, _ string) {
		if busy--; busy > 0 {
			s.requests["2xx"] += 100
		}
	}
	ams.mu.Unlock()
	r = f.good(t, "drain", "ams1", "--reason", "kernel update", "--by", "ann", "--yes", "--ttl", "0s", "-o", "json")
	report := parse[drainReport](t, r.out)
	require.Equal(t, "ann", report.Drain.Who)
	require.Zero(t, report.Nodes[0].Rate)
	require.Regexp(t, `(?m)^ams1: [1-9]\d* requests/s`, r.errOut)
	for _, name := range f.names {
		drains, _, err := region.ListDrains(t.Context(), f.open[name])
		require.NoError(t, err)
		require.Equal(t, *report.Drain, drains.Begun["ams1"])
	}
	require.Contains(t, f.good(t, "status").out, "ams1 is drained by ann")
	require.Contains(t, f.good(t, "dns", "explain", "--client", "198.51.100.7").out, "ams1 is drained by ann: kernel update")

	// Once more, with another reason: since when stays.
	r = f.good(t, "drain", "ams1", "--reason", "disk, too", "--by", "bob", "--wait", "0", "-o", "json")
	again := parse[drainReport](t, r.out)
	require.Equal(t, []any{"bob", "disk, too", report.Drain.Since}, []any{again.Drain.Who, again.Drain.Why, again.Drain.Since})
	require.Contains(t, f.good(t, "drain", "ams1", "--reason", "disk, too", "--by", "eve", "--wait", "0").out, "by bob")

	// The word of one region is enough to drain.
	f.good(t, "undrain", "ams1", "--yes")
	f.consuls["us-east"].Kill()
	r = f.run(t, "drain", "ams1", "--reason", "x", "--yes", "--force", "--wait", "0", "--timeout", "1s")
	require.Equal(t, term.StatusPartial, r.status)
	require.Contains(t, r.errOut, "the word of eu-west is enough")
	f.consuls["us-east"].Start()
	f.good(t, "drain", "ams1", "--reason", "x", "--wait", "0")

	// And the word of one to undrain: a drain that ended while its region was away does not
	// come back with it.
	f.consuls["us-east"].Kill()
	r = f.run(t, "undrain", "ams1", "--yes", "--timeout", "1s")
	require.Equal(t, term.StatusPartial, r.status)
	require.Contains(t, r.errOut, "us-east may still hold the drain of ams1, which is over by the word of the others")
	r = f.run(t, "status", "--timeout", "1s")
	require.Equal(t, term.StatusPartial, r.status)
	require.Contains(t, r.out, "1 region not known")
	f.consuls["us-east"].Start()
	held := func() region.Drains {
		drains, wrong, err := region.ListDrains(t.Context(), f.open["us-east"])
		require.NoError(t, err)
		require.Empty(t, wrong)
		return drains
	}
	require.Contains(t, held().Begun, "ams1")
	require.NotContains(t, f.good(t, "status").out, "drained")
	require.NotContains(t, f.good(t, "dns", "explain", "--client", "198.51.100.7").out, "drained")

	// A new one begins after that, in the same second too.
	again = parse[drainReport](t, f.good(t, "drain", "ams1", "--reason", "y", "--by", "ann", "--yes", "--wait", "0", "-o", "json").out)
	require.Contains(t, f.good(t, "status").out, "ams1 is drained by ann")
	f.good(t, "undrain", "ams1", "--yes")
	require.Empty(t, held().Begun)
	require.Equal(t, again.Drain.Since, held().Ended["ams1"])
	require.Contains(t, f.good(t, "undrain", "ams1", "-o", "json").out, `"already there"`)
}
