package ctl

import (
	"bytes"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/ctl/command"
	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/kinds"
	"github.com/weir-edge/weir/internal/ctl/report"
	"github.com/weir-edge/weir/internal/ctl/rollout"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/internal/ctl/versions"
	"github.com/weir-edge/weir/pkg/region/consul"
)

func TestKeys(t *testing.T) {
	k, err := parseKeys([]string{"203.0.113.7", "header:x-api-key=a=b", "path=/x", "cookie:s=1", "query:q=2", "tier=pro", "method=PUT", "host=h"})
	require.NoError(t, err)
	require.Equal(t, keys{"client_ip": "203.0.113.7", "header:X-Api-Key": "a=b", "path": "/x", "cookie:s": "1", "query:q": "2", "tier": "pro", "method": "PUT", "host": "h"}, k)
	for _, bad := range []string{"abc", "client=", "user=1", "header=1", "header:=1", "path=x", "host:a=b", "client=x"} {
		_, err := parseKeys([]string{bad})
		require.Equal(t, term.StatusUsage, term.ExitStatus(err), bad)
	}
	_, err = parseKeys([]string{"::1", "client=::2"})
	require.ErrorContains(t, err, "given twice")

	d, err := fleet.ParseDocument(kinds.Rules, "rules.yaml", []byte(`rules:
  - {id: all-of-it, key: [client_ip, "header:X-A", "cookie:c", "query:q", host, path, method, tier], limit: 1, window: 1m, match: {headers: {x-a: v, X-B: w}}}
  - {id: other-value, key: [client_ip], limit: 1, window: 1m, match: {headers: {X-A: other}}}
  - {id: "off", key: [client_ip], limit: 1, window: 1m, mode: "off"}
`))
	require.NoError(t, err)
	k, err = parseKeys([]string{"::1", "header:X-A=v", "cookie:c=1", "query:q=2", "host=h", "path=/p?z=9", "method=PUT", "tier=t"})
	require.NoError(t, err)
	list, lacking := k.questions(kinds.RulesOf(d))
	require.Empty(t, lacking)
	require.Equal(t, []question{{"all-of-it", url.Values{
		"client": {"::1"}, "host": {"h"}, "method": {"PUT"}, "tier": {"t"}, "path": {"/p?q=2&z=9"}, "cookie": {"c=1"}, "header": {"X-A:v", "X-B:w"},
	}}}, list)
}

// Clocks of different people may be wrong; the change itself knows what it replaced.
func TestBeforeIgnoresClocks(t *testing.T) {
	at := func(version string, minute int, replaced string) consul.Change {
		return consul.Change{Pointer: consul.Pointer{Version: version, AppliedAt: time.Unix(int64(minute)*60, 0)}, Replaced: replaced}
	}
	m := versions.History{Changes: []consul.Change{at("c", 9, "a"), at("b", 5, "c"), at("a", 1, "")}}
	m.Pointer = &consul.Pointer{Version: "b", AppliedAt: time.Unix(300, 0)}
	p, err := m.Before()
	require.NoError(t, err)
	require.Equal(t, "c", p)
	m.Pointer = &consul.Pointer{Version: "d", AppliedAt: time.Unix(999, 0)} // its change was not recorded
	p, err = m.Before()
	require.NoError(t, err)
	require.Equal(t, "c", p)
	m.Changes = nil
	_, err = m.Before()
	require.ErrorContains(t, err, "the history has no version before d; name one with rollback --to")
}

func TestWhoami(t *testing.T) {
	t.Setenv("WEIR_USER", "ana")
	name, err := new(command.Program).Whoami("")
	require.NoError(t, err)
	require.Equal(t, "ana", name)
	name, err = new(command.Program).Whoami("bob")
	require.NoError(t, err)
	require.Equal(t, "bob", name)
	t.Setenv("WEIR_USER", "")
	name, err = new(command.Program).Whoami("")
	require.NoError(t, err)
	require.Regexp(t, ".+@.+", name)
	_, err = new(command.Program).Whoami("a\nb")
	require.Equal(t, term.StatusUsage, term.ExitStatus(err))
	_, err = new(command.Program).Whoami(strings.Repeat("x", 129))
	require.Equal(t, term.StatusUsage, term.ExitStatus(err))
}

func TestProgressBar(t *testing.T) {
	require.Equal(t, "a b", strings.Join(term.Distinct([]string{"a", "b", "a"}), " "))
	require.Equal(t, "[====================                    ]  50 %, 7 lines", progressBar(5, 10, 7))
	require.Equal(t, "7 lines, 5 MB", progressBar(5<<20, 0, 7))
}

// In the first hour no topology exists yet, which is not the PoPs' fault.
func TestStatusWithoutTopology(t *testing.T) {
	v := fleetStatus{Regions: []regionStatus{{Region: "eu-west", PoPs: []popStatus{{PoP: "ams1", Passing: 1, Nodes: []nodeStatus{{ID: "a", Passing: true}}}}}}}
	v.total()
	var b bytes.Buffer
	v.write(&b, term.Style{})
	require.Contains(t, b.String(), "1 region, 1 PoP, 1 of 1 edge passing")
	require.Contains(t, b.String(), "\nno topology is published, so regionctl dns answers no one yet; publish one with regionctl topology apply FILE\n")
	require.NotContains(t, b.String(), "serving")
	require.NotContains(t, b.String(), "not in the topology")
}

// A sentence about several regions has its verb in the plural.
func TestOutcomeOfSeveralRegions(t *testing.T) {
	f := func(want string, regions ...report.Region) {
		t.Helper()
		require.EqualError(t, report.Outcome(t.Context(), regions, true, nil, term.Partial), want)
	}
	region := func(name string, o rollout.Outcome) report.Region {
		r := report.Region{Result: rollout.Result{Name: name, Outcome: o}, Gets: "500ff230a293"}
		if o == rollout.Failed {
			r.Why = "no answer"
		}
		return r
	}
	f("eu-west has 500ff230a293 and us-east has not:\nus-east: no answer\nrunning this again finishes it",
		region("eu-west", rollout.Applied), region("us-east", rollout.Failed))
	f("eu-west, sa-east have 500ff230a293 and us-east, us-west have not:\nus-east: no answer\nus-west: no answer\nrunning this again finishes it",
		region("eu-west", rollout.Applied), region("sa-east", rollout.Applied), region("us-east", rollout.Failed), region("us-west", rollout.Failed))
}
