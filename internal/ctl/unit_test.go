package ctl

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/ctl/command"
	"github.com/weir-edge/weir/internal/ctl/overview"
	"github.com/weir-edge/weir/internal/ctl/report"
	"github.com/weir-edge/weir/internal/ctl/requests"
	"github.com/weir-edge/weir/internal/ctl/rollout"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/internal/ctl/versions"
	"github.com/weir-edge/weir/pkg/region/consul"
)

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
	require.ErrorContains(t, err, "the history has no version before d; name one with undo --to")
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
	require.Equal(t, "[====================                    ]  50%, 7 lines", requests.ProgressBar(5, 10, 7))
	require.Equal(t, "7 lines, 5 MB", requests.ProgressBar(5<<20, 0, 7))
}

// In the first hour no topology exists yet, which is not the PoPs' fault.
func TestStatusWithoutTopology(t *testing.T) {
	v := overview.Fleet{Regions: []overview.RegionStatus{{Region: "eu-west", PoPs: []overview.PopStatus{{PoP: "ams1", Passing: new(1), Nodes: []overview.NodeStatus{{ID: "a", Passing: true}}}}}}}
	v.Total()
	var b bytes.Buffer
	v.Write(&b, term.Style{})
	require.Contains(t, b.String(), "1 region, 1 PoP, 1 of 1 edge passing")
	require.Contains(t, b.String(), "\nno topology is published, so regionctl dns answers no one yet; publish one with regionctl topology apply FILE\n")
	require.NotContains(t, b.String(), "serving")
	require.NotContains(t, b.String(), "not in the topology")
}

// An edge whose caps refuse requests sheds, although its level is 0.
func TestStatusCountsSheddingByCaps(t *testing.T) {
	v := overview.Fleet{Regions: []overview.RegionStatus{{Region: "eu-west", PoPs: []overview.PopStatus{{PoP: "ams1", Passing: new(2), Nodes: []overview.NodeStatus{
		{ID: "a", Passing: true, ShedLevel: new(0.0), Shedding: true}, {ID: "b", Passing: true, ShedLevel: new(0.0)},
	}}}}}}
	v.Total()
	var b bytes.Buffer
	v.Write(&b, term.Style{})
	require.Contains(t, b.String(), ", 1 edge shedding")
	require.Regexp(t, `(?m)a +passing .* caps `, b.String())
	require.Regexp(t, `(?m)b +passing .* 0\.00 `, b.String())
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
