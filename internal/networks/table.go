package networks

import (
	"net/netip"
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

// NewTable returns a table of the entries that are not over.
func NewTable(version string, entries []*Entry, now time.Time) *Table {
	t := &Table{Version: version}
	for _, e := range entries {
		if e.Over(now) {
			continue
		}
		if !e.Until.IsZero() && (t.Next.IsZero() || e.Until.Before(t.Next)) {
			t.Next = e.Until
		}
		if e.Action == Allow {
			t.Allows++
		} else {
			t.Blocks++
		}
		t.index.Insert(e.Network, e)
	}
	return t
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
