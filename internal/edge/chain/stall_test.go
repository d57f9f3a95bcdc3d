package chain

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/pkg/limiter/redisstore"
)

// stalls are when the machine stood still: on each CPU, a process that goes before all others
// asked for it every millisecond and did not get it. That happens to a virtual machine whose host
// has no time for it, and hardly by processes that are busy, such as weir or Redis.
type stalls struct {
	sync.Mutex
	seen map[int][]stall // by CPU
}

type stall struct{ from, to time.Time }

// miss is a call that failed, or a decision without Redis.
type miss struct {
	at  time.Time
	err error
}

const stallWitness = `
import os, sys, time
os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[int(sys.argv[1])]})
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
print("ready", flush=True)
last = time.time_ns()
while True:
    time.sleep(0.001)
    now = time.time_ns()
    if now - last > 1_500_000: print(last, now, flush=True)
    last = now
`

// watchStalls starts the witnesses. They need root.
func watchStalls(t *testing.T) *stalls {
	s := &stalls{seen: map[int][]stall{}}
	for cpu := range runtime.NumCPU() {
		out, in := io.Pipe()
		witness := exec.CommandContext(t.Context(), "python3", "-c", stallWitness, fmt.Sprint(cpu))
		witness.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		witness.Stdout, witness.Stderr = in, os.Stderr
		var running sync.WaitGroup
		running.Go(func() {
			runtime.LockOSThread() // its end would end the witness
			_ = in.CloseWithError(witness.Run())
		})
		lines := bufio.NewScanner(out)
		require.True(t, lines.Scan(), "the witness on a CPU did not start; it needs root")
		running.Go(func() {
			for lines.Scan() {
				var from, to int64
				if _, err := fmt.Sscan(lines.Text(), &from, &to); err == nil {
					s.Lock()
					s.seen[cpu] = append(s.seen[cpu], stall{time.Unix(0, from).Add(time.Millisecond), time.Unix(0, to)})
					s.Unlock()
				}
			}
		})
		t.Cleanup(running.Wait) // t.Context has ended
	}
	return s
}

// unexplained returns the misses that are not timeouts in whose budget a CPU stood still for a
// quarter, nor within a second after such a one: breakers open, and reports fall back.
func (s *stalls) unexplained(list []miss, budget time.Duration) (rest []miss) {
	slices.SortFunc(list, func(a, b miss) int { return a.at.Compare(b.at) })
	var last time.Time
	for _, m := range list {
		switch {
		case redisstore.ErrorKind(m.err) == "timeout" && s.stood(m.at.Add(-budget), m.at) >= budget/4:
			last = m.at
		case m.at.Sub(last) > time.Second:
			rest = append(rest, m)
		}
	}
	return rest
}

// stood returns how long one of the CPUs stood still.
func (s *stalls) stood(from, to time.Time) (longest time.Duration) {
	if s == nil {
		return 0
	}
	s.Lock()
	defer s.Unlock()
	for _, list := range s.seen {
		var lost time.Duration
		for _, one := range list {
			if one.from.Before(from) {
				one.from = from
			}
			if one.to.After(to) {
				one.to = to
			}
			lost += max(0, one.to.Sub(one.from))
		}
		longest = max(longest, lost)
	}
	return longest
}
