package chain

import (
	"bufio"
	"fmt"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// stalls are when the machine stood still: on each CPU, a process that runs before all others and
// needs it every millisecond did not get it. A virtual machine whose host has no time for it stands
// still so; a busy process, such as weir or Redis, does not cause it.
type stalls struct {
	sync.Mutex
	seen map[int][]stall // by CPU
}

type stall struct{ from, to time.Time }

const stallWitness = `
import os, sys, time
os.sched_setaffinity(0, {int(sys.argv[1])})
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
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
		witness := exec.Command("python3", "-c", stallWitness, fmt.Sprint(cpu))
		witness.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		out, err := witness.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, witness.Start())
		var reading sync.WaitGroup
		t.Cleanup(func() { _ = witness.Process.Kill(); reading.Wait(); _ = witness.Wait() })
		reading.Go(func() {
			for lines := bufio.NewScanner(out); lines.Scan(); {
				var from, to int64
				if _, err := fmt.Sscan(lines.Text(), &from, &to); err == nil {
					s.Lock()
					s.seen[cpu] = append(s.seen[cpu], stall{time.Unix(0, from), time.Unix(0, to)})
					s.Unlock()
				}
			}
		})
	}
	return s
}

// explain reports whether a CPU stood still for a quarter of the budget that ended at the given time.
func (s *stalls) explain(end time.Time, budget time.Duration) bool {
	s.Lock()
	defer s.Unlock()
	for _, list := range s.seen {
		var lost time.Duration
		for _, one := range list {
			from, to := one.from.Add(time.Millisecond), one.to // the witness sleeps so long
			if began := end.Add(-budget); from.Before(began) {
				from = began
			}
			if to.After(end) {
				to = end
			}
			lost += max(0, to.Sub(from))
		}
		if lost >= budget/4 {
			return true
		}
	}
	return false
}
