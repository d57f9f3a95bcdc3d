package ctl

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/ctl/rollout"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/internal/shedding"
	"github.com/weir-edge/weir/pkg/region/consul"
)

func TestShedder(t *testing.T) {
	t.Parallel()
	inFleets(t, map[string]func(*testing.T, *testFleet){
		"file":        testSetFile,
		"fields":      testSetFields,
		"temporary":   testSetForATime,
		"ends":        testRollbackEnds,
		"ended":       testAfterTheEnd,
		"concurrent":  testSetConcurrently,
		"unreachable": testSetUnreachable,
		"late":        testSetLate,
		"bad":         testSetBad,
		"damaged":     testSetDamaged,
		"show":        testShowSettings,
		"live":        testShowLive,
		"completion":  testCompleteSettings,
	})
}

// settingsOf returns a document with another knee.
func settingsOf(high int) string {
	return fmt.Sprintf("# tuned\nsignals: {inflight: {low: 0, high: %d}}\n", high)
}

func versionOf(document string) string {
	return consul.NewPointer([]byte(document), "", time.Time{}).Version
}

// pointer returns a region's settings pointer.
func (f *testFleet) pointer(t *testing.T, name string) *consul.Pointer {
	t.Helper()
	p, _, err := f.settings(name).Current(t.Context())
	require.NoError(t, err)
	return p
}

// stored returns the document that a region's pointer names.
func (f *testFleet) stored(t *testing.T, name string) *shedding.Document {
	t.Helper()
	text, err := f.settings(name).Load(t.Context(), *f.pointer(t, name))
	require.NoError(t, err)
	d, err := shedding.Parse(text)
	require.NoError(t, err)
	return d
}

// overwrite replaces what Consul holds under a key of the settings.
func (f *testFleet) overwrite(t *testing.T, name, key, value string) {
	t.Helper()
	_, err := f.consuls[name].Client().KV().Put(&api.KVPair{Key: f.prefix + "/shedder/" + key, Value: []byte(value)}, nil)
	require.NoError(t, err)
}

func testSetFile(t *testing.T, f *testFleet) {
	edges := []*stub{f.edge(t, "eu-west", "ams1", "ams1-1"), f.edge(t, "eu-west", "fra1", "fra1-1"), f.edge(t, "us-east", "iad1", "iad1-1")}
	file, version := write(t, "shedder.yaml", settingsOf(400)), versionOf(settingsOf(400))
	r := f.good(t, "shedder", "set", file, "--yes", "-m", "smaller origin", "--by", "ana")
	require.Contains(t, r.out, "eu-west, us-east: no shedder settings published yet; "+file+" is "+version+"\n"+
		"  compared with the built-in defaults:\n  signals.inflight.high: 800 → 400\n  1 changed, ")
	require.Contains(t, r.out, "REGION   RESULT   VERSION       EDGES\neu-west  applied  "+version+"  2 of 2\nus-east  applied  "+version+"  1 of 1\n")
	require.Contains(t, r.errOut, "eu-west  2 of 2 edges run "+version+"\n")
	for _, e := range edges {
		require.Equal(t, version, e.sheds())
		require.Empty(t, e.runs(), "rules are separate")
	}
	for _, name := range f.names {
		p := f.pointer(t, name)
		require.Equal(t, "ana", p.AppliedBy)
		changes, _, err := f.settings(name).History(t.Context())
		require.NoError(t, err)
		require.Equal(t, []consul.Change{{Pointer: *p, Message: "smaller origin"}}, changes)
	}
	// Again: nothing to do except to check.
	again := parse[changeReport](t, f.good(t, "shedder", "set", file, "-o", "json").out)
	require.True(t, again.Converged)
	require.Equal(t, version, again.Version)
	require.Equal(t, []rollout.Outcome{rollout.AlreadyThere, rollout.AlreadyThere}, []rollout.Outcome{again.Regions[0].Result, again.Regions[1].Result})

	// One region separately, and a document with the same meaning in other words.
	f.good(t, "shedder", "set", write(t, "other.yaml", "# else\n"+settingsOf(400)), "--yes", "--region", "us-east")
	r = f.good(t, "shedder", "set", file, "--yes", "--region", "us-east")
	require.Contains(t, r.out, "  no setting differs\n")
	require.Equal(t, version, edges[0].sheds())
	r = f.good(t, "shedder", "history", "--region", "us-east")
	require.Regexp(t, `(?m)^   WHEN +BY +VERSION +REPLACED +UNTIL +REGIONS +MESSAGE$`, r.out)
	require.Len(t, strings.Split(strings.TrimSpace(r.out), "\n"), 4)
	f.good(t, "shedder", "rollback", "--yes", "--region", "us-east")
	require.Equal(t, versionOf("# else\n"+settingsOf(400)), edges[2].sheds())
}

// Each region starts from what it has.
func testSetFields(t *testing.T, f *testFleet) {
	eu, us := f.edge(t, "eu-west", "ams1", "ams1-1"), f.edge(t, "us-east", "iad1", "iad1-1")
	r := f.good(t, "shedder", "set", "signals.inflight.high=400", "--yes")
	require.Contains(t, r.out, "no shedder settings published yet; signals.inflight.high=400 on top of the built-in defaults makes it "+eu.sheds())
	require.Contains(t, r.out, "  signals.inflight.high: 800 → 400\n")
	require.Equal(t, eu.sheds(), us.sheds())

	// These are valid only together.
	f.good(t, "shedder", "set", "start=0.6", "target=0.5", "classes.read.max_in_flight=750", "--region", "us-east", "--yes")
	require.NotEqual(t, eu.sheds(), us.sheds())
	r = f.good(t, "shedder", "set", "enabled=false", "-o", "json", "--yes", "-m", "kill switch")
	report := parse[changeReport](t, r.out)
	require.Empty(t, report.Version, "there are two versions")
	require.Equal(t, []string{eu.sheds(), us.sheds()}, []string{report.Regions[0].Version, report.Regions[1].Version})
	require.True(t, report.Converged)
	require.Contains(t, r.errOut, "  enabled: true → false\n")
	for name, start := range map[string]float64{"eu-west": 0.8, "us-east": 0.6} {
		d := f.stored(t, name)
		require.False(t, d.Enabled)
		require.Equal(t, start, d.Start)
		require.Equal(t, 400., d.Signals["inflight"].High.Value)
	}
	r = f.good(t, "shedder", "show")
	require.Equal(t, 1, strings.Count(r.out, "\n---\n"), "two documents")
	r = f.good(t, "shedder", "set", "signals.cpu=off", "candidates.stricter.target=0.4", "--yes", "--region", "us-east")
	require.Contains(t, r.out, "signals.cpu.low: 0.6 → none\n")
	require.Contains(t, r.out, "candidates.stricter.target: none → 0.4\n")

	// Setting the same values again changes nothing.
	again := parse[changeReport](t, f.good(t, "shedder", "set", "enabled=false", "-o", "json").out)
	require.Equal(t, rollout.AlreadyThere, again.Regions[0].Result)
}

func testSetForATime(t *testing.T, f *testFleet) {
	eu := f.edge(t, "eu-west", "ams1", "ams1-1")
	f.good(t, "shedder", "set", write(t, "shedder.yaml", settingsOf(400)), "--yes", "--region", "eu-west")
	lasting := f.pointer(t, "eu-west")
	s := f.converse(t, "shedder", "set", "enabled=false", "--for", "1h", "-o", "json")
	s.sees(t, "makes it ")
	s.sees(t, ", for 1h, and then "+lasting.Version+" again\n")
	s.sees(t, ", for 1h, and then what the configuration of the edges says\n")
	s.sees(t, "Apply to eu-west, us-east for 1h? [y/N] ")
	s.answer(t, "y")
	r := s.end(t)
	require.Zero(t, r.status, r.errOut)
	report := parse[changeReport](t, r.out)
	p := f.pointer(t, "eu-west")
	require.Equal(t, &consul.Named{Version: lasting.Version, SHA256: lasting.SHA256}, p.Then)
	require.Equal(t, p.AppliedAt.Add(time.Hour), *p.ExpiresAt)
	require.Equal(t, *p.ExpiresAt, report.ExpiresAt)
	require.Equal(t, p.Then, report.Regions[0].Then)
	require.Nil(t, report.Regions[1].Then)
	require.Nil(t, f.pointer(t, "us-east").Then, "nothing was published there")
	require.NotNil(t, f.pointer(t, "us-east").ExpiresAt)
	require.Equal(t, p.Version, eu.sheds())

	// On top of it, for another duration, and back to the same.
	f.good(t, "shedder", "set", "signals.inflight.high=300", "--for", "30m", "--yes")
	second := f.pointer(t, "eu-west")
	require.Equal(t, p.Then, second.Then)
	require.False(t, f.stored(t, "eu-west").Enabled, "the switch is still off")
	require.Nil(t, f.pointer(t, "us-east").Then)
	extended := f.good(t, "shedder", "set", "signals.inflight.high=300", "--for", "2h", "--yes")
	require.Contains(t, extended.out, "eu-west  applied", "the same for longer is a change")
	require.Equal(t, p.Then, f.pointer(t, "eu-west").Then)

	// It cannot become permanent by accident.
	r = f.run(t, "shedder", "set", "signals.inflight.high=200", "--yes")
	require.Equal(t, term.StatusUsage, r.status)
	require.Contains(t, r.errOut, "is active until "+until(f.pointer(t, "eu-west"))+", and without --for it would last with signals.inflight.high=200; give --for, or end it first")
	r = f.good(t, "shedder", "set", write(t, "shedder.yaml", settingsOf(250)), "--yes")
	require.Regexp(t, `eu-west, us-east run `+second.Version+` \(.*, until `, r.out)
	require.Nil(t, f.pointer(t, "eu-west").ExpiresAt)
	require.Equal(t, versionOf(settingsOf(250)), eu.sheds())

	// Temporary settings do not return.
	f.good(t, "shedder", "rollback", "--yes", "--region", "eu-west")
	require.Equal(t, lasting.Version, eu.sheds())
	r = f.run(t, "shedder", "rollback", "--yes", "--region", "us-east")
	require.Equal(t, term.StatusUsage, r.status)
	require.Contains(t, r.errOut, "the history knows no version before "+versionOf(settingsOf(250)))
	r = f.good(t, "shedder", "history")
	require.Contains(t, r.out, term.Stamp(*second.ExpiresAt))
}

func testRollbackEnds(t *testing.T, f *testFleet) {
	eu, us := f.edge(t, "eu-west", "ams1", "ams1-1"), f.edge(t, "us-east", "iad1", "iad1-1")
	f.good(t, "shedder", "set", write(t, "shedder.yaml", settingsOf(400)), "--yes", "--region", "eu-west")
	f.good(t, "shedder", "set", "enabled=false", "--for", "1h", "--yes", "--region", "eu-west")
	r := f.run(t, "shedder", "rollback", "--yes")
	require.Equal(t, term.StatusUsage, r.status)
	require.Contains(t, r.errOut, "eu-west has a temporary version, us-east does not; choose regions with --region; nothing was changed")

	f.good(t, "shedder", "set", "enabled=false", "--for", "1h", "--yes", "--region", "us-east")
	require.NotEqual(t, shedding.VersionConfig, us.sheds())
	r = f.good(t, "shedder", "rollback", "--yes", "--by", "bob")
	require.Contains(t, r.out, "back to "+versionOf(settingsOf(400))+"\n  enabled: false → true\n")
	require.Contains(t, r.out, "back to what the configuration of its edges says\n")
	require.Contains(t, r.out, "us-east  applied  config        1 of 1\n")
	require.Equal(t, versionOf(settingsOf(400)), eu.sheds())
	require.Equal(t, shedding.VersionConfig, us.sheds())
	require.Nil(t, f.pointer(t, "eu-west").ExpiresAt)
	r = f.good(t, "shedder", "history", "--region", "eu-west")
	require.Regexp(t, `(?m)^\*  .*  bob +`+versionOf(settingsOf(400))+` .* end of `, r.out)
	require.NotContains(t, f.good(t, "shedder", "history", "--region", "us-east").out, "*", "nothing is active")

	// Somebody else ended it between the prompt and the answer.
	f.good(t, "shedder", "set", "enabled=false", "--for", "1h", "--yes")
	s := f.converse(t, "shedder", "rollback")
	s.sees(t, "[y/N] ")
	f.good(t, "shedder", "rollback", "--yes", "--by", "bob")
	s.answer(t, "y")
	r = s.end(t)
	require.Equal(t, term.StatusConflict, r.status)
	require.Contains(t, r.errOut, "nothing was changed anywhere: eu-west: bob set ")
}

// Time passes, and nobody does anything.
func testAfterTheEnd(t *testing.T, f *testFleet) {
	eu, us := f.edge(t, "eu-west", "ams1", "ams1-1"), f.edge(t, "us-east", "iad1", "iad1-1")
	for _, high := range []int{400, 500} {
		f.good(t, "shedder", "set", write(t, "shedder.yaml", settingsOf(high)), "--yes", "--region", "eu-west")
	}
	lasting := versionOf(settingsOf(500))
	f.good(t, "shedder", "set", "enabled=false", "--for", "1s", "--yes")
	ended := f.pointer(t, "eu-west")
	require.Eventually(t, func() bool { return eu.sheds() == lasting && us.sheds() == shedding.VersionConfig }, patience, tick)

	r := f.good(t, "shedder", "show", "--region", "eu-west")
	require.Contains(t, r.out, "#: eu-west runs "+lasting+" again since "+ended.Version+" of ")
	require.Contains(t, r.out, settingsOf(500))
	r = f.run(t, "shedder", "show", "--region", "us-east")
	require.Equal(t, term.StatusUsage, r.status)
	require.Contains(t, r.out, "#: us-east: no shedder settings active since ")
	r = f.good(t, "shedder", "show", "--live")
	require.Contains(t, r.out, "converged: yes\n")
	require.Regexp(t, `(?m)^\*  .* `+lasting+` +`+versionOf(settingsOf(400))+` +- `, f.good(t, "shedder", "history", "--region", "eu-west").out)

	// What is active now counts.
	r = f.good(t, "shedder", "set", "signals.inflight.low=100", "--yes")
	require.Contains(t, r.out, "  signals.inflight.low: 0 → 100\n  1 changed")
	require.True(t, f.stored(t, "eu-west").Enabled)
	require.Equal(t, 800., f.stored(t, "us-east").Signals["inflight"].High.Value, "from the built-in defaults")
	f.good(t, "shedder", "rollback", "--yes", "--region", "eu-west")
	require.Equal(t, lasting, eu.sheds())

	f.good(t, "shedder", "set", "enabled=false", "--for", "1s", "--yes", "--region", "eu-west")
	require.Eventually(t, func() bool { return eu.sheds() == lasting }, patience, tick)
	f.good(t, "shedder", "rollback", "--yes", "--region", "eu-west")
	require.NotEqual(t, lasting, eu.sheds(), "it is active, so a rollback goes further back")
	require.True(t, f.stored(t, "eu-west").Enabled)
}

// Two people see the same difference and confirm it at the same time.
func testSetConcurrently(t *testing.T, f *testFleet) {
	for round := range 3 {
		var sessions []*session
		for i, by := range []string{"ana", "bob"} {
			s := f.converse(t, "shedder", "set", fmt.Sprintf("signals.inflight.high=%d", 500+10*round+i), "--by", by, "-o", "json")
			s.sees(t, "[y/N] ")
			sessions = append(sessions, s)
		}
		by, winner, loser := duel(t, sessions)
		won := parse[changeReport](t, winner.out)
		require.Contains(t, loser.errOut, "nothing was changed anywhere: eu-west: "+by+" set "+won.Version+" at ")
		require.Contains(t, loser.errOut, "look at it with regionctl shedder show, and set again if yours is to stand")
		for _, name := range f.names {
			require.Equal(t, won.Version, f.pointer(t, name).Version)
			changes, _, err := f.settings(name).History(t.Context())
			require.NoError(t, err)
			require.Len(t, changes, round+1, "the other left no trace")
		}
	}
}

func testSetUnreachable(t *testing.T, f *testFleet) {
	broken := newFleet(t, f.prefix, []string{"eu-west"}, f.consuls)
	broken.file = write(t, "fleet.yaml", "regions:\n  - {name: eu-west, consul: {addr: \""+f.consuls["eu-west"].Addr()+"\", prefix: "+f.prefix+"}}\n"+
		"  - {name: us-east, consul: {addr: \"127.0.0.1:1\"}}\n") // nothing listens there
	r := broken.run(t, "shedder", "set", "enabled=false", "--for", "1h", "--yes")
	require.Equal(t, term.StatusFailed, r.status)
	require.Contains(t, r.errOut, "nothing was changed, because us-east cannot be reached:\nus-east: consul 127.0.0.1:1: ")
	require.Nil(t, f.pointer(t, "eu-west"))
	r = broken.run(t, "shedder", "set", "enabled=false", "--for", "1h", "--yes", "--partial")
	require.Equal(t, term.StatusPartial, r.status)
	require.Contains(t, r.errOut, " and us-east has not:\nus-east: consul")
	first := f.pointer(t, "eu-west")
	require.NotNil(t, first)

	// The same command finishes, and all regions return at the same time.
	f.good(t, "shedder", "set", "enabled=false", "--for", "1h", "--yes")
	eu, us := f.pointer(t, "eu-west"), f.pointer(t, "us-east")
	require.Equal(t, eu, us)
	require.Equal(t, first.Version, eu.Version)
	require.Nil(t, eu.Then)
}

func testSetLate(t *testing.T, f *testFleet) {
	f.edge(t, "us-east", "iad1", "iad1-1", func(s *stub) { s.shedder.stays = "0123456789ab" })
	r := f.run(t, "shedder", "set", "enabled=false", "--yes", "--wait", "700ms")
	require.Equal(t, term.StatusPartial, r.status)
	require.Contains(t, r.errOut, "us-east: iad1-1 runs 0123456789ab\nregionctl shedder show --live shows whether they get there")
	version := f.pointer(t, "us-east").Version
	f.edge(t, "eu-west", "ams1", "ams1-1", func(s *stub) { s.shedder.refuses = version })
	r = f.run(t, "shedder", "set", "enabled=false", "--yes", "--region", "eu-west")
	require.Equal(t, term.StatusPartial, r.status)
	require.Contains(t, r.errOut, "eu-west: node ams1-1 refuses "+version+" and keeps ")
	require.Contains(t, r.errOut, "law: must be another\ncorrect the document, or go back with regionctl shedder rollback")

	// An edge that cannot be reached is judged by what it registered.
	f.edge(t, "us-east", "iad1", "iad1-2", func(s *stub) { s.silent, s.shedder.stays = true, version })
	r = f.run(t, "shedder", "show", "--live", "-o", "json")
	require.Equal(t, term.StatusPartial, r.status)
	nodes := parse[convergence](t, r.out).Regions[1].Nodes
	require.Equal(t, "catalogue", nodes[1].Seen)
	require.True(t, nodes[1].Converged)
	require.False(t, nodes[0].Converged)
}

func testSetBad(t *testing.T, f *testFleet) {
	for want, args := range map[string][]string{
		"start: must be greater than 0 and less than 1":                       {"start=2"},
		"eu-west: start=2 patience=1 has 2 problems (nothing was changed):\n": {"start=2", "patience=1"},
		"signals.inflight.high: must be greater than low":                     {"signals.inflight.low=900"},
		"classes: has no reads; there are critical, write, read, test":        {"classes.reads.max_in_flight=1"},
		"has 1 problem:\n  line 1: law: must be":                              {write(t, "bad.yaml", "law: none\n")},
		"give either one FILE, or FIELD=VALUE":                                {write(t, "good.yaml", settingsOf(1)), "start=0.5"},
		"no such file":                                                        {"nothing.yaml"},
		"FILE|FIELD=VALUE is missing":                                         {},
		"--for 200h0m0s: must be between 1s and 168h":                         {"enabled=false", "--for", "200h"},
		"--for 1ms: must be between":                                          {"enabled=false", "--for", "1ms"},
		"the document comes from standard input":                              {"-"},
		"no terminal to prompt on; pass --yes":                                {"enabled=false"},
	} {
		if !strings.Contains(want, "--yes") && !strings.Contains(want, "standard input") {
			args = append(args, "--yes")
		}
		r := f.run(t, append([]string{"shedder", "set"}, args...)...)
		require.Equal(t, term.StatusUsage, r.status, "%v\n%s", args, r.errOut)
		require.Contains(t, r.errOut, want, "%v", args)
	}
	require.Nil(t, f.pointer(t, "eu-west"))
	r := f.run(t, "shedder", "rollback", "--yes")
	require.Equal(t, term.StatusUsage, r.status)
	require.Contains(t, r.errOut, "eu-west: no shedder settings are active; name a version with --to; nothing was changed")
}

// Damaged data in Consul does not block a whole document, which repairs it.
func testSetDamaged(t *testing.T, f *testFleet) {
	file := write(t, "shedder.yaml", settingsOf(400))
	f.good(t, "shedder", "set", file, "--yes")
	f.overwrite(t, "eu-west", "current", "{")
	r := f.run(t, "shedder", "set", "enabled=false", "--yes")
	require.Equal(t, term.StatusFailed, r.status)
	require.Contains(t, r.errOut, "nothing was changed: eu-west: consul ")
	require.Contains(t, r.errOut, "; set a whole FILE")
	r = f.run(t, "shedder", "set", file, "--for", "1h", "--yes")
	require.Equal(t, term.StatusFailed, r.status)
	require.Contains(t, r.errOut, "after --for nothing good would return, so leave that out")
	r = f.run(t, "shedder", "show")
	require.Contains(t, r.out, "#: eu-west: what runs cannot be read\n#: consul ")
	f.good(t, "shedder", "set", file, "--yes")

	// The active temporary version is missing, but what follows it is not.
	f.good(t, "shedder", "set", "enabled=false", "--for", "1h", "--yes")
	f.overwrite(t, "eu-west", "versions/"+f.pointer(t, "eu-west").Version, "{}")
	f.good(t, "shedder", "rollback", "--yes")
	require.Equal(t, versionOf(settingsOf(400)), f.pointer(t, "eu-west").Version)
}
