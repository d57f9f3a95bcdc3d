package networks

import (
	"net/netip"
	"slices"
	"time"

	"github.com/gaissmai/bart"
)

// Table finds the entry of a client. It never changes: a node replaces it as a whole. The
// nil Table has none.
type Table struct {
	Version        string // of the index; "": nothing is published
	Blocks, Allows int
	// Next is when the next entry ends; zero: none does.
	Next time.Time

	index bart.Table[*Entry]
}

// NewTable returns a table of the entries that are not over. What an operator allows, no
// remote list blocks: its networks inside are left out, unless an operator blocks a wider one
// of them that is inside, too.
func NewTable(version string, entries []*Entry, now time.Time) *Table {
	t := &Table{Version: version}
	var remote []*Entry
	for _, e := range entries {
		if e.Over(now) {
			continue
		}
		if !e.Until.IsZero() && (t.Next.IsZero() || e.Until.Before(t.Next)) {
			t.Next = e.Until
		}
		if e.Action == Block && e.List() != "" {
			remote = append(remote, e)
		} else {
			t.insert(e)
		}
	}
	if t.Allows > 0 { // before any of them is in the index
		remote = slices.DeleteFunc(remote, func(e *Entry) bool {
			by, found := t.index.LookupPrefix(e.Network)
			return found && by.Action == Allow
		})
	}
	for _, e := range remote {
		t.insert(e)
	}
	return t
}

func (t *Table) insert(e *Entry) {
	if e.Action == Allow {
		t.Allows++
	} else {
		t.Blocks++
	}
	t.index.Insert(e.Network, e)
}

// Find returns the entry of the narrowest network with the client in it, nil if there is
// none. It neither locks nor allocates.
func (t *Table) Find(client netip.Addr) *Entry {
	if t == nil || t.Blocks+t.Allows == 0 {
		return nil
	}
	e, _ := t.index.Lookup(client.Unmap().WithZone(""))
	return e
}

// All returns all entries.
func (t *Table) All() (list []*Entry) {
	for _, e := range t.index.All() {
		list = append(list, e)
	}
	return list
}

// Covering returns all entries with the network in them, the narrowest first.
func (t *Table) Covering(p netip.Prefix) (list []*Entry) {
	for _, e := range t.index.Supernets(p) {
		list = append(list, e)
	}
	return list
}
