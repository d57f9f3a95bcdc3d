package consul

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
)

// Audit is what the history of a region reveals of tampering.
type Audit struct {
	Head   Head     `json:"head"` // number 0: there is no chain yet
	Faults []string `json:"faults,omitempty"`

	hashes map[int]string // of the genuine entries, by number
	active int            // the number of the newest entry that made a version active
}

// linked is an entry of the chain.
type linked struct {
	name, hash string
	tried      bool // it ended a canary
	Link
}

// Audit reads the whole history and verifies its chain.
func (d *Documents) Audit(ctx context.Context) (*Audit, error) {
	head, _, err := d.head(ctx) // read before the entries, because others may add some meanwhile
	if err != nil {
		return nil, err
	}
	found := auditor{chain: map[int][]linked{}}
	wrong, err := d.EachEntry(ctx, func(page []Entry) bool {
		for _, e := range page {
			found.add(d.entryName(e.Key), e.Value)
		}
		return true
	})
	if err != nil {
		return nil, err
	}
	after, _, err := d.head(ctx)
	if err != nil {
		return nil, err
	}
	a := found.audit(head, after.Number)
	for _, fault := range wrong {
		a.Faults = append(a.Faults, fault.Error())
	}
	return a, nil
}

// Active adds a fault unless the newest change of the audited history, or one that came after it,
// made p active, and p is exactly what that change wrote: an earlier pointer could have been put
// back.
func (d *Documents) Active(ctx context.Context, a *Audit, p Pointer) error {
	entry, err := d.entryOf(ctx, p)
	if err != nil {
		return err
	}
	var r record
	switch {
	case entry == nil:
		a.fault("the active version %s, by %s, is not in the history", p.Version, p.AppliedBy)
	case json.Unmarshal(entry.Value, &r) != nil, r.Link == nil: // the chain has the answer
	case r.Link.Number < a.active:
		a.fault("the active version %s, by %s, was put back: the change that made it active has number %d, and the newest number %d", p.Version, p.AppliedBy, r.Link.Number, a.active)
	case pointerText(r.Pointer) != pointerText(p):
		a.fault("the pointer to the active version %s was changed: the history has %s, the pointer is %s", p.Version, pointerText(r.Pointer), pointerText(p))
	}
	return nil
}

// pointerText returns a pointer in its canonical form.
func pointerText(p Pointer) string {
	text, _ := json.Marshal(p) // times and strings always encode
	return string(text)
}

// auditor collects the facts about entries, in any order.
type auditor struct {
	chain map[int][]linked
	loose []string // faults, one for each entry without a link
}

func (c *auditor) add(name string, value []byte) {
	var r record
	hash := hashEntry(name, value)
	if err := json.Unmarshal(value, &r); err == nil && r.Link != nil {
		c.chain[r.Link.Number] = append(c.chain[r.Link.Number], linked{name, hash, r.Canary != "", *r.Link})
		return
	}
	by := ""
	if change, err := parseChange(value); err == nil {
		by = ", by " + change.AppliedBy + ","
	}
	c.loose = append(c.loose, fmt.Sprintf("%s%s was inserted: it has no link", name, by))
}

// audit verifies the entries. Those with numbers after the head's, up to added, were added
// while the history was read.
func (c *auditor) audit(head Head, added int) *Audit {
	a := &Audit{Head: head, hashes: map[int]string{}}
	var numbers []int
	for number, list := range c.chain {
		if number <= head.Number || number > added {
			numbers = append(numbers, number)
		}
		if number <= head.Number && slices.ContainsFunc(list, func(e linked) bool { return !e.tried }) {
			a.active = max(a.active, number)
		}
	}
	a.verify(c.chain, numbers)
	slices.Sort(c.loose)
	a.Faults = append(a.Faults, c.loose...)
	return a
}

func (a *Audit) fault(format string, args ...any) {
	a.Faults = append(a.Faults, fmt.Sprintf(format, args...))
}

// verify walks the chain from its head to its first entry. Each entry names the hash of the
// one before it, so at each step the genuine entry is known, until one is missing or
// changed.
func (a *Audit) verify(chain map[int][]linked, numbers []int) {
	slices.SortFunc(numbers, func(x, y int) int { return cmp.Compare(y, x) })
	expected, next := a.Head.Hash, a.Head.Number // hash and number of what comes next
	if next == 0 && len(numbers) > 0 {
		next = numbers[0]
		a.fault("the head of the chain is missing or unreadable; entries after number %d may have been removed", next)
	}
	for _, n := range numbers {
		list := chain[n]
		if n < 1 || n > next {
			for _, e := range list {
				a.fault("%s was inserted: it has number %d, but the chain ends at number %d", e.name, n, a.Head.Number)
			}
			continue
		}
		if n < next {
			a.removed(n+1, next)
			expected = ""
		}
		genuine := slices.IndexFunc(list, func(e linked) bool { return e.hash == expected })
		if genuine < 0 && expected != "" {
			a.fault("%s, number %d, was changed: its hash is not the one that the entry after it names", list[0].name, n)
		}
		e := list[max(genuine, 0)]
		for i, other := range list {
			if i != max(genuine, 0) {
				a.fault("%s was inserted: it has number %d, as has %s", other.name, n, e.name)
			}
		}
		a.hashes[n] = e.hash
		// A changed entry may name any hash.
		if expected = e.Before; genuine < 0 && !slices.ContainsFunc(chain[n-1], func(b linked) bool { return b.hash == e.Before }) {
			expected = ""
		}
		if n == 1 && e.Before != "" {
			a.fault("%s, number 1, names an entry before it", e.name)
		}
		next = n - 1
	}
	if next > 0 {
		a.removed(1, next)
	}
}

func (a *Audit) removed(from, to int) {
	if from == to {
		a.fault("the entry with number %d was removed", from)
		return
	}
	a.fault("the entries with numbers %d to %d were removed", from, to)
}

// Since compares the audit with an earlier one, which must have been kept where no writer
// to Consul could change it. Only that reveals that the newest entries were cut off, or
// that the whole chain was rewritten.
func (a *Audit) Since(earlier *Audit) {
	hash, there := a.hashes[earlier.Head.Number]
	switch {
	case earlier.Head.Number == 0:
	case a.Head.Number < earlier.Head.Number:
		a.fault("the newest entries were cut off: the chain ends at number %d, and had %d", a.Head.Number, earlier.Head.Number)
	case !there || hash != earlier.Head.Hash:
		a.fault("the chain was rewritten: number %d is a different entry than before", earlier.Head.Number)
	}
}
