package ctl

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/ctl/command"
	"github.com/weir-edge/weir/internal/ctl/term"
)

// With -o json, every failed command ends with a JSON object on standard error, and standard
// output contains only results.
func TestJSONErrors(t *testing.T) {
	t.Parallel()
	// Nothing listens there.
	fleet := write(t, "fleet.yaml", "regions: [{name: eu-west, consul: {addr: \"127.0.0.1:1\"}}]")
	rules, bad := write(t, "rules.yaml", "rules: []"), write(t, "bad.yaml", "rules: 1")
	policy := write(t, "policy.yaml", "mode: shadow")
	topology := write(t, "topology.yaml", "{zone: e.example, regions: [{name: eu-west, pops: [{name: p, addresses: [203.0.113.1]}]}]}")
	type failure struct {
		args           string
		status         int
		reason, saying string
	}
	list := []failure{
		{"rules validate " + bad, term.StatusUsage, "usage", "has 1 problem"},
		{"rules import envoy missing.yaml", term.StatusUsage, "usage", "no such file"},
		{"policy example extra", term.StatusUsage, "usage", "unexpected argument"},
		{"policy validate " + bad, term.StatusUsage, "usage", "problem"},
		{"policy test missing.log --policy " + policy, term.StatusUsage, "usage", "no such file"},
		{"policy diff " + policy, term.StatusFailed, "failed", "connection refused"},
		{"policy apply " + policy + " --yes", term.StatusFailed, "failed", "connection refused"},
		{"policy status", term.StatusFailed, "failed", "connection refused"},
		{"policy show", term.StatusFailed, "failed", "connection refused"},
		{"policy history", term.StatusFailed, "failed", "connection refused"},
		{"prune policy --yes", term.StatusFailed, "failed", "connection refused"},
		{"clients block 203.0.113.7 --message x", term.StatusFailed, "failed", "connection refused"},
		{"clients allow 203.0.113.7 --message x", term.StatusFailed, "failed", "connection refused"},
		{"clients unblock 203.0.113.7", term.StatusFailed, "failed", "connection refused"},
		{"clients show 203.0.113.7", term.StatusFailed, "failed", "connection refused"},
		{"clients recent 203.0.113.7", term.StatusFailed, "failed", "connection refused"},
		{"clients top", term.StatusFailed, "failed", "connection refused"},
		{"clients list", term.StatusFailed, "failed", "connection refused"},
		{"clients import missing.txt --message x", term.StatusUsage, "usage", "no such file"},
		{"clients sync --name drop --from missing.txt --once", term.StatusFailed, "failed", "no such file"},
		{"clients export", term.StatusUsage, "usage", "an export is text"},
		{"rules test " + rules + " missing.log", term.StatusFailed, "failed", "connection refused"},
		{"rules test " + rules + " --from-nodes", term.StatusFailed, "failed", "connection refused"},
		{"rules diff " + rules, term.StatusFailed, "failed", "connection refused"},
		{"rules apply " + rules + " --yes", term.StatusFailed, "failed", "connection refused"},
		{"rules apply " + rules, term.StatusFailed, "failed", "connection refused"},
		{"rules status", term.StatusFailed, "failed", "connection refused"},
		{"rules list", term.StatusFailed, "failed", "connection refused"},
		{"rules compare login", term.StatusFailed, "failed", "connection refused"},
		{"rules show", term.StatusFailed, "failed", "connection refused"},
		{"rules rollout", term.StatusFailed, "failed", "connection refused"},
		{"policy rollout", term.StatusFailed, "failed", "connection refused"},
		{"rules history", term.StatusFailed, "failed", "connection refused"},
		{"prune rules --yes", term.StatusFailed, "failed", "connection refused"},
		{"shedder validate " + bad, term.StatusUsage, "usage", "problem"},
		{"shedder suggest --capacity 0", term.StatusUsage, "usage", "--capacity"},
		{"shedder show", term.StatusFailed, "failed", "connection refused"},
		{"shedder set enabled=false --yes", term.StatusFailed, "failed", "connection refused"},
		{"shedder history", term.StatusFailed, "failed", "connection refused"},
		{"prune shedder --yes", term.StatusFailed, "failed", "connection refused"},
		{"limits explain --client 203.0.113.7", term.StatusFailed, "failed", "connection refused"},
		{"limits global", term.StatusFailed, "failed", "connection refused"},
		{"limits inspect 203.0.113.7", term.StatusFailed, "failed", "connection refused"},
		{"limits reset --rule login --client 203.0.113.7 --yes", term.StatusFailed, "failed", "nothing was reset"},
		{"undo --yes", term.StatusFailed, "failed", "connection refused"},
		{"init --yes", term.StatusFailed, "failed", "connection refused"},
		{"topology apply " + topology + " --yes", term.StatusFailed, "failed", "connection refused"},
		{"topology diff " + topology, term.StatusFailed, "failed", "connection refused"},
		{"prune topology --yes", term.StatusFailed, "failed", "connection refused"},
		{"topology rollout", term.StatusFailed, "failed", "connection refused"},
		{"topology history", term.StatusFailed, "failed", "connection refused"},
		{"topology validate " + bad, term.StatusUsage, "usage", "problem"},
		{"topology show", term.StatusFailed, "failed", "connection refused"},
		{"dns --listen nowhere", term.StatusUsage, "usage", "--listen"},
		{"dns explain --client 203.0.113.7 --timeout 100ms", term.StatusFailed, "failed", ""},
		{"drain ams1 --message x --yes", term.StatusFailed, "failed", "connection refused"},
		{"undrain ams1 --yes", term.StatusFailed, "failed", "connection refused"},
		{"status", term.StatusFailed, "failed", "connection refused"},
		{"keys generate " + rules, term.StatusUsage, "usage", "file exists; name another file"},
		{"keys show " + rules, term.StatusUsage, "usage", "holds no PEM block"},
		{"runbook WeirNothing", term.StatusUsage, "usage", "regionctl runbook lists them"},
		{"audit list", term.StatusFailed, "failed", "connection refused"},
		{"audit verify", term.StatusFailed, "failed", "connection refused"},
		{"console --listen 0.0.0.0:8090", term.StatusUsage, "usage", "must be a loopback address"},
	}
	var commands []string
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		if !c.HasAvailableSubCommands() || c.Name() == "dns" {
			commands = append(commands, strings.TrimPrefix(c.CommandPath(), "regionctl "))
		}
		for _, below := range c.Commands() {
			walk(below)
		}
	}
	walk(Commands())
	fails := func(t *testing.T, status int, reason, saying string, args ...string) {
		t.Helper()
		var out, errOut buffer
		err := run(t.Context(), command.NewProgram(term.New(strings.NewReader(""), &out, &errOut)), append(args, "--fleet", fleet, "-o", "json"))
		lines := strings.Split(strings.TrimSuffix(errOut.String(), "\n"), "\n")
		var last struct{ Error map[string]any }
		require.NoError(t, json.Unmarshal([]byte(lines[len(lines)-1]), &last), "%v: %s", args, errOut.String())
		require.Equal(t, status, term.ExitStatus(err), errOut.String())
		require.Equal(t, []any{float64(status), reason}, []any{last.Error["status"], last.Error["reason"]}, args)
		require.Contains(t, last.Error["message"], saying, args)
		if out.String() != "" {
			require.True(t, json.Valid([]byte(out.String())), out.String())
		}
	}
	for _, c := range list {
		t.Run(c.args, func(t *testing.T) { fails(t, c.status, c.reason, c.saying, strings.Fields(c.args)...) })
	}
	for _, name := range commands {
		require.True(t, slices.ContainsFunc(list, func(c failure) bool {
			return c.args == name || strings.HasPrefix(c.args, name+" ")
		}), "%s: add a failure of it", name)
		fails(t, term.StatusUsage, "usage", "--nonsense", append(strings.Fields(name), "--nonsense")...)
	}
}

// A difference is not an error, but --exit-code makes it a failure.
func TestJSONErrorOfDiff(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "eu-west", "us-east")
	f.publish(t, rulesOf(1), "ana", f.names...)
	file := write(t, "r.yaml", rulesOf(2))
	r := f.run(t, "rules", "diff", file, "--exit-code", "-o", "json")
	require.True(t, parse[struct{ Different bool }](t, r.out).Different)
	require.Equal(t, `{"error":{"status":1,"reason":"failed","message":"standard output says what"}}`+"\n", r.errOut)
	require.Empty(t, f.run(t, "rules", "diff", file, "--exit-code").errOut)
	require.Equal(t, term.StatusUsage, f.run(t, "-o", "json", "undo", "rules", "--to", "ffffffffffff", "--yes").status)
}
