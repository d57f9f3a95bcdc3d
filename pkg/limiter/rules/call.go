package rules

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"
	"unsafe"

	"github.com/weir-edge/weir/pkg/digest"
	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/overdraft"
)

// Descriptor is one descriptor of a rate limit call.
type Descriptor struct {
	Pairs []Pair
	Hits  int64 // 0 only peeks, negative gives back; at most limiter.MaxCount
	// Limit and Window override the rule's limit if Window is not 0. Only rules with a
	// MaxOverride allow that.
	Limit  int64
	Window time.Duration
}

// Pair is an entry of a Descriptor.
type Pair struct{ Key, Value string }

// Use says that a descriptor must pass a check. Both are indexes.
type Use struct{ Descriptor, Check int32 }

// MatchCall fills m with the checks that the descriptors of a call must pass. If several
// descriptors count under one key, their hits add up in one check. An error means that an
// override cannot be counted, or that hits cannot be given back; m is then empty.
func (s *Set) MatchCall(domain string, list []Descriptor, slot uint64, m *Match) error {
	m.Reset()
	table := s.domains[domain]
	if table == nil {
		return nil
	}
	m.request.pathKey = &m.path
	for i := range list {
		d := &list[i]
		m.found = m.found[:0]
		s.findCall(table, d.Pairs, d.Pairs, m)
		slices.Sort(m.found)
		m.found = slices.Compact(m.found) // two forms of a rule may match
		m.request.pairs = d.Pairs
		for _, rule := range m.found {
			if err := m.addCall(s.rules[rule], int32(i), d, slot); err != nil {
				m.Reset()
				return fmt.Errorf("descriptors[%d].%w", i, err)
			}
		}
	}
	m.slice()
	m.request = request{}
	return nil
}

// findCall adds to m.found the rules with a form that the remaining pairs complete.
func (s *Set) findCall(t *entryTable, rest, all []Pair, m *Match) {
	if len(rest) == 0 {
		for _, e := range t.ends {
			if !e.form.exempts(all) {
				m.found = append(m.found, e.rule)
			}
		}
		return
	}
	if values := t.keys[rest[0].Key]; values != nil {
		values.each(bytesOf(rest[0].Value), func(next *entryTable) { s.findCall(next, rest[1:], all, m) })
	}
}

func (f form) exempts(pairs []Pair) bool {
	for i := range f {
		if f[i].not != nil && f[i].not.has(bytesOf(pairs[i].Value)) {
			return true
		}
	}
	return false
}

// bytesOf returns the bytes of a string, which must not be changed.
func bytesOf(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }

func (m *Match) addCall(c *Compiled, descriptor int32, d *Descriptor, slot uint64) error {
	limit, cost := c.Limit, c.Cost*d.Hits
	if cost < 0 && !limit.Overdraft {
		return fmt.Errorf("is_negative_hits: rule %s gives no hits back; set overdraft: true there, or remove is_negative_hits", c.ID)
	}
	if d.Window != 0 && c.MaxOverride > 0 {
		var err error
		if limit, err = c.override(d); err != nil {
			return fmt.Errorf("limit: %w", err)
		}
		if d.Limit == 0 {
			cost = limiter.MaxCount // never passes
		}
	}
	keys, _, _ := c.appendKey(m.keys, &m.request) // descriptor parts are never missing and never duplicated
	if limit.Window != c.Limit.Window {
		keys = strconv.AppendInt(append(keys, ":w"...), limit.Window.Milliseconds(), 10)
	}
	start := len(m.keys)
	if i := m.seen(keys[start:]); i >= 0 {
		m.keys = keys[:start]
		if m.Checks[i].Limit != limit {
			return errTwoLimits
		}
		m.Checks[i].Cost = overdraft.Capped(limit, m.Checks[i].Cost+cost)
		m.Uses = append(m.Uses, Use{descriptor, int32(i)})
		return nil
	}
	m.keys = keys
	m.ends = append(m.ends, len(keys))
	m.Uses = append(m.Uses, Use{descriptor, int32(len(m.Checks))})
	m.Rules = append(m.Rules, c)
	m.Checks = append(m.Checks, limiter.Check{Limit: limit, Cost: overdraft.Capped(limit, cost), Slot: slot})
	return nil
}

var errTwoLimits = errors.New("limit: differs from that of another descriptor that counts by the same key; send only one of them")

// appendDescriptor appends the hash of an entry's value, or of the whole descriptor. In
// the latter, lengths keep entries apart.
func (q *request) appendDescriptor(dst []byte, part *KeyPart) []byte {
	if part.Name != "" {
		for _, p := range q.pairs {
			if p.Key == part.Name {
				return digest.Append(dst, bytesOf(p.Value), hashedBytes)
			}
		}
	}
	b := (*q.pathKey)[:0]
	for _, p := range q.pairs {
		b = append(binary.AppendUvarint(b, uint64(len(p.Key))), p.Key...)
		b = append(binary.AppendUvarint(b, uint64(len(p.Value))), p.Value...)
	}
	*q.pathKey = b
	return digest.Append(dst, b, hashedBytes)
}

// overrides are the limits that descriptors stated, deduplicated.
type overrides struct {
	mu   sync.RWMutex
	made map[stated]*limiter.Limit
}

type stated struct {
	limit  int64
	window time.Duration
}

const maxStated = 1024 // different ones per rule

func (c *Compiled) override(d *Descriptor) (*limiter.Limit, error) {
	want := stated{min(max(d.Limit, 1), c.MaxOverride), d.Window}
	if want.limit == c.Limit.Limit && want.window == c.Limit.Window {
		return c.Limit, nil
	}
	o := &c.overrides
	o.mu.RLock()
	l := o.made[want]
	o.mu.RUnlock()
	if l != nil {
		return l, nil
	}
	l = c.overridden(want.limit, want.window)
	if errs := l.Validate(); errs != nil {
		return nil, errs
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if other := o.made[want]; other != nil {
		return other, nil
	}
	if o.made == nil || len(o.made) >= maxStated {
		o.made = map[stated]*limiter.Limit{} // recreated limits decide alike
	}
	o.made[want] = l
	return l, nil
}

// overridden returns the rule's limit with another size and window.
func (c *Compiled) overridden(limit int64, window time.Duration) *limiter.Limit {
	b := c.Limit
	return &limiter.Limit{
		Rule: b.Rule, Algorithm: b.Algorithm, Storage: b.Storage, Limit: limit, Window: window,
		MinInterval: b.MinInterval, CountDenied: b.CountDenied, Shadow: b.Shadow, OnFailure: b.OnFailure,
	}
}

// mayOverride reports whether a descriptor may state this limit.
func (c *Compiled) mayOverride(l *limiter.Limit) bool {
	return c.MaxOverride > 0 && l.Limit <= c.MaxOverride && c.overridden(l.Limit, l.Window).Equal(l)
}
