package main

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/weir-edge/weir/tools/internal/overload"
)

// load sends requests to a node as a plan says, whether or not earlier ones were
// answered, and counts each time from when the request was due.
type load struct {
	begin    time.Time
	end      time.Duration
	patience time.Duration // of a client, from when its request was due
	rand     *rand.Rand
	wg       sync.WaitGroup

	mu       sync.Mutex
	targets  []*target // nodes, each of which gets an equal part
	turn     int
	retries  retries
	attempts []overload.Attempt
	troubles map[string]int // by cause, timeouts excepted
}

// target is a node with the workers that are connected to it.
type target struct {
	addr string
	idle []chan job // the most recently busy one is used first
}

// aim makes the load go to these nodes from now on.
func (l *load) aim(nodes []*node) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var next []*target
	for _, n := range nodes {
		at := slices.IndexFunc(l.targets, func(t *target) bool { return t.addr == n.public })
		if at >= 0 {
			next = append(next, l.targets[at])
		} else {
			next = append(next, &target{addr: n.public})
		}
	}
	for _, t := range l.targets {
		if !slices.Contains(next, t) {
			t.close()
		}
	}
	l.targets = next
}

// close ends the idle workers; those that are busy stay.
func (t *target) close() {
	for _, worker := range t.idle {
		close(worker)
	}
	t.idle = nil
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
	for _, t := range l.targets {
		t.close()
	}
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
	t := l.targets[l.turn%len(l.targets)]
	l.turn++
	if last := len(t.idle) - 1; last >= 0 {
		worker = t.idle[last]
		t.idle = t.idle[:last]
	}
	l.mu.Unlock()
	if worker == nil {
		worker = make(chan job, 1)
		go l.work(t, worker)
	}
	worker <- j
}

// work makes one attempt after another on its own connection.
func (l *load) work(t *target, jobs chan job) {
	c := &conn{addr: t.addr}
	defer c.close()
	for j := range jobs {
		a := overload.Attempt{Due: j.Due, Sent: time.Since(l.begin), Class: j.Class, Retry: j.retry}
		var err error
		a.Outcome, a.Capped, err = c.ask(j.Class, j.User, l.begin.Add(j.Due+l.patience))
		now := time.Since(l.begin)
		a.Took = now - j.Due
		if timeout := net.Error(nil); errors.As(err, &timeout) && timeout.Timeout() {
			a.Took, err = max(a.Took, l.patience), nil
		}
		l.note(a, j, now, err)
		l.mu.Lock()
		t.idle = append(t.idle, jobs)
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

// measure runs a scenario against nodes and samples their shedders meanwhile.
func (f *fleet) measure(ctx context.Context, s overload.Scenario, seed uint64) (overload.Run, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	l := &load{patience: overload.Deadline}
	f.load = l
	first := 1
	if len(s.Changes) > 0 && s.Changes[0].At == 0 {
		first = max(1, s.Changes[0].Nodes)
	}
	if err := f.join(first); err != nil {
		return overload.Run{}, err
	}
	l.begin = time.Now()
	var run overload.Run
	background := make(chan error, 3)
	tasks := 2
	go func() {
		var err error
		run.Samples, err = f.samples(ctx, l.begin)
		background <- err
	}()
	go func() { background <- f.change(ctx, s.Changes) }()
	if s.Disturb {
		tasks++
		go func() { background <- f.nodes[0].disturb(ctx) }()
	}
	err := l.run(ctx, s.Plan, seed)
	stop()
	for range tasks {
		err = errors.Join(err, <-background)
	}
	run.Attempts = l.attempts
	for _, n := range f.nodes {
		err = errors.Join(err, n.process.alive())
	}
	if len(l.troubles) > 0 {
		fmt.Fprintf(os.Stderr, "  requests that broke: %v\n", l.troubles)
	}
	return run, err
}
