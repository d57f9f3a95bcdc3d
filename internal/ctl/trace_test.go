package ctl

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/ctl/audit"
)

// A regionctl is killed (SIGKILL) after each of its writes, in one apply after the other. What is
// active always stands in the history.
func TestKilledAtAnyWrite(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "eu-west", "us-east")
	f.publish(t, rulesOf(1), "eve", f.names...)
	limit := 1
	for _, name := range f.names {
		for n, killed := int32(1), true; killed; n++ {
			limit++
			var puts atomic.Int32
			killed = f.killWhen(t, name, true, func(r *http.Request) bool { return writes(r, "") && puts.Add(1) == n },
				"rules", "apply", write(t, "next.yaml", rulesOf(limit)), "--by", "ana", "--yes", "--wait", "0", "--break-lock")
			f.good(t, "audit", "verify")
		}
	}
	require.Equal(t, versionOf(rulesOf(limit)), f.current(t, "us-east"))
	f.killWhen(t, "us-east", true, func(r *http.Request) bool { return writes(r, "/clients/current") },
		"clients", "block", "192.0.2.1", "--message", "x", "--by", "ana", "--wait", "0")
	f.good(t, "audit", "verify")
}

// A canary that is rolled back stands in the history, and in the audit, with who, when and why.
func TestCanaryLeavesATrace(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]func(*testing.T, *site) (by, why string){
		"by the judge": func(t *testing.T, s *site) (string, string) {
			s.refused(t, 1, s.args("--bake", "300ms", "--min-requests", "1000000", "--yes", "--by", "ana")...)
			return "ana", "ams1 had only "
		},
		"by Ctrl-C": func(t *testing.T, s *site) (string, string) {
			ana := s.converse(t, s.args("--bake", "10m", "--yes", "--by", "ana")...)
			ana.sees(t, " left")
			ana.cancel()
			require.Equal(t, 130, ana.end(t).status)
			return "ana", "interrupted"
		},
		"by another operator": func(t *testing.T, s *site) (string, string) {
			ana := s.converse(t, s.args("--bake", "10m", "--yes", "--by", "ana")...)
			ana.sees(t, " left")
			s.good(t, "rules", "apply", write(t, "three.yaml", rulesOf(3)), "--yes", "--by", "bob", "--wait", "0")
			require.Equal(t, 4, ana.end(t).status)
			return "", "ended: " // ana's regionctl may notice before bob's ends the canary
		},
		"by undo, after a kill": func(t *testing.T, s *site) (string, string) {
			s.killTrial(t)
			s.good(t, "undo", "rules", "--yes", "--by", "bob", "--wait", "0")
			return "bob", "rollback of the rollout of " + versionOf(rulesOf(2))
		},
		"by the same trial, after a kill": func(t *testing.T, s *site) (string, string) {
			s.killTrial(t)
			s.refused(t, 1, s.args("--bake", "300ms", "--min-requests", "1000000", "--yes", "--by", "bob")...)
			return "bob", "it begins again"
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fleet := startFleet(t, "eu-west", "us-east")
			fleet.publish(t, rulesOf(9), "eve", fleet.names...)
			s := newSite(t, fleet, load(100, 2, 0))
			began := time.Now()
			by, why := f(t, s)
			for _, list := range [][]audit.Entry{
				parse[[]audit.Entry](t, s.good(t, "rules", "history", "-o", "json").out), parse[[]audit.Entry](t, s.good(t, "audit", "list", "-o", "json").out),
			} {
				var found []string
				for _, e := range list {
					if e.Canary == "ams1" && (by == "" || e.AppliedBy == by) && e.AppliedAt.After(began) {
						require.Equal(t, []any{versionOf(rulesOf(2)), []string{"eu-west"}}, []any{e.Version, e.Regions})
						found = append(found, e.Message)
					}
				}
				require.Contains(t, fmt.Sprint(found), why)
			}
			s.good(t, "audit", "verify")
			s.good(t, "undo", "rules", "--yes", "--wait", "0")
			require.NotEqual(t, versionOf(rulesOf(2)), s.current(t, "eu-west"), "what was only tried is no way back")
			s.good(t, "audit", "verify")
		})
	}
}

// Data in the place of a canary that cannot be read is replaced by the next trial.
func TestTrialReplacesInvalidData(t *testing.T) {
	t.Parallel()
	fleet := startFleet(t, "eu-west", "us-east")
	fleet.publish(t, rulesOf(9), "eve", fleet.names...)
	s := newSite(t, fleet, load(100, 2, 0))
	c := s.open["eu-west"]
	require.NoError(t, c.Put(t.Context(), c.Documents("rules").CanaryKey("ams1"), []byte("{")))
	s.good(t, s.args("--bake", "300ms", "--yes", "--wait", "0")...)
}

// killTrial kills ana's regionctl once the site follows the version.
func (s *site) killTrial(t *testing.T) {
	t.Helper()
	require.True(t, s.killWhen(t, "eu-west", true, func(r *http.Request) bool { return writes(r, "/canary/ams1") }, s.args("--bake", "10m", "--yes", "--by", "ana")...))
}
