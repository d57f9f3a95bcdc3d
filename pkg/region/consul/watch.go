package consul

import (
	"bytes"
	"context"
	"math/rand/v2"
	"slices"
	"time"
)

const (
	firstBackoff = 250 * time.Millisecond
	maxBackoff   = 8 * time.Second
	// spacing is the minimum time between two queries of a watch, plus up to as much
	// again at random, however quickly Consul answers.
	spacing = 250 * time.Millisecond
)

// Backoff returns how long to wait after failure number attempt, counted from 0: between
// 0 (exclusive) and min(8 s, 250 ms * 2^attempt). random is uniform in [0, 1). The whole
// delay is random, so that nodes that lost Consul at the same instant reconnect one by
// one.
func Backoff(attempt int, random float64) time.Duration {
	limit := maxBackoff
	if attempt = max(attempt, 0); attempt < 5 {
		limit = firstBackoff << attempt
	}
	return max(1, time.Duration((1-random)*float64(limit)))
}

// Watch calls each with the entry of key (nil if the key is missing) immediately, and
// again whenever its content changes, until ctx ends. It never gives up: it uses blocking
// queries of 10 s and waits for Backoff after a failure. A hanging Consul counts as a
// failure after at most 21 s. Content that is older than the last, or missing, is
// delivered only after the leader has confirmed it, so that a lagging server changes
// nothing.
//
// state, if not nil, receives nil for each answer and an error for each failure,
// including a denied token, which never counts as missing. Both callbacks run on the
// caller's goroutine, one at a time.
func (c *Client) Watch(ctx context.Context, key string, state func(error), each func(*Entry)) {
	follow(ctx, source[*Entry]{
		read: func(ctx context.Context, q query) (*Entry, uint64, error) {
			return c.get(ctx, key, q, q.bound())
		},
		same: func(a, b *Entry) bool {
			return (a == nil) == (b == nil) && (a == nil || bytes.Equal(a.Value, b.Value))
		},
		older: func(last, now *Entry) bool {
			return last != nil && (now == nil || now.ModifyIndex < last.ModifyIndex)
		},
	}, state, each)
}

// WatchList calls each with all keys under a prefix immediately and whenever one changes,
// until ctx ends. It polls like Watch. The leader must confirm an empty list that follows
// a non-empty one.
func (c *Client) WatchList(ctx context.Context, prefix string, state func(error), each func([]Entry)) {
	watchList(ctx, func(ctx context.Context, q query, bound time.Duration) ([]Entry, uint64, error) {
		return c.list(ctx, prefix, q, bound)
	}, func(a, b Entry) bool { return a.Key == b.Key && bytes.Equal(a.Value, b.Value) }, state, each)
}

func watchList[T any](ctx context.Context, read func(context.Context, query, time.Duration) ([]T, uint64, error), same func(a, b T) bool, state func(error), each func([]T)) {
	follow(ctx, source[[]T]{
		read:  func(ctx context.Context, q query) ([]T, uint64, error) { return read(ctx, q, q.bound()) },
		same:  func(a, b []T) bool { return slices.EqualFunc(a, b, same) },
		older: func(last, now []T) bool { return len(last) > 0 && len(now) == 0 },
	}, state, each)
}

// source is what a watch follows.
type source[T any] struct {
	read func(context.Context, query) (value T, index uint64, err error)
	same func(a, b T) bool
	// older reports whether the value is older than last, which only data loss explains.
	older func(last, now T) bool
}

// follow is the loop of every watch.
func follow[T any](ctx context.Context, s source[T], state func(error), each func(T)) {
	if state == nil {
		state = func(error) {}
	}
	var (
		last     T
		known    bool // last is set
		q        query
		failures int
	)
	for ctx.Err() == nil {
		started := time.Now()
		value, index, err := s.read(ctx, q)
		if ctx.Err() != nil {
			return
		}
		state(err)
		if err != nil {
			// After losing its data, Consul may count from 1 again and would hold a query
			// for the old index despite changes.
			q = query{consistent: q.consistent}
			_ = Pause(ctx, Backoff(failures, rand.Float64()))
			failures++
			continue
		}
		failures = 0
		doubtful := index < q.index || known && s.older(last, value)
		if doubtful && !q.consistent {
			q = query{consistent: true}
		} else {
			q = query{index: index}
			news := !known || !s.same(last, value)
			last, known = value, true
			if news {
				each(value)
			}
		}
		_ = Pause(ctx, spacing+rand.N(spacing)-time.Since(started))
	}
}

// Pause waits for d, or until ctx ends, and returns ctx's error.
func Pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
	return ctx.Err()
}
