package main

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"time"

	"github.com/weir-edge/weir/tools/internal/overload"
)

// load sends requests to a node as a plan says, whether or not earlier ones were
// answered, and counts each time from when the request was due.
type load struct {
	addr  string
	begin time.Time
	end   time.Duration
	rand  *rand.Rand
	wg    sync.WaitGroup

	mu       sync.Mutex
	idle     []chan job // workers; the most recently busy one is used first
	retries  retries
	attempts []overload.Attempt
	troubles map[string]int // by cause, timeouts excepted
}

// job is a due attempt.
type job struct {
	overload.Arrival
	retry bool
}

// retries are attempts to repeat, ordered by time.
type retries []job

func (r retries) Len() int           { return len(r) }
func (r retries) Less(i, j int) bool { return r[i].Due < r[j].Due }
func (r retries) Swap(i, j int)      { r[i], r[j] = r[j], r[i] }
func (r *retries) Push(x any)        { *r = append(*r, x.(job)) }

func (r *retries) Pop() any {
	last := len(*r) - 1
	x := (*r)[last]
	*r = (*r)[:last]
	return x
}

// nap is how long the dispatcher sleeps at most, so that it notices retries and the
// end.
const nap = 5 * time.Millisecond

// run sends requests until the plan is over and every attempt is answered or given up.
func (l *load) run(ctx context.Context, plan overload.Plan, seed uint64) error {
	arrivals := overload.Schedule(plan, seed)
	l.end, l.rand = plan.Length(), rand.New(rand.NewPCG(seed, overload.Classes+1))
	l.attempts, l.troubles = make([]overload.Attempt, 0, len(arrivals)+len(arrivals)/4), map[string]int{}
	for ctx.Err() == nil {
		now := time.Since(l.begin)
		for len(arrivals) > 0 && arrivals[0].Due <= now {
			l.give(job{Arrival: arrivals[0]})
			arrivals = arrivals[1:]
		}
		for {
			again, ok := l.again(now)
			if !ok {
				break
			}
			l.give(again)
		}
		if now > l.end {
			break
		}
		wait := nap
		if len(arrivals) > 0 {
			wait = min(wait, arrivals[0].Due-time.Since(l.begin))
		}
		time.Sleep(wait)
	}
	l.wg.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, worker := range l.idle {
		close(worker)
	}
	l.idle = nil
	return ctx.Err()
}

// again returns a due retry.
func (l *load) again(now time.Duration) (job, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.retries) == 0 || l.retries[0].Due > now {
		return job{}, false
	}
	return heap.Pop(&l.retries).(job), true
}

// give hands an attempt to an idle worker, or to a new one.
func (l *load) give(j job) {
	l.wg.Add(1)
	l.mu.Lock()
	var worker chan job
	if last := len(l.idle) - 1; last >= 0 {
		worker = l.idle[last]
		l.idle = l.idle[:last]
	}
	l.mu.Unlock()
	if worker == nil {
		worker = make(chan job, 1)
		go l.work(worker)
	}
	worker <- j
}

// work makes one attempt after another on its own connection.
func (l *load) work(jobs chan job) {
	c := &conn{addr: l.addr}
	defer c.close()
	for j := range jobs {
		a := overload.Attempt{Due: j.Due, Sent: time.Since(l.begin), Class: j.Class, Retry: j.retry}
		var err error
		a.Outcome, a.Capped, err = c.ask(j.Class, j.User, l.begin.Add(j.Due+overload.Deadline))
		now := time.Since(l.begin)
		a.Took = now - j.Due
		if timeout := net.Error(nil); errors.As(err, &timeout) && timeout.Timeout() {
			a.Took, err = max(a.Took, overload.Deadline), nil
		}
		l.note(a, j, now, err)
		l.mu.Lock()
		l.idle = append(l.idle, jobs)
		l.mu.Unlock()
		l.wg.Done()
	}
}

// note records an attempt and schedules a retry if its client makes one.
func (l *load) note(a overload.Attempt, j job, now time.Duration, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.attempts = append(l.attempts, a)
	if err != nil {
		l.troubles[cause(err)]++
	}
	if a.Outcome == overload.Answered || j.Retries == 0 {
		return
	}
	j.Retries--
	j.retry = true
	j.Due = now + overload.RetryDelay + time.Duration(l.rand.Int64N(int64(overload.RetryDelay)))
	if j.Due < l.end {
		heap.Push(&l.retries, j)
	}
}

// cause omits the addresses, which vary.
func cause(err error) string {
	if op := (*net.OpError)(nil); errors.As(err, &op) {
		return op.Op + ": " + op.Err.Error()
	}
	return err.Error()
}

// measure runs a scenario against a node and samples its shedder meanwhile.
func (n *node) measure(ctx context.Context, s overload.Scenario, seed uint64) (overload.Run, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	l := &load{addr: n.public, begin: time.Now()}
	var run overload.Run
	beside := make(chan error, 2)
	tasks := 1
	go func() {
		var err error
		run.Samples, err = n.samples(ctx, l.begin)
		beside <- err
	}()
	if s.Disturb {
		tasks++
		go func() { beside <- n.disturb(ctx) }()
	}
	err := l.run(ctx, s.Plan, seed)
	stop()
	for range tasks {
		err = errors.Join(err, <-beside)
	}
	run.Attempts = l.attempts
	err = errors.Join(err, n.process.alive())
	if len(l.troubles) > 0 {
		fmt.Fprintf(os.Stderr, "  requests that broke: %v\n", l.troubles)
	}
	return run, err
}

// samples queries the node once per overload.Interval, until ctx ends.
func (n *node) samples(ctx context.Context, begin time.Time) ([]overload.Sample, error) {
	var all []overload.Sample
	tick := time.NewTicker(overload.Interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return all, nil
		case <-tick.C:
		}
		s, err := n.sample(ctx)
		switch {
		case ctx.Err() != nil:
			return all, nil
		case err != nil:
			return all, err
		}
		s.At = time.Since(begin)
		all = append(all, s)
	}
}
