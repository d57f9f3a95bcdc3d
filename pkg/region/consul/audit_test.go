package consul

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// chained returns a history of n entries.
func chained(t require.TestingT, n int) (entries []Entry, head Head) {
	for i := range n {
		c := Change{Pointer: NewPointer(fmt.Append(nil, i), "ana", time.Unix(int64(1000+i), 0))}
		value, err := json.Marshal(record{c, &Link{Number: head.Number + 1, Before: head.Hash}})
		require.NoError(t, err)
		e := Entry{Key: fmt.Sprintf("%04d-%s", i, c.Version), Value: value}
		entries = append(entries, e)
		head = Head{head.Number + 1, hashEntry(e.Key, e.Value)}
	}
	return entries, head
}

func audit(entries []Entry, head Head) *Audit {
	c := auditor{chain: map[int][]linked{}}
	for _, e := range entries {
		c.add(e.Key, e.Value)
	}
	return c.audit(head, head.Number)
}

func TestAudit(t *testing.T) {
	entries, head := chained(t, 9)
	name := func(number int) string { return entries[number-1].Key }
	f := func(what string, change func([]Entry, *Head) []Entry, want ...string) {
		t.Helper()
		copied, h := slices.Clone(entries), head
		a := audit(change(copied, &h), h)
		require.Equal(t, want, a.Faults, what)
	}
	change := func(number int, old, new string) func([]Entry, *Head) []Entry {
		return func(list []Entry, _ *Head) []Entry {
			e := &list[number-1]
			e.Value = []byte(strings.Replace(string(e.Value), old, new, 1))
			return list
		}
	}
	remove := func(from, to int) func([]Entry, *Head) []Entry {
		return func(list []Entry, _ *Head) []Entry { return slices.Delete(list, from-1, to) }
	}
	f("nothing", func(list []Entry, _ *Head) []Entry { return list })
	f("any order", func(list []Entry, _ *Head) []Entry { slices.Reverse(list); return list })
	for n := 1; n <= 9; n++ {
		f("a name", change(n, "ana", "eve"), fmt.Sprintf("%s, number %d, was changed: its hash is not the one that the entry after it names", name(n), n))
		f("a space", change(n, "{", "{ "), fmt.Sprintf("%s, number %d, was changed: its hash is not the one that the entry after it names", name(n), n))
		f("removed", remove(n, n), fmt.Sprintf("the entry with number %d was removed", n))
		f("moved", func(list []Entry, _ *Head) []Entry { list[n-1].Key += "0"; return list },
			fmt.Sprintf("%s0, number %d, was changed: its hash is not the one that the entry after it names", name(n), n))
		f("inserted", func(list []Entry, _ *Head) []Entry {
			forged := list[n-1]
			forged.Key = "0005-ffffffffffff"
			return append(list, forged)
		}, fmt.Sprintf("0005-ffffffffffff was inserted: it has number %d, as has %s", n, name(n)))
	}
	f("the link", change(5, `"before":"`, `"before":"00`), fmt.Sprintf("%s, number 5, was changed: its hash is not the one that the entry after it names", name(5)))
	f("several", remove(3, 5), "the entries with numbers 3 to 5 were removed")
	f("the oldest", remove(1, 2), "the entries with numbers 1 to 2 were removed")
	f("the newest", remove(8, 9), "the entries with numbers 8 to 9 were removed")
	f("all", remove(1, 9), "the entries with numbers 1 to 9 were removed")
	f("no head", func(list []Entry, h *Head) []Entry { *h = Head{}; return list }, "the head of the chain is missing or unreadable; entries after number 9 may have been removed")
	f("an earlier head", func(list []Entry, h *Head) []Entry { *h = Head{8, hashEntry(list[7].Key, list[7].Value)}; return list },
		name(9)+" was inserted: it has number 9, but the chain ends at number 8")
	f("a false head", func(list []Entry, h *Head) []Entry { h.Number = 1 << 40; return list }, fmt.Sprintf("the entries with numbers 10 to %d were removed", 1<<40))
	f("no number", change(4, `"number":4`, `"number":-4`), "the entry with number 4 was removed", name(4)+" was inserted: it has number -4, but the chain ends at number 9")
}

// An entry without a link is a fault, whatever its time.
func TestAuditOfUnlinked(t *testing.T) {
	entries, head := chained(t, 4)
	change := []byte(`{"version":"0123456789ab","sha256":"0123456789ab` + strings.Repeat("0", 52) + `","applied_at":"2026-03-01T10:00:00Z","applied_by":"bob"}`)
	a := audit(append(entries, Entry{Key: "9999-x", Value: []byte("x")}, Entry{Key: "0004-5-y", Value: change}, Entry{Key: "0000-0-y", Value: change}), head)
	require.Equal(t, []string{"0000-0-y, by bob, was inserted: it has no link", "0004-5-y, by bob, was inserted: it has no link", "9999-x was inserted: it has no link"}, a.Faults)

	require.Equal(t, &Audit{hashes: map[int]string{}}, audit(nil, Head{}))
	require.Len(t, audit([]Entry{{Key: "0000-0-y", Value: change}}, Head{}).Faults, 1)
}

// Only a head kept elsewhere reveals some tampering.
func TestAuditSince(t *testing.T) {
	entries, head := chained(t, 9)
	earlier := audit(entries[:6], Head{6, hashEntry(entries[5].Key, entries[5].Value)})
	require.Empty(t, earlier.Faults)
	f := func(list []Entry, h Head, want ...string) {
		t.Helper()
		a := audit(list, h)
		require.Empty(t, a.Faults, "it sees nothing alone")
		a.Since(earlier)
		require.Equal(t, want, a.Faults)
	}
	f(entries, head)
	f(entries[:6], earlier.Head)
	f(entries[:4], Head{4, hashEntry(entries[3].Key, entries[3].Value)}, "the newest entries were cut off: the chain ends at number 4, and had 6")
	again := slices.Clone(entries)
	var h Head
	for i := range again {
		var r record
		require.NoError(t, json.Unmarshal(again[i].Value, &r))
		r.Link, r.AppliedBy = &Link{h.Number + 1, h.Hash}, "eve"
		value, err := json.Marshal(r)
		require.NoError(t, err)
		again[i].Value, h = value, Head{h.Number + 1, hashEntry(again[i].Key, value)}
	}
	f(again, h, "the chain was rewritten: number 6 is a different entry than before")
	f(nil, Head{}, "the newest entries were cut off: the chain ends at number 0, and had 6")
}

// Every single change is detected, and the audit names a removed, changed or inserted entry.
func TestAuditFindsAnyChange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		entries, head := chained(t, rapid.IntRange(1, 12).Draw(t, "entries"))
		at := rapid.IntRange(0, head.Number-1).Draw(t, "at")
		victim := entries[at]
		switch rapid.SampledFrom([]string{"remove", "change", "insert"}).Draw(t, "how") {
		case "remove":
			entries = slices.Delete(entries, at, at+1)
			a := audit(entries, head)
			require.Equal(t, []string{fmt.Sprintf("the entry with number %d was removed", at+1)}, a.Faults)
			return
		case "change":
			value := slices.Clone(victim.Value)
			value[rapid.IntRange(0, len(value)-1).Draw(t, "byte")] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
			entries[at].Value = value
		case "insert":
			entries = append(entries, Entry{Key: victim.Key + "x", Value: victim.Value})
		}
		a := audit(entries, head)
		require.Contains(t, strings.Join(a.Faults, "\n"), victim.Key)
	})
}
