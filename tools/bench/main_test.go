package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/tools/internal/paired"
	"github.com/weir-edge/weir/tools/internal/report"
)

// The document has a place for every table.
func TestDocument(t *testing.T) {
	text, err := os.ReadFile("../../docs/BENCHMARKS.md")
	require.NoError(t, err)
	for _, name := range []string{"proxy", "latency", "latency-added", "leased", "http2", "behavior", "forward", "gateways", "refuse", "shed", "rls", "rls-refuse", "authz", "authz-one", "store-uniform-64", "store-uniform-512", "store-zipf-64", "store-zipf-512", "hot", "memory", "swap"} {
		_, err := report.Regenerate(text, "bench", name, "")
		require.NoError(t, err)
	}
}

func TestAnUnknownPartIsRefused(t *testing.T) {
	require.ErrorContains(t, run(t.Context(), options{only: "proxy,refused"}), `there is no part "refused"; choose from proxy, latency, leased, http2`)
}

func TestRatios(t *testing.T) {
	require.Equal(t, "0.912 ± 0.004", ratioText(0.912, 0.004))
	require.Equal(t, "123 ± 1.5", ratioText(123.4, 1.5))
}

// Only a rate of which every request passed is a rate.
func TestH2load(t *testing.T) {
	const good = "finished in 4.00s, 12345.67 req/s, 1.5MB/s\nrequests: 49382 total, 49482 started, 49382 done, 49382 succeeded, 0 failed, 0 errored, 0 timeout\n" +
		"status codes: 49382 2xx, 0 3xx, 0 4xx, 0 5xx\n"
	rate, err := readH2load([]byte(good))
	require.NoError(t, err)
	require.InDelta(t, 12345.67, rate, 0)
	for _, bad := range []string{"", strings.Replace(good, "0 4xx", "3 4xx", 1), strings.Replace(good, "0 errored", "1 errored", 1), good[:60]} {
		_, err := readH2load([]byte(bad))
		require.Error(t, err, bad)
	}
	file := filepath.Join(t.TempDir(), "log")
	require.NoError(t, os.WriteFile(file, []byte("1\t200\t10\n2\t200\t30\n3\t200\t20\n"), 0o600))
	tail, err := tailOf(file)
	require.NoError(t, err)
	require.Equal(t, 30*time.Microsecond, tail)
}

// With -before, h2load loads each edge, not the one that started last.
func TestTargets(t *testing.T) {
	b := &bench{dir: t.TempDir()}
	before := b.targets("127.0.0.1:1")
	b.targets("127.0.0.1:2")
	text, err := os.ReadFile(before)
	require.NoError(t, err)
	first, _, _ := strings.Cut(string(text), "\n")
	require.Equal(t, "http://127.0.0.1:1/hello?user=0", first)
}

// Every request that is due is sent once, also while earlier ones are unanswered.
func TestOpenLoop(t *testing.T) {
	var mu sync.Mutex
	sent := map[int]int{}
	b := &bench{options: options{duration: 100 * time.Millisecond}}
	s, err := b.openLoop(t.Context(), 2_000, func() call {
		return func(i int) error {
			mu.Lock()
			defer mu.Unlock()
			sent[i]++
			return nil
		}
	})
	require.NoError(t, err)
	require.Positive(t, s.P50)
	require.GreaterOrEqual(t, s.P99, s.P50)
	calls := 0
	for _, n := range sent {
		calls += n
	}
	require.Equal(t, 201+3*connections, calls)

	_, err = b.openLoop(t.Context(), 1_000, func() call { return func(int) error { return errors.New("refused") } })
	require.ErrorContains(t, err, "refused")
}

// A row's title states the rounds that the row has.
func TestRoundsOfLatency(t *testing.T) {
	at := slices.IndexFunc(parts, func(p part) bool { return p.name == "latency" })
	require.GreaterOrEqual(t, parts[at].length.Least, 20, "for intervals")
	for _, rounds := range []int{1, 5, 20, 21} {
		measured := func(context.Context, int) (paired.Sample, error) { return paired.Sample{Rate: 1}, nil }
		other := &paired.Contender{Every: seldom, Measure: measured}
		require.NoError(t, paired.Run(t.Context(), paired.Length{Least: rounds}, other))
		n := 0
		for _, s := range other.Samples {
			n += int(s.Rate)
		}
		want := fmt.Sprintf("Median of %d %s of 2s", rounds, plural("round", rounds))
		if n < rounds {
			want += fmt.Sprintf("; of %d in rows that the next table does not compare", n)
		}
		require.Contains(t, latencyTitle(rounds, 2*time.Second)+"$", want+"$")
	}
}

func TestInterval(t *testing.T) {
	values := []float64{1, 2, 3, 4, 100}
	sum := func(rounds []int) (sum float64) {
		for _, i := range rounds {
			sum += values[i]
		}
		return sum
	}
	require.Regexp(t, `^110 \(\d+ to \d+\)$`, interval(5, whole, sum))
	require.Equal(t, []string{"0", "-2", "1,096"}, []string{whole(-0.3), whole(-1.6), whole(1096.2)})
}
