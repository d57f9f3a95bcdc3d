package ctl

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/internal/ctl/versions"
	"github.com/weir-edge/weir/pkg/region/consul"
)

func TestPrune(t *testing.T) {
	t.Parallel()
	inFleets(t, map[string]func(*testing.T, *testFleet){
		"keeps":     testPruneKeeps,
		"after":     testPruneAfter,
		"away":      testPruneAway,
		"temporary": testPruneTemporary,
		"restores":  testPruneRestores,
	})
}

// changed makes n changes and returns their versions, oldest first.
func (f *testFleet) changed(t *testing.T, first, n int) (versions []string) {
	t.Helper()
	for i := range n {
		versions = append(versions, f.publish(t, rulesOf(first+i), "eve", f.names...).Version)
	}
	return versions
}

func (f *testFleet) storedRules(t *testing.T, name string) []string {
	t.Helper()
	versions, err := f.rules(name).Versions(t.Context(), "")
	require.NoError(t, err)
	return versions
}

// Every region keeps the versions that any region names and the recently stored ones; the rest
// is removed.
func testPruneKeeps(t *testing.T, f *testFleet) {
	abandoned, err := f.rules("us-east").Put(t.Context(), []byte(rulesOf(500)))
	require.NoError(t, err)
	all := f.changed(t, 1, 15)
	// us-east runs the oldest, a rollback would restore the second, and a canary tries the
	// third.
	f.publish(t, rulesOf(2), "eve", "us-east")
	f.good(t, "rules", "apply", write(t, "r.yaml", rulesOf(1)), "--yes", "--wait", "0", "--region", "us-east")
	canary, expires := consul.NewPointer([]byte(rulesOf(3)), "eve", time.Now()), time.Now().Add(time.Hour)
	canary.ExpiresAt = &expires
	f.try(t, "us-east", "iad1", canary)
	// A rollout that was cut off names two more: its own, and what it replaced.
	named := func(limit int) consul.Named {
		p := consul.NewPointer([]byte(rulesOf(limit)), "eve", time.Now())
		return consul.Named{Version: p.Version, SHA256: p.SHA256}
	}
	_, err = f.rules("us-east").SetRollout(t.Context(), consul.Rollout{Named: named(4), By: "eve", BeganAt: time.Now(), Waves: [][]string{{"us-east"}}, Before: map[string]consul.Named{"us-east": named(5)}}, 0)
	require.NoError(t, err)
	for i := range 12 {
		f.publish(t, rulesOf(100+i), "eve", "eu-west")
	}
	fresh, err := f.rules("eu-west").Put(t.Context(), []byte(rulesOf(501)))
	require.NoError(t, err)

	before := f.storedRules(t, "eu-west")
	require.Equal(t, term.StatusUsage, f.run(t, "prune", "rules", "--keep-versions", "9", "--yes").status)
	require.Equal(t, term.StatusUsage, f.run(t, "prune", "rules", "--keep-versions", "10").status, "no terminal to prompt on")
	s := f.converse(t, "prune", "rules", "--keep-versions", "10")
	s.sees(t, "Remove 15 versions? [y/N] ")
	s.answer(t, "n")
	require.Equal(t, term.StatusFailed, s.end(t).status)
	require.Equal(t, before, f.storedRules(t, "eu-west"))

	r := f.good(t, "prune", "rules", "--keep-versions", "10", "--yes", "-o", "json")
	require.Contains(t, r.errOut, "eu-west: 12 of 28 versions can be removed\nus-east: 3 of 16 versions can be removed\n")
	require.Equal(t, []versions.PrunedRegion{{Region: "eu-west", Removed: 12, Kept: 16}, {Region: "us-east", Removed: 3, Kept: 13}}, parse[[]versions.PrunedRegion](t, r.out))
	require.Empty(t, f.locked(t, "rules"))
	for _, name := range f.names {
		require.Subset(t, f.storedRules(t, name), all[:5], name)
	}
	require.NotContains(t, f.storedRules(t, "us-east"), abandoned)
	require.Contains(t, f.storedRules(t, "eu-west"), fresh)
	require.NotContains(t, f.storedRules(t, "eu-west"), all[5])
	require.Contains(t, f.storedRules(t, "eu-west"), versionOf(rulesOf(102)))
	require.Contains(t, f.good(t, "prune", "rules", "--keep-versions", "10", "--yes").out, "eu-west  0        16\n")

	r = f.run(t, "undo", "rules", "--to", all[5], "--yes")
	require.Equal(t, term.StatusUsage, r.status)
	require.Contains(t, r.errOut, "no region has it; regionctl rules history lists past versions, of which the newest are kept (prune --help)")
	f.good(t, "undo", "rules", "--yes", "--wait", "0", "--region", "us-east")
	require.Equal(t, all[1], f.current(t, "us-east"))
	require.Contains(t, f.good(t, "rules", "history", "-n", "0").out, all[5], "the history stays")
}

// Every change prunes, down to the number in the flag or the fleet file.
func testPruneAfter(t *testing.T, f *testFleet) {
	f.changed(t, 1, 14)
	apply := func(limit int, args ...string) result {
		return f.good(t, append([]string{"rules", "apply", write(t, "r.yaml", rulesOf(limit)), "--yes", "--wait", "0"}, args...)...)
	}
	require.NotContains(t, apply(100).errOut, "pruned", "by default, 200 are kept")
	require.NotContains(t, apply(101, "--keep-versions", "0").errOut, "pruned")
	require.Len(t, f.storedRules(t, "eu-west"), 16)
	require.Contains(t, apply(102, "--keep-versions", "12").errOut, "pruned 10 old versions beyond the newest 12 of each region")
	require.Len(t, f.storedRules(t, "us-east"), 12)

	text, err := os.ReadFile(f.file)
	require.NoError(t, err)
	f.file = write(t, "fleet.yaml", string(text)+"keep_versions: 10\n")
	require.Contains(t, apply(103).errOut, "pruned 6 old versions beyond the newest 10 of each region")
	require.Equal(t, term.StatusUsage, f.run(t, "rules", "apply", write(t, "r.yaml", rulesOf(1)), "--yes", "--keep-versions", "3").status)
	f.file = write(t, "fleet.yaml", string(text)+"keep_versions: 0\n")
	require.NotContains(t, apply(104).errOut, "pruned")
	require.Len(t, f.storedRules(t, "us-east"), 11)
	// The versions that a rollback needs are kept, whichever one it restores.
	f.good(t, "undo", "rules", "--yes", "--wait", "0", "--keep-versions", "10")
	require.Equal(t, versionOf(rulesOf(103)), f.current(t, "us-east"))
}

// If a region does not answer, its needs are unknown, so nothing is removed anywhere.
func testPruneAway(t *testing.T, f *testFleet) {
	f.changed(t, 1, 14)
	away := newFleet(t, f.prefix, []string{"eu-west"}, f.consuls)
	text, err := os.ReadFile(away.file)
	require.NoError(t, err)
	away.file = write(t, "fleet.yaml", string(text)+"  - {name: us-east, consul: {addr: \"127.0.0.1:1\"}}\n") // nothing listens there
	r := away.run(t, "prune", "rules", "--keep-versions", "10", "--yes", "--region", "eu-west")
	require.Equal(t, term.StatusFailed, r.status)
	require.Contains(t, r.errOut, "nothing was removed, because the versions that are still needed are unknown:\nus-east: ")
	r = away.good(t, "rules", "apply", write(t, "r.yaml", rulesOf(99)), "--yes", "--wait", "0", "--region", "eu-west", "--keep-versions", "10")
	require.Contains(t, r.errOut, "old versions were not pruned; the next change will prune them: us-east: ")
	require.Len(t, f.storedRules(t, "eu-west"), 15)

	// The same if a pointer or a canary cannot be read.
	for _, key := range []string{"rules/canary/ams1", "rules/current"} {
		_, err = f.consuls["us-east"].Client().KV().Put(kv(f.prefix+"/"+key, "x"), nil)
		require.NoError(t, err)
		require.Equal(t, term.StatusFailed, f.run(t, "prune", "rules", "--keep-versions", "10", "--yes").status)
		require.Len(t, f.storedRules(t, "eu-west"), 15)
	}
}

// The version that follows temporary settings is kept, whatever its age.
func testPruneTemporary(t *testing.T, f *testFleet) {
	set := func(high int, args ...string) {
		f.good(t, append([]string{"shedder", "set", fmt.Sprintf("signals.inflight.high=%d", high), "--yes", "--wait", "0", "--region", "eu-west", "--keep-versions", "10"}, args...)...)
	}
	set(500)
	active := func() string {
		p, _, err := f.settings("eu-west").Current(t.Context())
		require.NoError(t, err)
		return p.Version
	}
	lasting := active()
	for i := range 15 {
		set(600+i, "--for", "1h")
	}
	require.Contains(t, f.good(t, "prune", "shedder", "--keep-versions", "10", "--yes").out, "eu-west  0        11\n")
	f.good(t, "undo", "shedder", "--yes", "--wait", "0", "--region", "eu-west")
	require.Equal(t, lasting, active())

	// So is the version that a rollback restores after they expire.
	set(501)
	for i := range 14 {
		set(700+i, "--for", "1h")
	}
	set(800, "--for", "1s")
	require.Eventually(t, func() bool {
		p, _, err := f.settings("eu-west").Current(t.Context())
		return err == nil && p.Expired(time.Now())
	}, patience, tick)
	f.good(t, "undo", "shedder", "--yes", "--wait", "0", "--region", "eu-west")
	require.Equal(t, lasting, active())
}

// Someone prunes a version that another change, waiting for the lock, has found stored.
func testPruneRestores(t *testing.T, f *testFleet) {
	all := f.changed(t, 1, 14)
	ana := consul.NewLock("ana")
	index, _, err := f.open["us-east"].Lock(t.Context(), "rules", ana, 0)
	require.NoError(t, err)
	bob := f.converse(t, "undo", "rules", "--to", all[0], "--by", "bob", "--yes", "--wait", "0")
	renew := func() { // otherwise bob takes it over after 10 s
		t.Helper()
		index, err = f.open["us-east"].Renew(t.Context(), "rules", ana, index)
		require.NoError(t, err)
	}
	bob.sees(t, "us-east: waiting for ana")
	renew()
	old, err := f.rules("us-east").StoredBefore(t.Context(), all[:1], index)
	require.NoError(t, err)
	require.Len(t, old, 1)
	renew()
	require.NoError(t, f.rules("us-east").Remove(t.Context(), old, consul.Fence{What: "rules", Index: index}))
	renew()
	old, err = f.rules("us-east").StoredBefore(t.Context(), all[:2], index)
	require.NoError(t, err, "another prune has listed it before")
	require.Len(t, old, 1)
	require.NoError(t, f.open["us-east"].Unlock(t.Context(), "rules", ana))
	r := bob.end(t)
	require.Zero(t, r.status, r.errOut)
	require.Equal(t, all[0], f.current(t, "us-east"))
	require.Contains(t, f.storedRules(t, "us-east"), all[0])

	old, err = f.rules("us-east").StoredBefore(t.Context(), all[1:2], index)
	require.NoError(t, err)
	var lost *consul.LockLostError
	require.ErrorAs(t, f.rules("us-east").Remove(t.Context(), old, consul.Fence{What: "rules", Index: index}), &lost)
	require.Contains(t, f.storedRules(t, "us-east"), all[1])
}

// However long the history, a bounded part of it is read; WEIR_SOAK=1 tests 100,000 changes.
func TestLongHistory(t *testing.T) {
	t.Parallel()
	changes := 2000
	if os.Getenv("WEIR_SOAK") != "" {
		changes = 100_000
	}
	f := startFleet(t, "eu-west")
	began := time.Now()
	last := f.fill(t, changes)
	t.Logf("%d changes are there after %s", changes, time.Since(began).Round(time.Millisecond))
	timed := func(args ...string) result {
		began := time.Now()
		r := f.good(t, args...)
		t.Logf("regionctl %s: %s", strings.Join(args[:2], " "), time.Since(began).Round(time.Millisecond))
		return r
	}
	require.Contains(t, timed("rules", "history", "-n", "1").out, "*  "+term.Stamp(last.AppliedAt)+"  eve  "+last.Version+"  "+last.Replaced)
	timed("undo", "rules", "--yes", "--wait", "0", "--keep-versions", "0")
	require.Equal(t, last.Replaced, f.current(t, "eu-west"))
	require.Contains(t, timed("rules", "show", last.Version[:8]).out, "limit")
	list := parse[[]versions.HistoryEntry](t, timed("rules", "history", "-n", "0", "-o", "json").out)
	require.Len(t, list, changes+1)
	require.True(t, slices.IsSortedFunc(list, func(a, b versions.HistoryEntry) int { return b.AppliedAt.Compare(a.AppliedAt) }))
	require.Contains(t, timed("audit", "verify").out, fmt.Sprintf("eu-west  rules     %d     ", changes+1))
	timed("prune", "rules", "--yes")
	require.Len(t, f.storedRules(t, "eu-west"), 200)
	timed("undo", "rules", "--yes", "--wait", "0")
	require.Equal(t, last.Version, f.current(t, "eu-west"))
}

// fill makes changes in a Consul, an hour apart, with the longest messages, in the largest
// transactions.
func (f *testFleet) fill(t *testing.T, changes int) consul.Change {
	t.Helper()
	client := f.consuls["eu-west"].Client()
	message := strings.Repeat("x", 1024)
	began := time.Now().Add(-time.Duration(changes+1) * time.Hour)
	var c consul.Change
	var head consul.Head
	var ops api.TxnOps
	flush := func() {
		ok, answer, _, err := client.Txn().Txn(ops, nil)
		require.NoError(t, err)
		require.True(t, ok, answer)
		ops = nil
	}
	for i := range changes {
		text := fmt.Sprintf("rules:\n  - {id: rule-%d, key: [client_ip], limit: 5, window: 1m}\n", i)
		c = consul.Change{Pointer: consul.NewPointer([]byte(text), "eve", began.Add(time.Duration(i)*time.Hour)), Replaced: c.Version, Message: message}
		entry := toJSON(t, struct {
			consul.Change
			Link consul.Link `json:"link"`
		}{c, consul.Link{Number: head.Number + 1, Before: head.Hash}})
		name := c.AppliedAt.Format("2006-01-02T15:04:05.000000000Z") + "-" + c.Version
		head = consul.Head{Number: head.Number + 1, Hash: fmt.Sprintf("%x", sha256.Sum256(fmt.Appendf(nil, "weir history 1\n%q\n%s", name, entry)))}
		ops = append(ops, &api.TxnOp{KV: &api.KVTxnOp{Verb: api.KVSet, Key: f.prefix + "/rules/versions/" + c.Version, Value: []byte(text)}},
			&api.TxnOp{KV: &api.KVTxnOp{Verb: api.KVSet, Key: f.prefix + "/rules/history/" + name, Value: entry}})
		if len(ops) == 64 {
			flush()
		}
	}
	ops = append(ops, &api.TxnOp{KV: &api.KVTxnOp{Verb: api.KVSet, Key: f.prefix + "/rules/current", Value: toJSON(t, c.Pointer)}},
		&api.TxnOp{KV: &api.KVTxnOp{Verb: api.KVSet, Key: f.prefix + "/rules/head", Value: toJSON(t, head)}})
	flush()
	return c
}

func toJSON(t *testing.T, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	require.NoError(t, err)
	return text
}
