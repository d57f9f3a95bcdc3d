package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-edge/weir/tools/internal/paired"
)

// http2 compares the two protocols under one load generator. wrk speaks only HTTP/1.1 and costs
// less than h2load, so using both would flatter HTTP/1.1.
func (b *bench) http2(ctx context.Context) error {
	origin, _, redis, err := b.proxies()
	if err != nil {
		return err
	}
	const rule = `  - {id: per-user, key: ["query:user"], algorithm: rolling_window, limit: 1000, window: 1m}` + "\n"
	edge, err := b.startEdge("http2", origin, redis, rule, "  http2: {h2c: true}\n")
	if err != nil {
		return err
	}
	origin = freeAddr()
	if err := b.self(origin, "origin-h2c"); err != nil {
		return err
	}
	both, err := b.startEdge("http2-both", "h2c://"+origin, redis, rule, "  http2: {h2c: true}\n")
	if err != nil {
		return err
	}
	first := b.byH2load("weir, HTTP/1.1, 64 connections", edge, "--h1", "-c", strconv.Itoa(connections))
	second := b.byH2load("weir, HTTP/2, 100 streams on 4 connections", edge, "-c", "4", "-m", "25")
	// One client: more than about 200 requests in flight would be refused.
	third := b.byH2load("weir, HTTP/2, 4 connections of 50 streams each", edge, "-c", "4", "-m", "50")
	fourth := b.byH2load("weir, HTTP/1.1, 64 connections, HTTP/2 origin", both, "--h1", "-c", strconv.Itoa(connections))
	fifth := b.byH2load("weir, HTTP/2, 100 streams on 4 connections, HTTP/2 origin", both, "-c", "4", "-m", "25")
	second.goal = 0.5
	return b.compare(ctx, "http2", fmt.Sprintf("Proxied, one strict check per request, %d users, by either protocol", users), "requests", first, second, third, fourth, fifth)
}

// targets writes h2load's file of URIs, one for each user.
func (b *bench) targets(addr string) string {
	var text strings.Builder
	for user := range users {
		fmt.Fprintf(&text, "http://%s/hello?user=%d\n", addr, user)
	}
	return b.write("targets-"+addr, text.String())
}

// byH2load returns a contender that h2load loads at addr, with these arguments.
func (b *bench) byH2load(name, addr string, args ...string) *contender {
	targets := b.targets(addr)
	return &contender{ours: true, Contender: paired.Contender{Name: name, Measure: func(ctx context.Context, _ int) (paired.Sample, error) {
		return b.h2load(ctx, addr, targets, args...)
	}}}
}

var (
	h2loadRate   = regexp.MustCompile(`(?m)^finished in .*, ([\d.]+) req/s`)
	h2loadFailed = regexp.MustCompile(`(?m)^requests: .* (\d+) failed, (\d+) errored, (\d+) timeout`)
	h2loadStatus = regexp.MustCompile(`(?m)^status codes: \d+ 2xx, (\d+) 3xx, (\d+) 4xx, (\d+) 5xx`)
)

// h2load loads addr for the duration.
func (b *bench) h2load(ctx context.Context, addr, targets string, args ...string) (paired.Sample, error) {
	log := b.write("h2load.log", "")
	args = append([]string{"-t", "2", "-D", strconv.Itoa(max(1, int(b.duration.Seconds()))), "-i", targets, "--log-file", log}, args...)
	profiled := make(chan error, 1)
	go func() { profiled <- b.profile(addr) }()
	out, err := exec.CommandContext(ctx, "h2load", args...).CombinedOutput()
	if err != nil {
		return paired.Sample{}, fmt.Errorf("h2load: %w (make bench installs what is needed): %s", err, out)
	}
	if err := <-profiled; err != nil {
		return paired.Sample{}, err
	}
	rate, err := readH2load(out)
	if err != nil {
		return paired.Sample{}, err
	}
	p99, err := tailOf(log)
	return paired.Sample{Rate: rate, P99: p99}, err
}

// readH2load returns the rate that h2load prints, if every request passed.
func readH2load(out []byte) (float64, error) {
	rate := h2loadRate.FindSubmatch(out)
	if rate == nil {
		return 0, fmt.Errorf("h2load printed no rate: %s", out)
	}
	for _, counts := range [][][]byte{h2loadFailed.FindSubmatch(out), h2loadStatus.FindSubmatch(out)} {
		if counts == nil || slices.ContainsFunc(counts[1:], func(n []byte) bool { return string(n) != "0" }) {
			return 0, fmt.Errorf("h2load: requests failed: %s", out)
		}
	}
	return strconv.ParseFloat(string(rate[1]), 64)
}

// tailOf returns the 99th percentile of an h2load log, in which each line holds a request's
// start, status and microseconds.
func tailOf(log string) (time.Duration, error) {
	file, err := os.Open(log)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	var took []int
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) != 3 {
			continue
		}
		n, err := strconv.Atoi(fields[2])
		if err != nil {
			return 0, err
		}
		took = append(took, n)
	}
	if len(took) == 0 {
		return 0, lines.Err()
	}
	slices.Sort(took)
	return time.Duration(took[len(took)*99/100]) * time.Microsecond, lines.Err()
}
