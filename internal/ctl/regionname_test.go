package ctl

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/consul/api"
	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// changeCommands are all commands that change a region; lookCommands are the others.
var (
	changeCommands = []string{
		"init --message x --yes", "rules apply FILE --yes", "rules apply --resume --yes", "undo rules --yes", "undo rules --to VERSION --yes", "prune rules --yes",
		"policy apply POLICY --yes", "undo policy --yes", "undo policy --to VERSION --yes", "prune policy --yes",
		"shedder set enabled=false --for 1h --yes", "undo shedder --yes", "undo shedder --to VERSION --yes", "prune shedder --yes",
		"topology apply TOPOLOGY --yes", "undo topology --yes", "undo topology --to VERSION --yes", "prune topology --yes", "drain ams1 --message x --yes", "undrain ams1 --message x --yes", "limits reset --rule per-client --client 203.0.113.7 --message x --yes",
		"clients block 203.0.113.7 --message x --yes", "clients allow 203.0.113.7 --message x --yes", "clients unblock 203.0.113.7 --message x --yes", "clients import LIST --message x --yes",
		"clients sync --name drop --from LIST --once --yes",
	}
	lookCommands = []string{
		"rules validate", "rules test", "rules diff", "rules show", "rules list", "rules status", "rules history", "rules rollout", "rules compare", "rules import envoy",
		"policy validate", "policy test", "policy diff", "policy show", "policy status", "policy history", "policy rollout", "policy example",
		"shedder validate", "shedder suggest", "shedder show", "shedder history",
		"topology show", "topology validate", "topology diff", "topology history", "topology rollout", "dns explain", "limits explain", "limits inspect", "limits global",
		"clients top", "clients list", "clients show", "clients recent", "clients export", "status", "audit list", "audit verify", "console", "keys generate", "keys show", "runbook",
	}
)

// A fleet file that names another region's Consul changes nothing there, by no command, and no
// command is forgotten here.
func TestWrongFleetFile(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "eu-west")
	p := f.publish(t, rulesOf(1), "ana", "eu-west")
	edge := f.edge(t, "eu-west", "ams1", "ams1-1")
	require.Eventually(t, func() bool { return edge.runs() == p.Version }, patience, tick)
	addr := f.consuls["eu-west"].Addr()
	wrong := *f
	wrong.file = write(t, "wrong.yaml", fmt.Sprintf("regions: [{name: us-west, consul: {addr: %q}}]", addr))
	files := strings.NewReplacer("FILE", write(t, "rules.yaml", rulesOf(2)), "POLICY", write(t, "policy.yaml", "mode: enforce"), "VERSION", p.Version, "LIST", write(t, "list.txt", "203.0.113.9\n"),
		"TOPOLOGY", write(t, "topology.yaml", "{zone: e.example, regions: [{name: us-west, pops: [{name: ams1, addresses: [203.0.113.1]}, {name: ams2, addresses: [203.0.113.2]}]}]}"))
	kv := f.consuls["eu-west"].Client().KV()
	refused := func(want string, commands []string) {
		t.Helper()
		before, _, err := kv.List("weir/", nil)
		require.NoError(t, err)
		for _, command := range commands {
			r := wrong.run(t, strings.Fields(files.Replace(command))...)
			require.NotZero(t, r.status, "%s\n%s%s", command, r.out, r.errOut)
			require.Contains(t, r.out+r.errOut, "us-west: consul "+addr+" "+want, command)
			require.NotContains(t, r.out, "applied", command)
			require.NotContains(t, r.out, "per-client", "%s: the difference", command)
		}
		after, _, err := kv.List("weir/", nil)
		require.NoError(t, err)
		require.Equal(t, before, after)
		require.Equal(t, p.Version, edge.runs())
	}
	refused("belongs to region eu-west; correct consul.addr of us-west in the fleet file", changeCommands)
	_, err := kv.Delete("weir/region", nil)
	require.NoError(t, err)
	refused("has edges of region eu-west; correct consul.addr of us-west in the fleet file, or node.region of those edges", changeCommands)
	require.Contains(t, wrong.refused(t, term.StatusUsage, "init", "--region", "us-west"), "us-west: has edges of region eu-west\n", "before it asks")
	f.deregister(t, edge)
	refused("has no region's name and no edges; if it is us-west's, name it: regionctl init --region us-west", changeCommands[1:])

	// The explicit first step names a region once.
	wrong.refused(t, term.StatusUsage, "init") // it asks, and there is no terminal
	wrong.good(t, "init", "--yes")
	wrong.good(t, "rules", "apply", files.Replace("FILE"), "--yes", "--wait", "0")
	require.Contains(t, f.refused(t, term.StatusUsage, "init", "--yes"), "eu-west: consul "+addr+" belongs to region us-west")
}

func TestEveryCommandIsKnownToChangeOrNot(t *testing.T) {
	t.Parallel()
	known := slices.Concat(changeCommands, lookCommands)
	exists := map[string]bool{}
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			walk(sub)
		}
		if c.HasSubCommands() && c.Name() != "dns" || !c.IsAvailableCommand() {
			return
		}
		path := strings.TrimPrefix(c.CommandPath(), "regionctl ")
		found := false
		for _, command := range known {
			if command == path || strings.HasPrefix(command, path+" ") {
				found, exists[command] = true, true
			}
		}
		if !found {
			t.Errorf("%q: neither in changeCommands nor in lookCommands", path)
		}
	}
	walk(Commands())
	for _, command := range known {
		if !exists[command] {
			t.Errorf("%q: no such command", command)
		}
	}
}

// A region that does not answer costs a change one timeout, not one for each of its steps.
func TestSilentRegionIsAskedOnce(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "eu-west", "us-east")
	f.publish(t, rulesOf(1), "ana", f.names...)
	p := f.publish(t, rulesOf(2), "ana", f.names...)
	var asked atomic.Int64
	silent := f.faulty(t, "us-east", func(_ http.ResponseWriter, r *http.Request) bool {
		asked.Add(1)
		<-r.Context().Done()
		return true
	})
	require.Equal(t, p.Version, f.current(t, "eu-west"))
	r := silent.run(t, "undo", "rules", "--yes", "--timeout", "1s")
	require.Equal(t, term.StatusFailed, r.status, r.errOut)
	require.Contains(t, r.errOut, "us-east: consul ")
	require.LessOrEqual(t, asked.Load(), int64(2), "its name and its edges")
}

// One region that denies every request costs a change that region only, if it may be partial.
func TestOneRegionDenies(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "eu-west", "us-east")
	f.good(t, "topology", "apply", write(t, "topology.yaml", topologyOf(1)), "--yes")
	f.publish(t, rulesOf(1), "ana", f.names...)
	f.publish(t, rulesOf(2), "ana", f.names...)
	f.edge(t, "eu-west", "ams1", "ams1-1")
	f.edge(t, "us-east", "iad1", "iad1-1")
	denying := f.faulty(t, "us-east", func(w http.ResponseWriter, _ *http.Request) bool {
		http.Error(w, "ACL not found", http.StatusForbidden)
		return true
	})
	why := "us-east: consul "
	require.Contains(t, denying.refused(t, term.StatusFailed, "rules", "apply", write(t, "one.yaml", rulesOf(1)), "--yes"), "nothing was changed, because us-east cannot be reached:\n"+why)
	require.Equal(t, versionOf(rulesOf(2)), f.current(t, "eu-west"))
	text := denying.refused(t, term.StatusFailed, "undo", "rules", "--yes")
	require.Contains(t, text, why)
	require.Contains(t, text, "ACL not found")
	denying.good(t, "undo", "rules", "--yes", "--region", "eu-west")
	require.Equal(t, versionOf(rulesOf(1)), f.current(t, "eu-west"))
	require.Equal(t, versionOf(rulesOf(2)), f.current(t, "us-east"))
	require.Contains(t, denying.refused(t, term.StatusPartial, "drain", "iad1", "--message", "x", "--yes", "--wait", "0"), "eu-west has it")
	require.Contains(t, denying.refused(t, term.StatusPartial, "undrain", "iad1", "--yes"), "us-east may still hold the drain")
	require.Contains(t, denying.refused(t, term.StatusPartial, "clients", "block", "203.0.113.7", "--message", "x", "--wait", "0"), why)

	c := denying.console(t)
	w := c.send("POST", "/shedder/off", `{"for": "1h"}`)
	require.Equal(t, http.StatusInternalServerError, w.Code, w.Body)
	require.Contains(t, w.Body.String(), `"reason":"unreachable"`)
	answer := c.post("/shedder/off", "/shedder/off", `{"for": "1h", "partial": true}`)
	results, _ := outcomes(t, answer["result"])
	require.Equal(t, map[string]string{"eu-west": "applied", "us-east": "unreachable"}, results)
}

// A Consul of another region, or of none, is left out of a change that may be partial, and of
// drains. It refuses all others.
func TestOneRegionIsForeign(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "eu-west", "us-east")
	f.good(t, "topology", "apply", write(t, "topology.yaml", topologyOf(1)), "--yes")
	f.edge(t, "eu-west", "ams1", "ams1-1")
	kv := f.consuls["us-east"].Client().KV()
	stored := func() any {
		list, _, err := kv.List("weir/", nil)
		require.NoError(t, err)
		return list
	}
	for i, name := range []string{"ap-south", ""} {
		_, err := kv.Delete("weir/region", nil)
		require.NoError(t, err)
		want := "has no region's name and no edges"
		if name != "" {
			f.consuls["us-east"].Set(t, "weir/region", []byte(name))
			want = "belongs to region " + name
		}
		before := stored()
		apply := []string{"rules", "apply", write(t, "rules.yaml", rulesOf(i+1)), "--yes", "--wait", "0"}
		for _, command := range [][]string{apply, {"clients", "block", "203.0.113.7", "--message", "x"}, {"limits", "reset", "--rule", "per-client", "--client", "203.0.113.7", "--yes"}} {
			text := f.refused(t, term.StatusUsage, command...)
			require.Contains(t, text, "nothing was changed: us-east: consul ", command)
			require.Contains(t, text, want, command)
		}
		for _, command := range [][]string{append(apply, "--partial"), {"topology", "apply", write(t, "topology.yaml", topologyOf(i+2)), "--yes", "--partial"},
			{"drain", "iad1", "--message", "x", "--yes", "--wait", "0"}, {"undrain", "iad1", "--yes"}} {
			require.Contains(t, f.refused(t, term.StatusPartial, command...), want, command)
		}
		require.Equal(t, versionOf(rulesOf(i+1)), f.current(t, "eu-west"))
		require.Equal(t, before, stored())
	}
}

// An edge's token suffices to register an edge of any region. Where the region's name is
// recorded, that stops nothing; elsewhere, until an operator has named the region.
func TestStrangersDoNotHoldUpARegion(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "eu-west")
	require.NoError(t, f.consuls["eu-west"].Client().Agent().ServiceRegister(&api.AgentServiceRegistration{
		ID: "evil", Name: consul.Service, Address: "127.0.0.1", Port: 1, Meta: map[string]string{consul.MetaRegion: "elsewhere", consul.MetaNode: "evil", consul.MetaPrefix: f.prefix},
	}))
	require.Eventually(t, func() bool {
		nodes, err := f.open["eu-west"].Nodes(t.Context())
		return err == nil && len(nodes) == 1
	}, patience, tick)
	apply := func(n int) []string {
		return []string{"rules", "apply", write(t, "rules.yaml", rulesOf(n)), "--yes", "--wait", "0"}
	}
	r := f.good(t, apply(1)...)
	require.Contains(t, r.errOut, "eu-west: 1 node says it is in region elsewhere")

	_, err := f.consuls["eu-west"].Client().KV().Delete("weir/region", nil)
	require.NoError(t, err)
	require.Contains(t, f.refused(t, term.StatusUsage, apply(2)...), "has edges of region elsewhere")
	require.Contains(t, f.refused(t, term.StatusUsage, "init", "--yes"), "if it is eu-west's, name it: regionctl init --region eu-west")
	r = f.good(t, "init", "--region", "eu-west", "--yes")
	require.Contains(t, r.errOut, "eu-west: has edges of region elsewhere\n")
	f.good(t, apply(2)...)
	require.Equal(t, versionOf(rulesOf(2)), f.current(t, "eu-west"))
}
