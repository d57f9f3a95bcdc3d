package tally

import (
	"context"
	"time"

	"github.com/weir-edge/weir/pkg/limiter"
)

// Total is what all nodes of this region have admitted for a key in a window.
type Total struct {
	Limit *limiter.Limit
	Key   string
	Start int64
	Width int64
	Count int64
}

// Flush lets the store count what this node has admitted since the last call. It returns
// the region's totals of these keys and of those not yet confirmed, and when, in Unix
// microseconds, the store was found to have lost data; 0 means never. Only one goroutine
// may call it.
func (s *Store) Flush(ctx context.Context) (totals []Total, lost int64) {
	var tallies []limiter.Tally
	var from []*window
	var shards []*shard
	for i := range s.shards {
		sh := &s.shards[i]
		sh.Lock()
		for _, e := range sh.changed {
			for _, w := range []*window{&e.now, &e.before} {
				if w.count > w.stored {
					tallies = append(tallies, limiter.Tally{Key: []byte(e.key), Start: w.start, Width: w.width, Count: w.count})
					from, shards = append(from, w), append(shards, sh)
				}
			}
		}
		sh.Unlock()
	}
	if len(tallies) > 0 {
		s.config.Merger.Tally(ctx, s.config.Node, tallies)
	}
	gone := false
	for i := range tallies {
		t := &tallies[i]
		shards[i].Lock()
		if w := from[i]; t.Err == nil && w.start == t.Start && w.width == t.Width {
			gone = gone || t.Known < w.stored
			w.stored, w.total = t.Count, max(w.total, t.Total)
		}
		shards[i].Unlock()
	}
	if gone {
		s.losses = max(s.losses+1, time.Now().UnixMicro()) // larger than in earlier lives of this node
		s.tellAgain(func(*entry) bool { return true }, true)
	}
	return s.unconfirmed(), s.losses
}

// unconfirmed lists the totals that are not reported, and drops keys with nothing to report
// from the lists of changed keys.
func (s *Store) unconfirmed() (totals []Total) {
	for i := range s.shards {
		sh := &s.shards[i]
		sh.Lock()
		kept := sh.changed[:0]
		for _, e := range sh.changed {
			for _, w := range []*window{&e.now, &e.before} {
				if w.total > w.reported {
					totals = append(totals, Total{Limit: e.limit, Key: e.key, Start: w.start, Width: w.width, Count: w.total})
				}
			}
			if e.listed = !e.now.settled() || !e.before.settled(); e.listed {
				kept = append(kept, e)
			}
		}
		clear(sh.changed[len(kept):])
		sh.changed = kept
		sh.Unlock()
	}
	return totals
}

// Confirm records that the nodes that tell other regions have received the totals.
func (s *Store) Confirm(totals []Total) {
	for i := range totals {
		t := &totals[i]
		sh := s.shard([]byte(t.Key))
		sh.Lock()
		if e := sh.entries[t.Key]; e != nil {
			for _, w := range []*window{&e.now, &e.before} {
				if w.start == t.Start && w.width == t.Width {
					w.reported = max(w.reported, min(t.Count, w.total))
				}
			}
		}
		sh.Unlock()
	}
}

// TellAgain lets the next Flush return the totals of these keys again, because another node
// tells other regions of them now.
func (s *Store) TellAgain(of func(key string) bool) {
	s.tellAgain(func(e *entry) bool { return of(e.key) }, false)
}

func (s *Store) tellAgain(of func(*entry) bool, count bool) {
	for i := range s.shards {
		sh := &s.shards[i]
		sh.Lock()
		for _, e := range sh.entries {
			if !of(e) {
				continue
			}
			for _, w := range []*window{&e.now, &e.before} {
				if w.reported = 0; count {
					w.stored = 0
				}
			}
			sh.list(e)
		}
		sh.Unlock()
	}
}

// Visit shows what this node itself has admitted for each key in its newest window.
func (s *Store) Visit(visit func(Total)) {
	for i := range s.shards {
		sh := &s.shards[i]
		sh.Lock()
		for key, e := range sh.entries {
			if e.now.count > 0 {
				visit(Total{Limit: e.limit, Key: key, Start: e.now.start, Width: e.now.width, Count: e.now.count})
			}
		}
		sh.Unlock()
	}
}

// Sweep forgets keys whose windows have ended from one part of the Store, the next part at
// each call. now is in Unix microseconds.
func (s *Store) Sweep(now int64) {
	sh := &s.shards[s.swept%shardCount]
	s.swept++
	sh.Lock()
	defer sh.Unlock()
	for key, e := range sh.entries {
		if e.now.ended(now) && (!e.listed || e.now.width > 0) {
			delete(sh.entries, key)
		}
	}
}
