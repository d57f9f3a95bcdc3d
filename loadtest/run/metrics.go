package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"time"

	"github.com/weir-edge/weir/pkg/limiter/global"
)

var (
	fallback = regexp.MustCompile(`(?m)^weir_decisions_total\{.*source="fallback".*\} ([0-9.e+]+)$`)
	decided  = regexp.MustCompile(`(?m)^weir_decisions_total\{.*\} ([0-9.e+]+)$`)
	called   = regexp.MustCompile(`(?m)^weir_store_batch_size_sum ([0-9.e+]+)$`)
	over     = regexp.MustCompile(`(?m)^weir_overshoot_ratio\{.*\} ([0-9.e+-]+)$`)
	bounded  = regexp.MustCompile(`(?m)^weir_overshoot_bound_ratio\{.*\} ([0-9.e+-]+)$`)
	lag      = regexp.MustCompile(`(?m)^weir_global_lag_seconds\{from="(.*)"\} ([0-9.e+-]+)$`)
	started  = regexp.MustCompile(`(?m)^process_start_time_seconds(?:\{.*\})? (\S+)$`)
)

// metrics calls f with the metrics of each edge that answers.
func (l *lab) metrics(ctx context.Context, f func(region, address string, text []byte)) {
	client := http.Client{Timeout: 2 * time.Second}
	for _, r := range l.state.Regions {
		for _, p := range r.Pops {
			for _, a := range p.Addresses {
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(a, "8081")+"/metrics", nil)
				if err != nil {
					continue
				}
				res, err := client.Do(req)
				if err != nil {
					continue // a dead one has none
				}
				text, _ := io.ReadAll(res.Body)
				res.Body.Close()
				f(r.Name, a, text)
			}
		}
	}
}

// sum adds up what matches.
func sum(metric *regexp.Regexp, text []byte) (all float64) {
	for _, m := range metric.FindAllSubmatch(text, -1) {
		v, _ := strconv.ParseFloat(string(m[1]), 64)
		all += v
	}
	return all
}

// fallbacks counts each edge process's decisions without the store: a restarted one
// counts from zero.
func (l *lab) fallbacks(ctx context.Context) map[[2]string]float64 {
	counts := map[[2]string]float64{}
	l.metrics(ctx, func(region, process string, text []byte) {
		if m := started.FindSubmatch(text); m != nil {
			process += " since " + string(m[1])
		}
		if n := sum(fallback, text); n > 0 {
			counts[[2]string{region, process}] += n
		}
	})
	return counts
}

// calls answers how many checks the edges of a region have decided, and how many calls to
// Redis they have made.
func (l *lab) calls(ctx context.Context, region string) ([]byte, error) {
	var all struct {
		Decisions float64 `json:"decisions"`
		Calls     float64 `json:"calls"`
	}
	l.metrics(ctx, func(of, _ string, text []byte) {
		if of == region {
			all.Decisions += sum(decided, text)
			all.Calls += sum(called, text)
		}
	})
	return json.Marshal(all)
}

// overshoot answers by what part of a reported limit the edges of a region have exceeded one,
// as they measured it, and by how much they might. It is an error if none was used.
func (l *lab) overshoot(ctx context.Context, region string) ([]byte, error) {
	var all struct {
		Overshoot float64 `json:"overshoot"`
		Bound     float64 `json:"bound"`
	}
	l.metrics(ctx, func(of, _ string, text []byte) {
		if of == region {
			all.Overshoot, all.Bound = max(all.Overshoot, largest(over, text)), max(all.Bound, largest(bounded, text))
		}
	})
	if all.Bound == 0 {
		return nil, fmt.Errorf("no edge of %s has used a reported limit", region)
	}
	return json.Marshal(all)
}

// delay answers within how many seconds each region learns of a request in another, as the
// edges measure it: the largest lag, a period until a node counts, and another until its region
// tells. The region `except` may be cut off. It is an error if no edge measures it.
func (l *lab) delay(ctx context.Context, except string) ([]byte, error) {
	most := -1.0
	l.metrics(ctx, func(of, _ string, text []byte) {
		for _, m := range lag.FindAllSubmatch(text, -1) {
			if v, err := strconv.ParseFloat(string(m[2]), 64); err == nil && of != except && string(m[1]) != except {
				most = max(most, v)
			}
		}
	})
	if most < 0 {
		return nil, errors.New("no edge hears of another region")
	}
	return json.Marshal(most + 2*global.Period.Seconds())
}

// largest returns the largest of what matches.
func largest(metric *regexp.Regexp, text []byte) (most float64) {
	for _, m := range metric.FindAllSubmatch(text, -1) {
		v, _ := strconv.ParseFloat(string(m[1]), 64)
		most = max(most, v)
	}
	return most
}

// difference sums by region.
func difference(before, after map[[2]string]float64) map[string]int {
	all := map[string]int{}
	for key, v := range after {
		all[key[0]] += int(v - before[key])
	}
	return all
}
