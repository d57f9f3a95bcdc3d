package ctl

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/ctl/rollout"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/internal/testenv"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// Most tests of commands share two Consuls, each with keys of its own.
func TestFleet(t *testing.T) {
	inFleets(t, map[string]func(*testing.T, *testFleet){
		"apply":             testApply,
		"confirm":           testConfirm,
		"partial":           testPartialFlag,
		"concurrent":        testConcurrent,
		"interleaved":       testInterleaved,
		"moved":             testMovedBeforeTheFirst,
		"moved while wait":  testMovedWhileWaiting,
		"refused":           testRefused,
		"behind":            testBehind,
		"catalogue":         testCatalogue,
		"repair":            testRepair,
		"not stored":        testNotStored,
		"interrupted":       testInterrupted,
		"diff":              testDiff,
		"rollback":          testRollback,
		"history":           testHistory,
		"show":              testShow,
		"status":            testStatus,
		"watch":             testWatch,
		"explain":           testExplain,
		"inspect":           testInspect,
		"reset":             testReset,
		"completion":        testCompletion,
		"replay":            testReplay,
		"canary promoted":   testCanaryPromoted,
		"canary limits":     testCanaryLimits,
		"canary fails":      testCanaryFails,
		"canary idle":       testCanaryIdle,
		"canary interrupt":  testCanaryInterrupted,
		"canary overtaken":  testCanaryOvertaken,
		"canary replaced":   testCanaryReplaced,
		"canary refused":    testCanaryRefused,
		"canary elsewhere":  testCanaryElsewhere,
		"canary restarted":  testCanaryRestarted,
		"canary taken over": testCanaryTakenOver,
		"canary silent":     testCanarySilent,
		"wrong node":        testWrongNode,
		"orphan":            testOrphan,
		"trial ended":       testTrialEnded,
		"finishing":         testFinishing,
		"strangers":         testStrangers,
		"nonsense":          testNonsense,
		"terminal":          testShowOnTerminal,
		"forgotten":         testForgotten,
		"lost answer":       testLostAnswer,
		"no edges":          testNoEdges,
		"look is bounded":   testLookIsBounded,
	})
}

// inFleets runs tests with two Consuls, each test with keys of its own.
func inFleets(t *testing.T, tests map[string]func(*testing.T, *testFleet)) {
	names := []string{"eu-west", "us-east"}
	consuls := map[string]*testenv.Consul{}
	for _, name := range names {
		consuls[name] = testenv.StartConsul(t, testenv.ConsulOptions{Datacenter: name})
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test(t, newFleet(t, "test"+time.Now().Format("150405.000000000"), names, consuls))
		})
	}
}

func parse[T any](t *testing.T, text string) T {
	t.Helper()
	var v T
	require.NoError(t, json.Unmarshal([]byte(text), &v), text)
	return v
}

func testApply(t *testing.T, f *testFleet) {
	edges := []*stub{f.edge(t, "eu-west", "ams1", "ams1-1"), f.edge(t, "eu-west", "fra1", "fra1-1"), f.edge(t, "us-east", "iad1", "iad1-1")}
	file := write(t, "rules.yaml", rulesOf(100))
	before := time.Now().Add(-time.Second)
	r := f.good(t, "rules", "apply", file, "--yes", "-m", "begin", "--by", "ana")
	version := consul.NewPointer([]byte(rulesOf(100)), "", before).Version
	require.Contains(t, r.out, "eu-west, us-east: no rules published yet; "+file+" is "+version)
	require.Contains(t, r.out, "+ per-client  100 in 1m by client_ip (rolling_window)")
	require.Contains(t, r.out, "REGION   RESULT   VERSION       EDGES\neu-west  applied  "+version+"  2 of 2\nus-east  applied  "+version+"  1 of 1\n")
	require.Contains(t, r.errOut, "eu-west  2 of 2 edges run "+version+"\n")
	for _, e := range edges {
		require.Equal(t, version, e.runs())
	}
	for _, name := range f.names {
		p, _, err := f.rules(name).Current(t.Context())
		require.NoError(t, err)
		require.Equal(t, "ana", p.AppliedBy)
		require.WithinRange(t, p.AppliedAt, before, time.Now())
		stored, err := f.rules(name).Load(t.Context(), *p)
		require.NoError(t, err)
		require.Equal(t, rulesOf(100), string(stored))
		changes, _, err := f.rules(name).History(t.Context())
		require.NoError(t, err)
		require.Equal(t, []consul.Change{{Pointer: *p, Message: "begin"}}, changes)
	}

	// Again: nothing to do but to look.
	again := parse[changeReport](t, f.good(t, "rules", "apply", file, "-o", "json").out)
	require.True(t, again.Converged)
	require.Equal(t, version, again.Version)
	require.Zero(t, again.AppliedAt)
	for i, edges := range []int{2, 1} {
		require.Equal(t, rollout.AlreadyThere, again.Regions[i].Result)
		require.Equal(t, edges, *again.Regions[i].Running)
	}
	changes, _, err := f.rules("eu-west").History(t.Context())
	require.NoError(t, err)
	require.Len(t, changes, 1)

	// One region by itself, from standard input.
	var out, errOut buffer
	p := &program{Terminal: term.New(strings.NewReader(rulesOf(50)), &out, &errOut)}
	require.NoError(t, p.run(t.Context(), []string{"rules", "apply", "-", "--yes", "--region", "us-east", "-o", "json", "--fleet", f.file}), errOut.String())
	require.Equal(t, version, f.current(t, "eu-west"))
	report := parse[changeReport](t, out.String())
	require.Equal(t, rollout.Applied, report.Regions[0].Result)
	require.Equal(t, version, report.Regions[0].Before.Version)
	require.Equal(t, report.Version, edges[2].runs())
	require.Equal(t, version, edges[0].runs())
	changes, _, err = f.rules("us-east").History(t.Context())
	require.NoError(t, err)
	require.Equal(t, version, changes[0].Replaced)
	require.Contains(t, errOut.String(), "limit: 100 → 50", "the difference is no part of the JSON")
}

func testConfirm(t *testing.T, f *testFleet) {
	file := write(t, "rules.yaml", rulesOf(100))
	r := f.run(t, "rules", "apply", file)
	require.Equal(t, term.StatusUsage, r.status)
	require.Contains(t, r.errOut, "regionctl: no terminal to prompt on; pass --yes")
	require.Contains(t, r.out, "+ per-client", "the difference is shown all the same")

	s := f.converse(t, "rules", "apply", file)
	s.sees(t, "to eu-west, us-east? [y/N] ")
	s.answer(t, "no")
	require.Equal(t, term.StatusFailed, s.end(t).status)

	s = f.converse(t, "rules", "apply", file)
	s.sees(t, "[y/N] ")
	s.cancel()
	r = s.end(t)
	require.Equal(t, term.StatusInterrupted, r.status)
	require.Contains(t, r.errOut, "interrupted; nothing was changed")
	require.Empty(t, f.current(t, "eu-west"))

	s = f.converse(t, "rules", "apply", file)
	s.sees(t, "[y/N] ")
	s.answer(t, "Y")
	r = s.end(t)
	require.Zero(t, r.status, r.errOut)
	require.Contains(t, r.errOut, "eu-west: no edge is registered there")
	require.NotEmpty(t, f.current(t, "us-east"))

	r = f.run(t, "rules", "apply", write(t, "bad.yaml", "rules: [{id: A, key: [client_ip], limit: 0, window: 1m}]"), "--yes")
	require.Equal(t, term.StatusUsage, r.status)
	require.Contains(t, r.errOut, "has 2 problems:\n  line 1: rules[0].id: must be")
	require.Contains(t, r.errOut, "\n  line 1: rules[0].limit: must be")
	require.Equal(t, term.StatusUsage, f.run(t, "rules", "apply", file, "--yes", "--region", "mars").status)
}

func testPartialFlag(t *testing.T, f *testFleet) {
	broken := newFleet(t, f.prefix, []string{"eu-west"}, f.consuls)
	addr := "127.0.0.1:1" // nobody listens there
	broken.file = write(t, "fleet.yaml", "regions:\n  - {name: eu-west, consul: {addr: \""+f.consuls["eu-west"].Addr()+"\", prefix: "+f.prefix+"}}\n"+
		"  - {name: us-east, consul: {addr: \""+addr+"\", prefix: "+f.prefix+"}}\n")
	file := write(t, "rules.yaml", rulesOf(100))
	r := broken.run(t, "rules", "apply", file, "--yes")
	require.Equal(t, term.StatusFailed, r.status)
	require.Contains(t, r.errOut, "nothing was changed, because us-east cannot be reached:\nus-east: consul 127.0.0.1:1: ")
	require.Contains(t, r.errOut, "continue without it with --partial")
	require.Empty(t, f.current(t, "eu-west"))

	r = broken.run(t, "rules", "apply", file, "--yes", "--partial", "-o", "json")
	require.Equal(t, term.StatusPartial, r.status, r.errOut)
	report := parse[changeReport](t, r.out)
	require.Equal(t, rollout.Applied, report.Regions[0].Result)
	require.Equal(t, rollout.Unreachable, report.Regions[1].Result)
	require.Contains(t, r.errOut, "eu-west has "+report.Version+" and us-east has not:\nus-east: consul")
	require.NotEmpty(t, f.current(t, "eu-west"))

	// With the whole fleet in reach again, the same command finishes.
	r = f.good(t, "rules", "apply", file, "--yes", "-o", "json")
	report = parse[changeReport](t, r.out)
	require.Equal(t, rollout.AlreadyThere, report.Regions[0].Result)
	require.Equal(t, rollout.Applied, report.Regions[1].Result)

	broken.file = write(t, "fleet.yaml", "regions:\n  - {name: us-east, consul: {addr: \""+addr+"\"}}\n")
	r = broken.run(t, "rules", "apply", file, "--yes", "--partial")
	require.Equal(t, term.StatusFailed, r.status)
	require.Contains(t, r.errOut, "nothing was changed, no region can be reached")
}

// Two people look at the same difference and say yes at the same time.
func testConcurrent(t *testing.T, f *testFleet) {
	limit := 100
	for round := range 5 {
		var sessions []*session
		for _, by := range []string{"ana", "bob"} {
			limit++
			s := f.converse(t, "rules", "apply", write(t, "rules.yaml", rulesOf(limit)), "--by", by, "-o", "json")
			s.sees(t, "[y/N] ")
			sessions = append(sessions, s)
		}
		by, winner, loser := duel(t, sessions)
		won, lostReport := parse[changeReport](t, winner.out), parse[changeReport](t, loser.out)
		require.Contains(t, loser.errOut, "nothing was changed anywhere: eu-west: "+by+" applied "+won.Version+" at ")
		for _, r := range lostReport.Regions {
			require.Equal(t, rollout.Lost, r.Result)
			require.Equal(t, by, r.Now.AppliedBy)
		}
		for _, name := range f.names {
			require.Equal(t, won.Version, f.current(t, name))
			changes, _, err := f.rules(name).History(t.Context())
			require.NoError(t, err)
			require.Len(t, changes, round+1, "the other left no trace")
			require.Equal(t, won.Version, changes[0].Version)
		}
	}
}

// duel has ana and bob say yes at the same time, and returns who wins.
func duel(t *testing.T, sessions []*session) (by string, winner, loser result) {
	t.Helper()
	for _, s := range sessions {
		go s.answer(t, "y")
	}
	by, winner, loser = "ana", sessions[0].end(t), sessions[1].end(t)
	if winner.status != 0 {
		by, winner, loser = "bob", loser, winner
	}
	require.Zero(t, winner.status, winner.errOut)
	require.Equal(t, term.StatusConflict, loser.status, loser.errOut)
	return by, winner, loser
}

// Somebody changes the second region alone, between the two steps of a change of both.
func testInterleaved(t *testing.T, f *testFleet) {
	old := f.publish(t, rulesOf(1), "ana", f.names...)
	s := f.converse(t, "rules", "apply", write(t, "rules.yaml", rulesOf(2)), "-o", "json")
	s.sees(t, "[y/N] ")
	theirs := f.publish(t, rulesOf(3), "bob", "us-east")
	s.answer(t, "y")
	r := s.end(t)
	require.Equal(t, term.StatusConflict, r.status)
	report := parse[changeReport](t, r.out)
	require.Equal(t, []rollout.Outcome{rollout.Untouched, rollout.Lost}, []rollout.Outcome{report.Regions[0].Result, report.Regions[1].Result})
	require.Contains(t, r.errOut, "nothing was changed anywhere: us-east: bob applied "+theirs.Version)
	require.Equal(t, []string{old.Version, theirs.Version}, []string{f.current(t, "eu-west"), f.current(t, "us-east")})
}

// The first region is there already and is not written, so that only looking again tells
// that it was moved on.
func testMovedBeforeTheFirst(t *testing.T, f *testFleet) {
	f.publish(t, rulesOf(2), "ana", "eu-west")
	old := f.publish(t, rulesOf(1), "ana", "us-east")
	s := f.converse(t, "rules", "apply", write(t, "rules.yaml", rulesOf(2)))
	s.sees(t, "to us-east? [y/N] ")
	f.publish(t, rulesOf(3), "bob", "eu-west")
	s.answer(t, "y")
	r := s.end(t)
	require.Equal(t, term.StatusConflict, r.status)
	require.Contains(t, r.errOut, "nothing was changed anywhere: eu-west: bob applied")
	require.Equal(t, old.Version, f.current(t, "us-east"))
}

func testMovedWhileWaiting(t *testing.T, f *testFleet) {
	f.edge(t, "eu-west", "ams1", "ams1-1", func(s *stub) { s.stays = true })
	s := f.converse(t, "rules", "apply", write(t, "rules.yaml", rulesOf(2)), "--yes", "--wait", "20s")
	s.sees(t, "0 of 1 edges run")
	f.publish(t, rulesOf(3), "bob", "eu-west")
	r := s.end(t)
	require.Equal(t, term.StatusConflict, r.status)
	require.Contains(t, r.errOut, "eu-west: bob applied")
}

func testRefused(t *testing.T, f *testFleet) {
	version := consul.NewPointer([]byte(rulesOf(2)), "", time.Now()).Version
	f.publish(t, rulesOf(1), "ana", f.names...)
	e := f.edge(t, "eu-west", "ams1", "ams1-1", func(s *stub) {
		s.refuses, s.reasons = version, []string{"rules[0].limit: must be odd", "rules[0].window: must be prime\x1b[2J"}
	})
	require.Eventually(t, func() bool { return e.runs() != "" }, patience, tick)
	began := time.Now()
	r := f.run(t, "rules", "apply", write(t, "rules.yaml", rulesOf(2)), "--yes", "--wait", "1h")
	require.Equal(t, term.StatusPartial, r.status)
	require.Less(t, time.Since(began), 15*time.Second, "there is nothing to wait for")
	require.Contains(t, r.errOut, "eu-west: node ams1-1 refuses "+version+" and keeps "+e.runs()+":\n")
	require.Contains(t, r.errOut, "rules[0].limit: must be odd\n")
	require.Contains(t, r.errOut, "must be prime?[2J", "a terminal must not obey an edge")
	require.Contains(t, r.errOut, "regionctl rules rollback")

	s := f.run(t, "rules", "status")
	require.Equal(t, term.StatusPartial, s.status)
	require.Contains(t, s.out, "ams1-1 refused "+version+":\n      rules[0].limit: must be odd\n")
}

func testBehind(t *testing.T, f *testFleet) {
	f.edge(t, "us-east", "iad1", "iad1-1", func(s *stub) { s.stays, s.version = true, "0123456789ab" })
	r := f.run(t, "rules", "apply", write(t, "rules.yaml", rulesOf(2)), "--yes", "--wait", "700ms", "-o", "json")
	require.Equal(t, term.StatusPartial, r.status)
	require.Contains(t, r.errOut, "us-east: iad1-1 runs 0123456789ab\n")
	report := parse[changeReport](t, r.out)
	require.False(t, report.Converged)
	require.Equal(t, rollout.Applied, report.Regions[1].Result)
	require.Equal(t, "iad1-1", report.Regions[1].Behind[0].ID)
	r = f.good(t, "rules", "apply", write(t, "rules.yaml", rulesOf(3)), "--yes", "--wait", "0")
	require.NotContains(t, r.errOut, "edges run")
}

// An edge that cannot be asked is known by what it registered.
func testCatalogue(t *testing.T, f *testFleet) {
	version := consul.NewPointer([]byte(rulesOf(2)), "", time.Now()).Version
	e := f.edge(t, "us-east", "iad1", "iad1-1", func(s *stub) { s.silent, s.stays, s.version = true, true, "0123456789ab" })
	s := f.converse(t, "rules", "apply", write(t, "rules.yaml", rulesOf(2)), "--yes")
	s.sees(t, "us-east  0 of 1 edges run")
	e.mu.Lock()
	e.version = version
	e.mu.Unlock()
	f.register(t, e)
	r := s.end(t)
	require.Zero(t, r.status, r.errOut)
	f.edge(t, "eu-west", "ams1", "ams1-1", func(s *stub) { s.version = version })
	status := parse[convergence](t, f.good(t, "rules", "status", "-o", "json").out)
	require.Equal(t, "catalogue", status.Regions[1].Nodes[0].Seen)
	require.Contains(t, status.Regions[1].Nodes[0].AdminError, "answered 500: the stub is silent")
}

// What is damaged in Consul is no obstacle to applying, which repairs it.
func testRepair(t *testing.T, f *testFleet) {
	kv := f.consuls["eu-west"].Client().KV()
	put := func(key, value string) {
		t.Helper()
		pair, _, err := kv.Get(key, nil)
		require.NoError(t, err)
		pair.Value = []byte(value)
		_, err = kv.Put(pair, nil)
		require.NoError(t, err)
	}
	p := f.publish(t, rulesOf(1), "ana", f.names...)
	put(f.prefix+"/rules/current", "{")
	file := write(t, "rules.yaml", rulesOf(2))
	r := f.run(t, "rules", "diff", file)
	require.Zero(t, r.status)
	require.Contains(t, r.out, "eu-west: what runs cannot be read")
	s := f.run(t, "rules", "status")
	require.Equal(t, term.StatusPartial, s.status)
	require.Contains(t, s.out, "eu-west: not known\n")
	f.good(t, "rules", "apply", file, "--yes")
	require.Equal(t, f.current(t, "us-east"), f.current(t, "eu-west"))

	// A document that is gone is stored again by applying it, and damage is reported.
	_, err := kv.Delete(f.prefix+"/rules/versions/"+f.current(t, "eu-west"), nil)
	require.NoError(t, err)
	f.good(t, "rules", "apply", file, "--yes")
	now, _, err := f.rules("eu-west").Current(t.Context())
	require.NoError(t, err)
	_, err = f.rules("eu-west").Load(t.Context(), *now)
	require.NoError(t, err)
	put(f.prefix+"/rules/versions/"+p.Version, "rules: []")
	r = f.run(t, "rules", "rollback", "--to", p.Version, "--region", "eu-west", "--yes")
	require.Equal(t, term.StatusFailed, r.status)
	require.Contains(t, r.errOut, "nothing was changed: eu-west: ")
	require.Contains(t, r.errOut, "delete the key and apply the document again")
}

// One region cannot store the document: no region is pointed at it.
func testNotStored(t *testing.T, f *testFleet) {
	version := consul.NewPointer([]byte(rulesOf(2)), "", time.Now()).Version
	_, err := f.consuls["us-east"].Client().KV().Put(&api.KVPair{Key: f.prefix + "/rules/versions/" + version, Value: []byte("other bytes")}, nil)
	require.NoError(t, err)
	file := write(t, "rules.yaml", rulesOf(2))
	r := f.run(t, "rules", "apply", file, "--yes")
	require.Equal(t, term.StatusFailed, r.status)
	require.Contains(t, r.errOut, "nothing was changed, because us-east did not store the document:\nus-east: consul ")
	require.Empty(t, f.current(t, "eu-west"))
	r = f.run(t, "rules", "apply", file, "--yes", "--partial")
	require.Equal(t, term.StatusPartial, r.status)
	require.Equal(t, version, f.current(t, "eu-west"))
	require.Empty(t, f.current(t, "us-east"))
}

func testInterrupted(t *testing.T, f *testFleet) {
	f.edge(t, "eu-west", "ams1", "ams1-1", func(s *stub) { s.stays = true })
	s := f.converse(t, "rules", "apply", write(t, "rules.yaml", rulesOf(2)), "--yes", "--wait", "1h")
	s.sees(t, "0 of 1 edges run")
	s.cancel()
	r := s.end(t)
	require.Equal(t, term.StatusInterrupted, r.status)
	require.Contains(t, r.errOut, "interrupted while waiting; eu-west, us-east has")
	require.NotEmpty(t, f.current(t, "us-east"))
}
