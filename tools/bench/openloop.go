package main

import (
	"cmp"
	"context"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-edge/weir/tools/internal/paired"
)

// call sends request number i and reads its answer.
type call func(i int) error

// openLoop starts rate requests per second for the duration, evenly spaced, whether or not
// earlier ones have been answered. It measures each from when it was due, so a pause counts
// for every request that it delayed. Each connection has its own call.
func (b *bench) openLoop(ctx context.Context, rate int, connect func() call) (paired.Sample, error) {
	const warm = 3 // requests on each connection before the first that counts
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	due := make(chan time.Time, rate)
	times, failures := make([][]time.Duration, connections), make([]error, connections)
	var ready, done sync.WaitGroup
	ready.Add(connections)
	for c := range connections {
		done.Go(func() {
			do := connect()
			for i := 0; i < warm && failures[c] == nil; i++ {
				failures[c] = do(c + i*connections)
			}
			ready.Done()
			for i := c; failures[c] == nil; i += connections {
				at, more := <-due
				if !more {
					return
				}
				failures[c] = do(i)
				times[c] = append(times[c], time.Since(at))
			}
			stop()
		})
	}
	ready.Wait()
	began := time.Now()
	go pace(ctx, due, rate, b.duration)
	done.Wait()
	took := time.Since(began)
	all := slices.Concat(times...)
	if err := cmp.Or(cmp.Or(failures...), ctx.Err()); err != nil {
		return paired.Sample{}, err
	}
	slices.Sort(all)
	return paired.Sample{Rate: float64(len(all)) / took.Seconds(), P50: all[len(all)/2], P99: all[len(all)*99/100]}, nil
}

// pace sends the moments at which requests are due. It sleeps in a thread of its own:
// a timer of the runtime may be a millisecond late.
func pace(ctx context.Context, due chan<- time.Time, rate int, duration time.Duration) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread() // a thread that ends takes the servers with it that it started
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	defer func() { _ = unix.Prctl(unix.PR_SET_TIMERSLACK, 0, 0, 0, 0) }() // the default
	defer close(due)
	began := time.Now()
	for i := 0; ctx.Err() == nil; i++ {
		after := time.Duration(i) * time.Second / time.Duration(rate)
		if after > duration {
			return
		}
		at := began.Add(after)
		for wait := time.Until(at); wait > 0; wait = time.Until(at) { // signals may interrupt it
			ts := syscall.NsecToTimespec(int64(wait))
			_ = syscall.Nanosleep(&ts, nil)
		}
		select {
		case due <- at:
		case <-ctx.Done():
		}
	}
}
