package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
)

const siegeLimit = 1000

// siegeRules are windows that end many times during a test.
const siegeRules = `
rules:
  - {id: fixed, match: {paths: [/fixed]}, key: [client_ip], algorithm: fixed_window, limit: 1000, window: 10s, consistency: leased, on_store_failure: closed}
  - {id: sliding, match: {paths: [/sliding]}, key: [client_ip], algorithm: sliding_window, limit: 1000, window: 10s, consistency: leased, on_store_failure: closed}
  - {id: ring, match: {paths: [/ring]}, key: [client_ip], algorithm: rolling_window, limit: 1000, window: 10s, consistency: leased, on_store_failure: closed}
`

// Demand is four times the limits; nodes are paused, killed and restarted, Redis hangs, and
// rules alternate between leased and strict at any moment of a window. No interval that an
// algorithm bounds passes more than its limit.
func TestLeasesUnderSiege(t *testing.T) {
	redis := testenv.Redis(t, testenv.Options{})
	config := redisConfig(origin(t, nil), "single", []string{redis.Addr}, 100*time.Millisecond, 3, "")
	var nodes []*testenv.EdgeNode
	var files []string
	write := func(file, rules string) {
		require.NoError(t, os.WriteFile(file+".new", []byte(rules), 0o600))
		require.NoError(t, os.Rename(file+".new", file))
	}
	for range 3 {
		file := filepath.Join(t.TempDir(), "rules.yaml")
		write(file, siegeRules)
		n := testenv.StartEdge(t, fmt.Sprintf("rules: {source: file, file: %q}\n%s", file, config))
		n.WaitReady()
		nodes, files = append(nodes, n), append(files, file)
	}
	const who = "198.51.100.1"
	paths := []string{"fixed", "sliding", "ring"}
	stop := make(chan struct{})
	clients := map[string]*asking{}
	var load sync.WaitGroup
	for _, path := range paths {
		awaitRedis(t, nodes, "/"+path, who)
		clients[path] = &asking{}
		load.Go(func() { clients[path].ask(nodes, "/"+path, who, 1, stop) })
	}
	spent := 0.0
	notice := func() { // a killed node loses its metrics
		for _, n := range nodes {
			spent = max(spent, leased(t, n, "fixed"))
		}
	}
	for turn := range 9 {
		n := nodes[turn%3]
		notice()
		strict := strings.ReplaceAll(siegeRules, "leased", "strict")
		switch turn % 4 {
		case 0:
			require.NoError(t, n.Signal(syscall.SIGSTOP))
			eventually(t, testenv.Patience, "two seconds have passed", after(2*time.Second))
			require.NoError(t, n.Signal(syscall.SIGCONT))
		case 1:
			n.Kill()
			n.Start()
			n.WaitReady()
		case 2:
			write(files[turn%3], strict)
		case 3:
			redis.Suspend()
			eventually(t, testenv.Patience, "half a second has passed", after(500*time.Millisecond))
			redis.Resume()
			for _, file := range files {
				write(file, siegeRules)
			}
		}
		eventually(t, testenv.Patience, "a part of a window has passed", after(time.Duration(700+turn*300)*time.Millisecond))
	}
	eventually(t, testenv.Patience, "units are leased, and more than a limit passes", func() bool {
		notice()
		return spent > 0 && !slices.ContainsFunc(paths, func(path string) bool { return clients[path].passed() <= siegeLimit })
	})
	close(stop)
	load.Wait()
	for _, path := range paths {
		a := clients[path]
		most := a.mostIn(path, 10*time.Second)
		t.Logf("%s: %d asked, %d passed, at most %d of %d in a window", path, len(a.asked), a.passed(), most, siegeLimit)
		require.LessOrEqual(t, most, siegeLimit, path)
	}
}

// mostIn returns the most that certainly passed in any interval of an algorithm: requests both
// sent and answered in it.
func (a *asking) mostIn(algorithm string, window time.Duration) (most int) {
	passed := slices.DeleteFunc(slices.Clone(a.asked), func(s span) bool { return !s.passed })
	within := func(from, to time.Time) (n int) {
		for _, s := range passed {
			if !s.sent.Before(from) && !s.answered.After(to) {
				n++
			}
		}
		return n
	}
	for _, s := range passed {
		at, start := s.answered, s.answered.Truncate(window)
		switch algorithm {
		case "fixed":
			most = max(most, within(start, at))
		case "sliding":
			rest := float64(window-at.Sub(start)) / float64(window)
			most = max(most, within(start, at)+int(rest*float64(within(start.Add(-window), start.Add(-1)))))
		case "ring":
			most = max(most, within(at.Add(1-window), at))
		}
	}
	return most
}
