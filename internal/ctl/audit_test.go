package ctl

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/pkg/region/consul"
)

func TestAudit(t *testing.T) {
	t.Parallel()
	inFleets(t, map[string]func(*testing.T, *testFleet){"tampering": testTampering, "races": testAuditOfRaces})
}

// The audit of a real Consul finds each kind of tampering with the history.
func testTampering(t *testing.T, f *testFleet) {
	store := f.consuls["us-east"].Client().KV()
	folder := f.prefix + "/rules/history/"
	keys := func() []string {
		list, _, err := store.Keys(folder, "", nil)
		require.NoError(t, err)
		return list
	}
	put := func(key string, value []byte) {
		t.Helper()
		_, err := store.Put(kv(key, string(value)), nil)
		require.NoError(t, err)
	}
	get := func(key string) []byte {
		t.Helper()
		pair, _, err := store.Get(key, nil)
		require.NoError(t, err)
		return pair.Value
	}
	for limit := 2; limit < 6; limit++ {
		f.good(t, "rules", "apply", write(t, "r.yaml", rulesOf(limit)), "--yes", "--wait", "0", "-m", "why")
	}
	f.good(t, "shedder", "set", "signals.inflight.high=500", "--yes", "--wait", "0")
	r := f.good(t, "audit", "verify")
	require.Regexp(t, `us-east  rules     4        [0-9a-f]{64}  good`, r.out)
	require.Regexp(t, `us-east  shedder   1        [0-9a-f]{64}  good`, r.out)
	f.good(t, "shedder", "set", "signals.inflight.high=400", "--for", "1h", "--yes", "--wait", "0")
	f.good(t, "rules", "apply", write(t, "r.yaml", rulesOf(5)), "--region", "eu-west", "--yes", "--wait", "0")
	f.good(t, "audit", "verify")
	heads := write(t, "heads.json", f.good(t, "audit", "verify", "-o", "json").out)

	finds := func(want string, args ...string) {
		t.Helper()
		r := f.run(t, append([]string{"audit", "verify"}, args...)...)
		require.Equal(t, term.StatusFailed, r.status, r.out)
		require.Contains(t, r.out, "us-east: rules: "+want)
		require.NotContains(t, r.out, "eu-west: rules: ")
		require.Contains(t, r.errOut, "the history has ")
	}
	all := keys()
	second := get(all[1])
	put(all[1], []byte(strings.Replace(string(second), `"why"`, `"because"`, 1)))
	finds(strings.TrimPrefix(all[1], folder) + ", number 2, was changed")
	_, err := store.Delete(all[1], nil)
	require.NoError(t, err)
	finds("the entry with number 2 was removed")
	put(all[1], second)
	forged := strings.Replace(all[1], "Z-", "1Z-", 1)
	put(forged, second)
	finds(strings.TrimPrefix(forged, folder) + " was inserted")
	put(forged, toJSON(t, consul.Change{Pointer: consul.NewPointer([]byte(rulesOf(1)), "eve", time.Now())}))
	finds(strings.TrimPrefix(forged, folder) + ", by eve, was inserted: it has no link")
	_, err = store.Delete(forged, nil)
	require.NoError(t, err)

	// The newest changes and their head are removed: only a kept export reveals it.
	headKey := f.prefix + "/rules/head"
	newest, head := get(all[3]), get(headKey)
	_, err = store.Delete(all[3], nil)
	require.NoError(t, err)
	finds("the entry with number 4 was removed")
	var third consul.Link
	var h consul.Head
	require.NoError(t, json.Unmarshal(newest, &struct{ Link *consul.Link }{&third}))
	h.Number, h.Hash = 3, third.Before
	put(headKey, toJSON(t, h))
	finds("the active version "+versionOf(rulesOf(5))+", by ", "--region", "us-east")
	r = f.run(t, "audit", "verify", "--since", heads)
	require.Contains(t, r.out, "the newest entries were cut off: the chain ends at number 3, and had 4")
	put(all[3], newest)
	put(headKey, head)
	f.good(t, "audit", "verify", "--since", heads)

	// A lost head loses no change, and the chain continues.
	_, err = store.Delete(headKey, nil)
	require.NoError(t, err)
	finds("the head of the chain is missing or unreadable; entries after number 4 may have been removed")
	f.good(t, "undo", "rules", "--yes", "--wait", "0")
	f.good(t, "audit", "verify", "--since", heads)
	// The same for a head whose number has no change.
	put(headKey, toJSON(t, consul.Head{Number: math.MaxInt, Hash: strings.Repeat("a", 64)}))
	finds("the head of the chain is missing or unreadable; entries after number 5 may have been removed")
	f.good(t, "undo", "rules", "--yes", "--wait", "0")
	f.good(t, "audit", "verify", "--since", heads)

	// Someone moves the pointer without regionctl.
	p := consul.NewPointer([]byte(rulesOf(2)), "eve", time.Now())
	put(f.prefix+"/rules/current", toJSON(t, p))
	finds("the active version " + p.Version + ", by eve, is not in the history")

	// Someone restores an old pointer byte for byte, or changes its fields.
	f.good(t, "rules", "apply", write(t, "r.yaml", rulesOf(6)), "--yes", "--wait", "0")
	active := get(f.prefix + "/rules/current")
	f.good(t, "rules", "apply", write(t, "r.yaml", rulesOf(7)), "--yes", "--wait", "0")
	last := get(f.prefix + "/rules/current")
	f.good(t, "audit", "verify")
	put(f.prefix+"/rules/current", active)
	finds("the active version " + versionOf(rulesOf(6)) + ", by ")
	require.Regexp(t, "was put back: the change that made it active has number 7, and the newest number 8", f.run(t, "audit", "verify").out)
	var changed consul.Pointer
	require.NoError(t, json.Unmarshal(last, &changed))
	changed.AppliedBy = "eve"
	put(f.prefix+"/rules/current", toJSON(t, changed))
	finds("the pointer to the active version " + versionOf(rulesOf(7)) + " was changed: ")
	put(f.prefix+"/rules/current", last)
	f.good(t, "audit", "verify")

	for _, bad := range []string{"{}", `[{"region":"eu-west"}]`, "x"} {
		require.Equal(t, term.StatusUsage, f.run(t, "audit", "verify", "--since", write(t, "bad.json", bad)).status)
	}
	require.Equal(t, term.StatusUsage, f.run(t, "audit", "verify", "--since", "missing.json").status)
}

// Concurrent changes form one chain, whatever their clocks.
func testAuditOfRaces(t *testing.T, f *testFleet) {
	const writers = 8
	done := make(chan error, writers)
	at := time.Now()
	for i := range writers {
		go func() {
			p := consul.NewPointer([]byte(rulesOf(i)), "ana", at.Add(-time.Duration(i)*time.Minute))
			done <- f.rules("eu-west").Record(t.Context(), consul.Change{Pointer: p})
		}()
	}
	for range writers {
		require.NoError(t, <-done)
	}
	again := consul.NewPointer([]byte(rulesOf(3)), "ana", at.Add(-3*time.Minute))
	require.NoError(t, f.rules("eu-west").Record(t.Context(), consul.Change{Pointer: again}))
	a, err := f.rules("eu-west").Audit(t.Context())
	require.NoError(t, err)
	require.Empty(t, a.Faults)
	require.Equal(t, writers, a.Head.Number)
	changes, _, err := f.rules("eu-west").History(t.Context(), 0)
	require.NoError(t, err)
	require.Len(t, changes, writers)
	require.True(t, slices.IsSortedFunc(changes, func(a, b consul.Change) int { return b.AppliedAt.Compare(a.AppliedAt) }), fmt.Sprint(changes))
}
