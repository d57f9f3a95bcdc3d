package clientlist

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/weir-edge/weir/pkg/region/consul"
)

const (
	// mostRaces is how many lost races end an edit.
	mostRaces = 24
	// keepExpired is how long an expired entry stays before the next edit may drop it: a node
	// whose clock is behind still applies it.
	keepExpired = time.Minute
)

// Edit sets one network's decision; nil removes it.
type Edit struct {
	Network  netip.Prefix
	Decision *Decision
}

// Edits are made together. Concurrent changes to other networks are kept.
type Edits struct {
	List []Edit
	// Own skips networks that anyone but By decided about.
	Own bool
	// Keep, if set, reports whether to keep an existing decision; next is nil if it would be removed.
	Keep    func(was *Entry, next *Decision) bool
	By      string
	Message string // for the history
	Token   *consul.Identity
	Now     time.Time // of the change, in all its regions
}

// Outcome is the result of edits.
type Outcome struct {
	Version string // of the index afterwards
	Changed int    // how many networks; 0: none needed it
}

// id is the same whenever someone makes these edits again.
func (e *Edits) id() string {
	text := fmt.Appendf(nil, "%q\n", e.By)
	for _, one := range e.List {
		var d Decision
		if one.Decision != nil {
			d = *one.Decision
		}
		text = fmt.Appendf(text, "%s %s %q\n", one.Network, d.Action, d.Reason)
	}
	return consul.NewPointer(text, "", time.Time{}).Version
}

// Apply makes edits in one region, all or none. It is idempotent.
func (e *Edits) Apply(ctx context.Context, c *consul.Client) (out Outcome, err error) {
	for _, one := range e.List {
		if one.Decision != nil {
			if err := one.Decision.validate(); err != nil {
				return out, err
			}
		}
	}
	for attempt := range mostRaces {
		if attempt > 0 {
			if consul.Pause(ctx, rand.N(20*time.Millisecond<<min(attempt, 4))) != nil {
				return out, context.Cause(ctx)
			}
		}
		s := &step{edits: e, client: c, attempt: attempt}
		if s.before, s.index, err = current(ctx, c); errors.Is(err, ErrMismatch) {
			continue
		} else if err != nil {
			return out, err
		}
		var again bool
		if again, err = s.run(ctx, &out); !again {
			return out, err
		}
	}
	if err == nil {
		err = errors.New("other operators changed networks at the same time; try again")
	}
	return out, err
}

// step is one attempt, from one state of the index.
type step struct {
	edits   *Edits
	client  *consul.Client
	before  *Index
	index   uint64
	attempt int
}

// run makes the edits. again reports a lost race: retry.
func (s *step) run(ctx context.Context, out *Outcome) (again bool, err error) {
	if s.before == nil {
		s.before = &Index{contents: contents{Schema: Schema}}
	}
	perChunk := map[int][]Edit{}
	for _, e := range s.edits.List {
		n := chunkOf(e.Network)
		perChunk[n] = append(perChunk[n], e)
	}
	l, err := Load(ctx, s.client, s.before, nil, func(n int) bool { return perChunk[n] != nil })
	if err != nil {
		return errors.Is(err, ErrMismatch), err
	}
	made, total := s.make(l, perChunk)
	if total > Max { // drop expired entries of other chunks
		if l, err = Load(ctx, s.client, s.before, l, nil); err != nil {
			return errors.Is(err, ErrMismatch), err
		}
		for n := range chunks {
			if perChunk[n] == nil && slices.ContainsFunc(entriesOf(l, n), s.old) {
				perChunk[n] = []Edit{}
			}
		}
		if made, total = s.make(l, perChunk); total > Max {
			return false, fmt.Errorf("a region holds at most %d networks, and would have %d; remove some, or block wider ones", Max, total)
		}
	}
	out.Version = s.before.Version
	return s.write(ctx, made, out)
}

func entriesOf(l *List, number int) []*Entry {
	if l.chunks[number] == nil {
		return nil
	}
	return l.chunks[number].entries
}

// old reports whether an entry may be dropped.
func (s *step) old(e *Entry) bool { return e.Expired(s.edits.Now.Add(-keepExpired)) }

// rewritten is a chunk after the edits.
type rewritten struct {
	number  int
	entries []*Entry
	changed int
}

// make returns the changed chunks and the resulting number of entries.
func (s *step) make(l *List, perChunk map[int][]Edit) (list []rewritten, total int) {
	total = s.before.Count()
	for _, number := range slices.Sorted(maps.Keys(perChunk)) {
		before := entriesOf(l, number)
		now, changed := map[netip.Prefix]*Entry{}, 0
		for _, e := range before {
			if !s.old(e) {
				now[e.Network] = e
			}
		}
		dropped := len(before) - len(now)
		for _, e := range perChunk[number] {
			was := now[e.Network]
			if was != nil && !was.Expired(s.edits.Now) && (s.edits.Own && was.By != s.edits.By || s.edits.Keep != nil && s.edits.Keep(was, e.Decision)) {
				continue
			}
			switch {
			case e.Decision == nil && was != nil:
				delete(now, e.Network)
				changed++
			case e.Decision != nil && (was == nil || !was.same(e.Decision)):
				now[e.Network] = &Entry{e.Network, *e.Decision}
				changed++
			}
		}
		total += len(now) - len(before)
		if changed+dropped > 0 {
			list = append(list, rewritten{number, slices.Collect(maps.Values(now)), changed})
		}
	}
	return list, total
}

// write writes the chunks and their index, and then points the region at it. The list before stays,
// for undo and for nodes that still read it; older ones go.
func (s *step) write(ctx context.Context, list []rewritten, out *Outcome) (again bool, err error) {
	next := contents{Schema, s.name(""), maps.Clone(s.before.Chunks)}
	if next.Chunks == nil {
		next.Chunks = map[string]part{}
	}
	docs, changed := s.client.Documents(Kind), 0
	var jobs []func() error
	for _, r := range list {
		changed += r.changed
		chunk, stored, err := newChunk(r.entries)
		if err != nil {
			return false, err
		}
		if delete(next.Chunks, partName(r.number)); chunk != nil {
			p := part{len(chunk.entries), chunk.hash, s.name(chunk.hash)}
			next.Chunks[partName(r.number)] = p
			jobs = append(jobs, func() error { return s.client.Put(ctx, chunkKey(s.client, r.number, p), stored) })
		}
	}
	if changed == 0 {
		return false, nil
	}
	var versions [2]string // before and after
	var pointer consul.Pointer
	for i, c := range []*contents{&s.before.contents, &next} {
		document, err := c.document()
		if err != nil {
			return false, err
		}
		pointer = consul.NewPointer(document, s.edits.By, s.edits.Now)
		versions[i] = pointer.Version
		jobs = append(jobs, func() error { _, err := docs.Put(ctx, document); return err })
	}
	// What is not needed now will not be needed: edits that began earlier fail.
	needless, err := s.needless(ctx, versions[:], &next)
	if err == nil {
		err = together(jobs)
	}
	if err != nil {
		return false, err
	}
	change := consul.Change{Pointer: pointer, Replaced: versions[0], Message: s.edits.Message, ID: s.edits.id(), Token: s.edits.Token}
	done, err := docs.Activate(ctx, change, s.index)
	if err != nil || !done {
		return !done && err == nil, err
	}
	*out = Outcome{versions[1], changed}
	jobs = nil
	for _, key := range needless {
		jobs = append(jobs, func() error { return s.client.Remove(ctx, key) })
	}
	_ = together(jobs) // the next edit tries again
	return false, nil
}

// name returns a name for a chunk with this hash, or for the index. No other attempt uses it, and it
// is the same in regions with the same list before.
func (s *step) name(hash string) string {
	return consul.NewPointer(fmt.Appendf(nil, "%s %s %q %d %d", s.before.Version, hash, s.edits.By, s.edits.Now.UnixNano(), s.attempt), "", time.Time{}).Version
}

// needless returns the keys of chunks and indexes that neither the index before nor the next one needs.
func (s *step) needless(ctx context.Context, versions []string, next *contents) (keys []string, err error) {
	needed := map[string]bool{}
	for _, c := range []*contents{&s.before.contents, next} {
		for number := range chunks {
			needed[chunkKey(s.client, number, c.Chunks[partName(number)])] = true
		}
	}
	for _, v := range versions {
		needed[s.client.Key(Kind, "versions", v)] = true
	}
	for _, folder := range []string{"chunks", "versions"} {
		there, err := s.client.Keys(ctx, s.client.Key(Kind, folder, ""))
		if err != nil {
			return nil, err
		}
		keys = append(keys, there...)
	}
	return slices.DeleteFunc(keys, func(key string) bool { return needed[key] }), nil
}
