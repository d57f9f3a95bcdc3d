package clientlist

import (
	"net/netip"
	"slices"
	"time"

	"github.com/gaissmai/bart"
)

// Table finds a client's entry. It is immutable: a node replaces the whole table. The nil Table
// is empty.
type Table struct {
	Version        string // of the index; "": nothing is published
	Blocks, Allows int
	// Next is when the next entry expires; zero: never.
	Next time.Time

	index bart.Table[*Entry]
}

// NewTable returns a table of the unexpired entries. An operator's allow overrides remote
// lists: their networks inside it are left out, unless an operator blocks a network between the
// two.
func NewTable(version string, entries []*Entry, now time.Time) *Table {
	t := &Table{Version: version}
	var remote []*Entry
	for _, e := range entries {
		if e.Expired(now) {
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

// Find returns the entry of the narrowest network that contains the client, or nil. It does not
// lock or allocate.
func (t *Table) Find(client netip.Addr) *Entry {
	if t == nil || t.Blocks+t.Allows == 0 {
		return nil
	}
	e, _ := t.index.Lookup(client.Unmap().WithZone(""))
	return e
}

func (t *Table) All() (list []*Entry) {
	for _, e := range t.index.All() {
		list = append(list, e)
	}
	return list
}

// Covering returns the entries whose networks contain p, narrowest first.
func (t *Table) Covering(p netip.Prefix) (list []*Entry) {
	for _, e := range t.index.Supernets(p) {
		list = append(list, e)
	}
	return list
}
