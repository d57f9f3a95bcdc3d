package clientlist

import (
	"context"
	"encoding/json"
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
	// batch bounds the chunks' bytes in one transaction.
	batch = maxChunk
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
	// Keep, if set, reports whether to keep an existing decision.
	Keep    func(was *Entry) bool
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

// Apply makes edits in one region. It is idempotent. Many chunks take several transactions; if
// one fails, the outcome counts the networks of those before.
func (e *Edits) Apply(ctx context.Context, c *consul.Client) (out Outcome, err error) {
	for _, one := range e.List {
		if one.Decision != nil {
			if err := one.Decision.validate(); err != nil {
				return out, err
			}
		}
	}
	left := *e // what is still to be made
	for attempt := range mostRaces {
		if attempt > 0 {
			if consul.Pause(ctx, rand.N(20*time.Millisecond<<min(attempt, 4))) != nil {
				return out, context.Cause(ctx)
			}
		}
		var x *Index
		var index uint64
		if x, index, err = current(ctx, c); err != nil {
			return out, err
		}
		s := &step{edits: &left, client: c, before: x, index: index}
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
	edits  *Edits
	client *consul.Client
	before *Index
	index  uint64
}

// run makes the edits in as many transactions as they need. again reports a lost race: retry.
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
			if was != nil && !was.Expired(s.edits.Now) && (s.edits.Own && was.By != s.edits.By || s.edits.Keep != nil && s.edits.Keep(was)) {
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

// write writes chunks together with the index, one transaction at a time.
func (s *step) write(ctx context.Context, list []rewritten, out *Outcome) (again bool, err error) {
	if !slices.ContainsFunc(list, func(r rewritten) bool { return r.changed > 0 }) {
		return false, nil
	}
	for len(list) > 0 {
		next := contents{Schema, maps.Clone(s.before.Chunks)}
		if next.Chunks == nil {
			next.Chunks = map[string]part{}
		}
		var writes []consul.Write
		all, size := list, 0
		for len(list) > 0 && len(writes) < consul.MostCommitted {
			r := list[0]
			chunk, stored, err := newChunk(r.entries)
			if err != nil {
				return false, err
			}
			if size += len(stored); size > batch && len(writes) > 0 {
				break
			}
			if delete(next.Chunks, partName(r.number)); chunk != nil {
				next.Chunks[partName(r.number)] = part{len(chunk.entries), chunk.hash}
			}
			writes = append(writes, consul.Write{Key: chunkKey(s.client, r.number), Value: stored})
			list = list[1:]
		}
		if again, err := s.swap(ctx, next, writes, all[:len(writes)], len(list) == 0, out); again || err != nil {
			return again, err
		}
	}
	return false, nil
}

// swap makes one transaction, which writes these chunks, the index and the history.
func (s *step) swap(ctx context.Context, next contents, writes []consul.Write, written []rewritten, last bool, out *Outcome) (again bool, err error) {
	x, err := newIndex(next, s.edits.By, s.edits.Now)
	if err != nil {
		return false, err
	}
	value, err := json.Marshal(x)
	if err != nil {
		return false, err
	}
	change := consul.Change{Pointer: x.Pointer, Replaced: s.before.Version, Message: s.edits.Message, Token: s.edits.Token}
	done, err := s.client.Documents(Kind).Commit(ctx, change, value, s.index, writes)
	if err != nil || !done {
		return !done && err == nil, err
	}
	out.Version = x.Version
	chunks := map[int]bool{}
	for _, r := range written {
		out.Changed += r.changed
		chunks[r.number] = true
	}
	// If others change the networks now, theirs are the later decisions.
	s.edits.List = slices.DeleteFunc(slices.Clone(s.edits.List), func(e Edit) bool { return chunks[chunkOf(e.Network)] })
	if last {
		return false, nil
	}
	entry, err := s.client.Get(ctx, CurrentKey(s.client))
	if err != nil {
		return false, err
	}
	if entry == nil {
		return true, nil
	}
	if s.before, err = ParseIndex(entry.Value); err != nil {
		return false, err
	}
	// The next step must not build on a concurrent change before it has read its chunks.
	s.index = entry.ModifyIndex
	return s.before.Version != x.Version || !s.before.AppliedAt.Equal(x.AppliedAt), nil
}
