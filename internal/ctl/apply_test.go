package ctl

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/ctl/rollout"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/internal/testenv"
)

// Most tests of commands share two Consuls, each test with its own keys.
func TestFleet(t *testing.T) {
	t.Parallel()
	inFleets(t, map[string]func(*testing.T, *testFleet){
		"concurrent":        testConcurrent,
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
		"nonsense":          testNonsense,
		"terminal":          testShowOnTerminal,
		"forgotten":         testForgotten,
		"lost answer":       testLostAnswer,
		"no edges":          testNoEdges,
		"look is bounded":   testLookIsBounded,
	})
}

// inFleets runs tests with two Consuls, each test with its own keys.
func inFleets(t *testing.T, tests map[string]func(*testing.T, *testFleet)) {
	names := []string{"eu-west", "us-east"}
	consuls := map[string]*testenv.Consul{}
	for _, name := range names {
		consuls[name] = testenv.StartConsul(t, testenv.ConsulOptions{Datacenter: name})
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
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

// Two people see the same difference and confirm it at the same time.
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

// duel makes ana and bob confirm at the same time and returns the winner.
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
