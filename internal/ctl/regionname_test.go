package ctl

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/ctl/term"
)

// changeCommands are all commands that change a region; lookCommands are the others.
var (
	changeCommands = []string{
		"init --yes", "rules apply FILE --yes", "rules apply --resume --yes", "rules rollback --yes", "rules rollback --rollout --yes", "rules rollback --to VERSION --yes", "rules prune --yes",
		"policy apply POLICY --yes", "policy rollback --yes", "policy prune --yes",
		"shedder set enabled=false --for 1h --yes", "shedder rollback --yes", "shedder prune --yes",
		"topology apply TOPOLOGY --yes", "drain ams1 --reason x --yes", "undrain ams1 --yes", "limits reset --rule per-client --client 203.0.113.7 --yes",
		"clients block 203.0.113.7 --reason x", "clients allow 203.0.113.7 --reason x", "clients unblock 203.0.113.7", "clients import LIST --reason x",
		"clients sync --name drop --from LIST --once",
	}
	lookCommands = []string{
		"rules validate", "rules test", "rules diff", "rules show", "rules list", "rules status", "rules history", "rules rollout", "rules example", "rules compare", "rules import envoy", "rules import nginx", "rules import traefik",
		"policy validate", "policy test", "policy diff", "policy show", "policy status", "policy history", "policy rollout", "policy example", "policy schema",
		"shedder validate", "shedder show", "shedder history", "shedder rollout",
		"topology show", "topology validate", "dns explain", "limits explain", "limits inspect", "limits global",
		"clients list", "clients show", "clients recent", "clients export", "status", "audit list", "audit verify", "console", "version", "keys generate", "keys show",
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
	known := map[string]bool{}
	for _, list := range [][]string{changeCommands, lookCommands} {
		for _, command := range list {
			known[command] = true
		}
	}
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			walk(sub)
		}
		if c.HasSubCommands() && c.Name() != "dns" || !c.IsAvailableCommand() {
			return
		}
		path := strings.TrimPrefix(c.CommandPath(), "regionctl ")
		for command := range known {
			if command == path || strings.HasPrefix(command, path+" ") {
				return
			}
		}
		t.Errorf("%q: neither in changeCommands nor in lookCommands", path)
	}
	walk(Commands())
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
	r := silent.run(t, "rules", "rollback", "--yes", "--partial", "--timeout", "1s")
	require.Equal(t, term.StatusPartial, r.status, r.errOut)
	require.Contains(t, r.errOut, "us-east: consul ")
	require.Equal(t, versionOf(rulesOf(1)), f.current(t, "eu-west"))
	require.LessOrEqual(t, asked.Load(), int64(2), "its name and its edges")
}
