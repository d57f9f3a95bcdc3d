// Command bench compares weir with its alternatives, in one run on one machine, and
// prints ratios. docs/BENCHMARKS.md records a run of it.
//
// It starts every server itself on loopback: redis-server, nginx, wrk and the edge must
// be installed or built (make bench does both). It measures each pair in turn, for
// several rounds, and compares the medians.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"
)

func main() {
	role := flag.String("role", "", "internal: run one of the bare servers")
	listen := flag.String("listen", "", "internal: its address")
	origin := flag.String("origin", "", "internal: where it forwards")
	edge := flag.String("edge", "bin/edge", "the edge `BINARY` to measure")
	rounds := flag.Int("rounds", 3, "rounds of each pair")
	duration := flag.Duration("duration", 4*time.Second, "of one measurement")
	only := flag.String("only", "", "one of: proxy, refuse, store, memory, swap (default all)")
	profiles := flag.String("profiles", "", "write CPU profiles of the edge under load into this `FOLDER`")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	var err error
	if *role != "" {
		err = serveBare(ctx, *role, *listen, *origin)
	} else {
		b := &bench{edge: *edge, rounds: *rounds, duration: *duration, profiles: *profiles, admins: map[string]string{}}
		err = b.run(ctx, *only)
		b.close()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

type bench struct {
	edge     string
	rounds   int
	duration time.Duration
	profiles string
	dir      string
	started  []*process
	admins   map[string]string // of edges, by public address
}

func (b *bench) run(ctx context.Context, only string) error {
	dir, err := os.MkdirTemp("", "weir-bench-")
	if err != nil {
		return err
	}
	b.dir = dir
	for _, part := range []struct {
		name string
		run  func(context.Context) error
	}{{"proxy", b.proxy}, {"refuse", b.refuse}, {"store", b.store}, {"memory", b.memory}, {"swap", b.swap}} {
		if only != "" && only != part.name {
			continue
		}
		if err := part.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
		b.stopAll()
	}
	return nil
}

func (b *bench) close() {
	b.stopAll()
	if b.dir != "" {
		_ = os.RemoveAll(b.dir)
	}
}

// contender is one of the things measured side by side.
type contender struct {
	name    string
	measure func(context.Context) (sample, error)
	rates   []float64
	p99     []time.Duration
}

type sample struct {
	rate float64 // a second
	p99  time.Duration
}

// compare measures the contenders in turn and prints them as ratios to the first.
func (b *bench) compare(ctx context.Context, title string, contenders ...*contender) error {
	fmt.Printf("\n%s\n", title)
	for range b.rounds {
		for _, c := range contenders {
			s, err := c.measure(ctx)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			c.rates, c.p99 = append(c.rates, s.rate), append(c.p99, s.p99)
		}
	}
	base := median(contenders[0].rates)
	fmt.Printf("  %-48s %12s %9s %9s\n", "", "a second", "p99", "ratio")
	for _, c := range contenders {
		fmt.Printf("  %-48s %12.0f %9s %9.2f\n", c.name, median(c.rates), median(c.p99).Round(10*time.Microsecond), median(c.rates)/base)
	}
	return nil
}

func median[T float64 | time.Duration](v []T) T {
	s := slices.Sorted(slices.Values(v))
	return s[len(s)/2]
}
