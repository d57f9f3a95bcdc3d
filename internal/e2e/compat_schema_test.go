package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/internal/testenv"
	"github.com/weir-edge/weir/pkg/limiter/rules"
)

type form struct {
	schema     int
	rule, what string
	apart      bool // two nodes do not count it exactly, or requests do not
}

// forms are rules that each need a newer schema than the one before, and what regionctl says
// needs it.
var forms = []form{
	{1, "key: [client_ip], algorithm: fixed_window, limit: 50", "", false},
	{2, "key: [client_ip/56], algorithm: fixed_window, limit: 50", "key: client_ip/56", false},
	{4, "key: [client_ip], algorithm: rolling_window, storage: large_ring, limit: 50", "storage: large_ring", false},
	{5, "key: [client_ip], algorithm: fixed_window, limit: 50, consistency: leased", "consistency", false},
	{6, "key: [client_ip], algorithm: fixed_window, limit: 50, consistency: reported", "consistency: reported", true},
	{7, "key: [descriptor], algorithm: fixed_window, limit: 50, domain: a, descriptors: [{key: b}]", "descriptors", true},
	{8, "key: [client_ip], algorithm: fixed_window, limit: 50, scope: global", "scope", false},
	{9, "key: [client_ip, risk], algorithm: fixed_window, limit: 50", "key: risk", false},
	{10, "key: [client_ip], algorithm: fixed_window, limit: 50, on_store_failure: closed, scope: global, global: {mode: escrow}", "global.mode: escrow", false},
	{11, "key: [client_ip], algorithm: fixed_window, limit: 50, under_load: {from: 0.5, share: 0.2}", "under_load", false},
	{12, "key: [client_ip], algorithm: fixed_window, limit: 50, experiment: {share: 0.1, algorithm: sliding_window}", "experiment", false},
	{13, "key: [client_ip], algorithm: token_bucket, limit: 50, on_store_failure: closed, scope: global, global: {mode: escrow}", "algorithm: token_bucket with global.mode: escrow", false},
	{14, "key: [client_ip], algorithm: fixed_window, limit: 50, consistency: leased, on_store_failure: closed, scope: global, global: {mode: escrow}", "consistency: leased with global.mode: escrow", false},
}

func TestFormsOfEverySchema(t *testing.T) {
	for _, form := range forms {
		_, d, err := rules.LoadDocument(form.document())
		require.NoError(t, err)
		schema, what := rules.Needs(d.Rules)
		require.Equal(t, form.schema, schema)
		require.Equal(t, form.what, regexp.MustCompile(`^rules\[0\]\.`).ReplaceAllString(what, ""))
	}
	require.Equal(t, rules.Schema, forms[len(forms)-1].schema, "add the new form, and see what an earlier release does with it")
}

func (f *form) path() string { return fmt.Sprintf("/form-%d", f.schema) }

func (f *form) document() []byte {
	match := fmt.Sprintf("match: {paths: [%q]}, ", f.path())
	if f.schema == 7 {
		match = "" // descriptors replace it
	}
	return fmt.Appendf(nil, "rules: [{id: form-%d, %s%s, window: 24h}]\n", f.schema, match, f.rule)
}

// A node of an earlier release follows every form that it can read, and counts with a node of
// this release. regionctl refuses the others and names the node. If another program publishes
// one, the node keeps its rules. make compat names the releases.
func TestTwoReleasesReadRules(t *testing.T) {
	for _, name := range []string{"WEIR_BEFORE", "WEIR_BEFORE_GLOBAL", "WEIR_BEFORE_LOANS"} {
		if before := os.Getenv(name); before != "" {
			t.Run(name, func(t *testing.T) { t.Parallel(); readForms(t, before, name != "WEIR_BEFORE") })
		}
	}
}

// readForms shows both nodes each form. A release before global limits has no listen.peer.
func readForms(t *testing.T, before string, peers bool) {
	f := startFleet(t, testenv.ConsulOptions{}, 0, "eu-west")
	s := f.regions[0]
	s.budget = generous
	url, ports := origin(t, nil), testenv.FreePorts(t, 2)
	for i, program := range []string{testenv.Program(t, "edge"), testenv.ProgramOf(t, before, "edge")} {
		config := s.config(url, i, filepath.Join(t.TempDir(), "rules.json"), "")
		if i == 0 || peers {
			config = fmt.Sprintf("  peer: {address: \"127.0.0.1:%d\", insecure: true}\n%s", ports[i], config)
			config += fmt.Sprintf("peer: {regions: [{name: eu-west, nodes: [{id: eu-west-0, address: \"127.0.0.1:%d\"}, {id: eu-west-1, address: \"127.0.0.1:%d\"}]}]}\n", ports[0], ports[1])
		}
		s.nodes = append(s.nodes, testenv.StartEdgeOf(t, program, config))
	}
	reads := 0 // the schema of the earlier node, once it has refused a form
	says := regexp.MustCompile(`nothing was changed: rules\[0\]\.(.*) needs a node that reads schema (\d+); eu-west-1 in eu-west reads (\d+): update it first`)
	runs := ""
	for i := range forms {
		form := &forms[i]
		file := filepath.Join(t.TempDir(), "rules.yaml")
		require.NoError(t, os.WriteFile(file, form.document(), 0o600))
		_, stderr, status := f.regionctl("rules", "apply", file, "--yes")
		if status == 0 {
			require.Zero(t, reads, "schema %d: an older one was refused", form.schema)
			for _, n := range s.nodes {
				n.WaitReady()
				now, err := rulesOf(n)
				require.NoError(t, err)
				runs = now.Version
			}
			if !form.apart {
				who := fmt.Sprintf("198.51.%d.1", form.schema)
				awaitRedis(t, s.nodes, form.path(), who)
				require.Equal(t, 50, exhaust(t, s.nodes, form.path(), who), "schema %d", form.schema)
			}
			continue
		}
		require.Equal(t, term.StatusFailed, status, stderr)
		m := says.FindStringSubmatch(stderr)
		require.NotNil(t, m, stderr)
		require.Equal(t, []string{form.what, strconv.Itoa(form.schema)}, m[1:3])
		have, err := strconv.Atoi(m[3])
		require.NoError(t, err)
		require.Less(t, have, form.schema)
		require.True(t, reads == 0 || reads == have, "%d, before %d", have, reads)
		reads = have
		version := s.publish(t, form.document())
		eventually(t, testenv.Patience, "the new node accepts it, the old one keeps its rules", func() bool {
			took, err := rulesOf(s.nodes[0])
			kept, err2 := rulesOf(s.nodes[1])
			return err == nil && err2 == nil && took.Version == version && kept.Version == runs && kept.Refused != nil && kept.Refused.Version == version
		})
	}
	if reads == 0 {
		reads = rules.Schema
	}
	t.Logf("%s reads %d of %d", before, reads, rules.Schema)
}
