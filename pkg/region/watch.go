package region

import (
	"bytes"
	"context"
	"math/rand/v2"
	"time"
)

const (
	firstBackoff = 250 * time.Millisecond
	maxBackoff   = 8 * time.Second
	// spacing keeps two queries of a watch apart, and up to as much again by
	// chance, however quickly Consul answers.
	spacing = 250 * time.Millisecond
)

// Backoff is how long to wait after failure number attempt, counted from 0:
// between 0 (exclusive) and min(8 s, 250 ms * 2^attempt). random is uniform in
// [0, 1). The whole delay is left to chance, so that nodes which lost Consul at
// the same instant come back one by one.
func Backoff(attempt int, random float64) time.Duration {
	limit := maxBackoff
	if attempt = max(attempt, 0); attempt < 5 {
		limit = firstBackoff << attempt
	}
	return max(1, time.Duration((1-random)*float64(limit)))
}

// Watch calls each with the entry of key (nil when the key is missing) at once,
// and again whenever its content changes, until ctx ends. It never gives up: it
// asks Consul with blocking queries of 10 s, and after a failure waits for
// Backoff. A Consul that hangs is a failure after 21 s at most. Content that is older than the last, or gone, is delivered only when
// the leader has confirmed it, so that a server that lags behind is no news.
//
// state, which may be nil, hears of each answer (nil) and each failure, among
// them a denied token: that is never "missing". Both callbacks run on the
// caller's goroutine, one at a time.
func (c *Consul) Watch(ctx context.Context, key string, state func(error), each func(*Entry)) {
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

// source is what a watch follows.
type source[T any] struct {
	read func(context.Context, query) (value T, index uint64, err error)
	same func(a, b T) bool
	// older reports a value that does not come after last unless data was lost.
	older func(last, now T) bool
}

// follow is the loop of every watch.
func follow[T any](ctx context.Context, s source[T], state func(error), each func(T)) {
	if state == nil {
		state = func(error) {}
	}
	var (
		last     T
		known    bool // there is a last
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
			// Back from a loss of data, Consul may count from 1 again, and would
			// hold a query for the old index although it has news.
			q = query{consistent: q.consistent}
			pause(ctx, Backoff(failures, rand.Float64()))
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
		pause(ctx, spacing+rand.N(spacing)-time.Since(started))
	}
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
