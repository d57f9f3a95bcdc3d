package ctl

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/ctl/change"
	"github.com/weir-edge/weir/internal/ctl/command"
	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/kinds"
	"github.com/weir-edge/weir/internal/ctl/rollout"
	"github.com/weir-edge/weir/internal/ctl/term"
)

// A region dies after the first one was switched.
func TestPartialFailure(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "eu-west", "us-east", "ap-south")
	f.publish(t, rulesOf(1), "ana", f.names...)
	edge := f.edge(t, "ap-south", "sin1", "sin1-1")
	file := write(t, "rules.yaml", rulesOf(2))

	dying := f.faulty(t, "us-east", atWrite(f.consuls["us-east"].Kill))
	p := &command.Program{Terminal: term.New(strings.NewReader(""), &buffer{}, &buffer{}), FleetFile: dying.file, Timeout: ample}
	p.Format = "json"
	doc, err := p.ReadDocument(kinds.Rules, p.Input(file))
	require.NoError(t, err)
	c := &change.Change{Program: p}
	c.Doc, c.By, c.Wait = doc, "ana", patience
	targets, err := p.Targets(kinds.Rules, nil)
	require.NoError(t, err)
	defer p.Close()
	require.NoError(t, c.Prepare(t.Context(), targets))
	require.NoError(t, c.Store(t.Context()))
	err = allAtOnce(t.Context(), c)
	require.Equal(t, term.StatusPartial, term.ExitStatus(err))
	require.ErrorContains(t, err, "eu-west, ap-south have "+doc.Version()+" and in us-east it may have taken effect:\nus-east: consul ")
	require.ErrorContains(t, err, "running this again finishes it")
	report := *c.Result
	require.Equal(t, []rollout.Outcome{rollout.Applied, rollout.Unknown, rollout.Applied}, []rollout.Outcome{report.Regions[0].Result, report.Regions[1].Result, report.Regions[2].Result})
	require.Equal(t, doc.Version(), edge.runs())

	// While it is unreachable, the change waits; afterwards it completes.
	r := f.run(t, "rules", "apply", file, "--yes")
	require.Equal(t, term.StatusFailed, r.status)
	require.Contains(t, r.errOut, "nothing was changed, because us-east cannot be reached")
	s := f.run(t, "rules", "status")
	require.Equal(t, term.StatusPartial, s.status)
	require.Contains(t, s.out, "us-east: not known")
	h := f.run(t, "rules", "history")
	require.Equal(t, term.StatusPartial, h.status)
	require.Contains(t, h.out, "eu-west, ap-south")

	f.consuls["us-east"].Start()
	f.unlock(t, "us-east")
	r = f.good(t, "rules", "apply", file, "--yes", "-o", "json")
	report = parse[change.Report](t, r.out)
	require.Equal(t, []rollout.Outcome{rollout.AlreadyThere, rollout.Applied, rollout.AlreadyThere}, []rollout.Outcome{report.Regions[0].Result, report.Regions[1].Result, report.Regions[2].Result})
	require.False(t, *report.Converged, "two regions have no edges")

	// Without the first region's lock, no other region is changed.
	c = &change.Change{Program: p}
	c.By = "ana"
	c.Doc, err = fleet.ParseDocument(kinds.Rules, "next", []byte(rulesOf(3)))
	require.NoError(t, err)
	require.NoError(t, c.Prepare(t.Context(), targets))
	require.NoError(t, c.Store(t.Context()))
	f.consuls["eu-west"].Kill()
	err = allAtOnce(t.Context(), c)
	require.Equal(t, term.StatusFailed, term.ExitStatus(err))
	require.ErrorContains(t, err, "nothing was changed: eu-west: consul ")
	require.Equal(t, doc.Version(), f.current(t, "us-east"))
	require.Equal(t, doc.Version(), f.current(t, "ap-south"))
}

// An interruption between two regions lets the write in progress finish.
func TestInterruptedBetweenRegions(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "eu-west", "us-east")
	ctx, cancel := context.WithCancel(t.Context())
	interrupting := f.faulty(t, "eu-west", atWrite(cancel))
	p := f.program(strings.NewReader(""), &buffer{}, &buffer{})
	p.FleetFile, p.Timeout, p.Format = interrupting.file, ample, "json"
	doc, err := fleet.ParseDocument(kinds.Rules, "rules.yaml", []byte(rulesOf(1)))
	require.NoError(t, err)
	targets, err := p.Targets(kinds.Rules, nil)
	require.NoError(t, err)
	defer p.Close()
	prepared := func() *change.Change {
		c := &change.Change{Program: p}
		c.Doc, c.By, c.Wait = doc, "ana", time.Second
		require.NoError(t, c.Prepare(t.Context(), targets))
		require.NoError(t, c.Store(t.Context()))
		return c
	}
	ended, end := context.WithCancel(t.Context())
	end()
	err = allAtOnce(ended, prepared())
	require.Equal(t, term.StatusInterrupted, term.ExitStatus(err))
	require.ErrorContains(t, err, "interrupted; nothing was changed")
	require.Empty(t, f.current(t, "eu-west"))

	c := prepared()
	err = allAtOnce(ctx, c)
	require.Equal(t, term.StatusInterrupted, term.ExitStatus(err))
	require.ErrorContains(t, err, "interrupted: eu-west has "+doc.Version()+" and us-east has not; running this again finishes it")
	require.Equal(t, []string{doc.Version(), ""}, []string{f.current(t, "eu-west"), f.current(t, "us-east")})
	require.Empty(t, f.locked(t, "rules"))

	// Another change replaces the version before this one checks the outcome.
	theirs := f.publish(t, rulesOf(2), "bob", "eu-west")
	c.Engine.Verify(t.Context())
	err = c.Outcome(t.Context())
	require.Equal(t, term.StatusConflict, term.ExitStatus(err))
	require.ErrorContains(t, err, "this was briefly active:\neu-west: bob applied "+theirs.Version)
}

// A region that dies between storing the document and being locked does not stop a change with
// --partial.
func TestRegionDiesBeforeItsLock(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "eu-west", "us-east", "ap-south")
	f.publish(t, rulesOf(1), "ana", f.names...)
	p := f.program(strings.NewReader(""), &buffer{}, &buffer{})
	p.FleetFile, p.Timeout, p.Format = f.file, ample, "json"
	targets, err := p.Targets(kinds.Rules, nil)
	require.NoError(t, err)
	defer p.Close()
	doc, err := fleet.ParseDocument(kinds.Rules, "rules.yaml", []byte(rulesOf(2)))
	require.NoError(t, err)
	c := &change.Change{Program: p}
	c.Doc, c.By, c.Partial = doc, "ana", true
	require.NoError(t, c.Prepare(t.Context(), targets))
	require.NoError(t, c.Store(t.Context()))
	f.consuls["eu-west"].Kill()
	err = allAtOnce(t.Context(), c)
	require.Equal(t, term.StatusPartial, term.ExitStatus(err))
	require.ErrorContains(t, err, "us-east, ap-south have "+doc.Version()+" and eu-west has not:\neu-west: consul ")
	report := *c.Result
	require.Equal(t, []rollout.Outcome{rollout.Unreachable, rollout.Applied, rollout.Applied},
		[]rollout.Outcome{report.Regions[0].Result, report.Regions[1].Result, report.Regions[2].Result})
	require.Equal(t, []string{doc.Version(), doc.Version()}, []string{f.current(t, "us-east"), f.current(t, "ap-south")})
	left := *f
	left.names = []string{"us-east", "ap-south"}
	require.Empty(t, left.locked(t, "rules"))
}

// With --partial, the site's region cannot store the document: the trial ends and nothing
// changes.
func TestPartialCanary(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "eu-west", "us-east")
	old := f.publish(t, rulesOf(1), "ana", f.names...)
	f.edge(t, "us-east", "iad1", "iad1-1")
	_, err := f.consuls["us-east"].Client().KV().Put(kv(f.prefix+"/rules/versions/"+versionOf(rulesOf(2)), "x"), nil)
	require.NoError(t, err)
	r := f.run(t, "rules", "apply", write(t, "rules.yaml", rulesOf(2)), "--canary", "iad1", "--partial", "--bake", "10s", "--yes")
	require.Equal(t, term.StatusFailed, r.status, r.errOut)
	require.Contains(t, r.errOut, "nothing was changed, because us-east did not store the document:\nus-east: ")
	require.Equal(t, old.Version, f.current(t, "us-east"))
}

// allAtOnce changes all regions that answered.
func allAtOnce(ctx context.Context, c *change.Change) error {
	return c.CarryOut(ctx, rollout.Plan{{Regions: command.RegionNames(change.TargetsOf(c.With(rollout.Untouched, rollout.AlreadyThere)))}}, nil)
}
