package limiter_test

import (
	"context"
	"fmt"
	"time"

	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/memory"
)

const budget = 25 * time.Millisecond

// shard is a Batcher that answers from a memory store. Between hang and resume, its calls
// block.
type shard struct {
	limiter.FullStore
	turn    chan struct{}    // not a mutex: synctest only recognizes waiting on a channel
	batches [][]string       // the questions, as text
	answers []limiter.Answer // given to this many checks instead of asking the store
}

func newShard() *shard {
	return &shard{FullStore: memory.New(memory.Config{}), turn: make(chan struct{}, 1)}
}

func (s *shard) hang()   { s.turn <- struct{}{} }
func (s *shard) resume() { <-s.turn }

// Do implements limiter.Batcher.
func (s *shard) Do(ctx context.Context, calls []*limiter.Call, by time.Time) (rest func()) {
	return until(by, func() { s.decide(ctx, calls) })
}

// until returns by the given time, if that is not zero, with a function that waits for the end.
func until(by time.Time, do func()) (rest func()) {
	if by.IsZero() {
		do()
		return nil
	}
	done := make(chan struct{})
	go func() { defer close(done); do() }()
	select {
	case <-done:
		return nil
	case <-time.After(time.Until(by)):
		return func() { <-done }
	}
}

func (s *shard) decide(ctx context.Context, calls []*limiter.Call) {
	s.hang()
	defer s.resume()
	var batch []string
	for _, c := range calls {
		batch = append(batch, question(c))
		c.Now = time.Now().UnixMicro()
		if c.Return {
			d := limiter.Decision{Results: make([]limiter.Result, len(c.Checks))}
			for i := range d.Results {
				d.Results[i].Charged, d.Results[i].TakenAt = true, c.TakenAt[i]
			}
			c.Err = s.Return(ctx, c.Checks, &d)
			continue
		}
		if len(c.Checks) == len(s.answers) {
			c.Answers = append(c.Answers[:0], s.answers...)
			continue
		}
		c.Answers = make([]limiter.Answer, len(c.Checks))
		for n := range max(1, c.Times) { // one after another: a batch must match
			var d limiter.Decision
			c.Err = s.Take(ctx, c.Checks, &d)
			for i, r := range d.Results {
				if r.Allowed && c.Answers[i].Fits == int64(n) {
					c.Answers[i].Fits++
				}
				a := &c.Answers[i]
				a.Remaining, a.Retry, a.Reset = r.Remaining, r.RetryAfter.Microseconds(), r.ResetAfter.Microseconds()
			}
		}
	}
	s.batches = append(s.batches, batch)
}

// Follow implements limiter.Batcher.
func (s *shard) Follow(context.Context, []*limiter.Call) {}

func question(c *limiter.Call) string {
	if c.Return {
		return fmt.Sprintf("return %s %d", c.Checks[0].Key, c.Checks[0].Slot)
	}
	return fmt.Sprintf("%d × %s", c.Times, c.Checks[0].Key)
}

// gate is a shard that decides when opened, and delays its second answer by a millisecond so
// that a caller can leave.
type gate struct {
	*shard
	open     chan struct{}
	answered func()
}

func (g *gate) Do(ctx context.Context, calls []*limiter.Call, by time.Time) (rest func()) {
	return until(by, func() {
		<-g.open
		g.decide(ctx, calls)
		if len(g.batches) == 2 {
			g.answered()
			<-time.After(time.Millisecond)
		}
	})
}
