// Package router answers DNS for a fleet with the nearest healthy PoP: the process
// behind regionctl dns.
package router

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/internal/bind"
	"github.com/weir-edge/weir/internal/httpconns"
	"github.com/weir-edge/weir/internal/systemd"
	"github.com/weir-edge/weir/pkg/region"
	"github.com/weir-edge/weir/pkg/region/dns"
)

const (
	// settling is how long a start waits for regions that have not reported their nodes:
	// earlier answers could include PoPs that are down.
	settling = 3 * time.Second
	// remindEvery is how often a process that cannot start says why.
	remindEvery = time.Minute
	// closing is how long scrapes may take to end.
	closing = time.Second
)

// router is a DNS server with its state and metrics.
type router struct {
	*Config
	follower *region.Follower
	metrics  *metrics
	others   *otherRouters
	ready    atomic.Bool
}

// Run runs until ctx ends or something essential fails for good.
func Run(ctx context.Context, c *Config) (err error) {
	r := &router{Config: c}
	// Faults of this host are reported before waiting for anything.
	if c.Geo != nil {
		defer start(ctx, func(ctx context.Context) { c.Geo.follow(ctx, r.Log) })()
	}
	r.follower = region.NewFollower(c.follow())
	r.others = &otherRouters{view: r.follower.View, key: c.Key, log: c.Log}
	r.metrics = newMetrics(r.follower.View, c.Geo, r.ready.Load, r.others.yields)
	if err := c.restore(r.follower); err != nil && !errors.Is(err, os.ErrNotExist) {
		r.Log.Error("ignoring the saved state; starting from the Consuls", "error", err.Error())
	}
	if err := r.probe(); err != nil {
		return err
	}
	if c.Metrics != "" {
		stop, err := r.serveMetrics()
		if err != nil {
			return err
		}
		defer stop()
	}
	names := make([]string, len(c.Regions))
	for i, f := range c.Regions {
		names[i] = f.Name
	}
	watch := newStateLog(r.Log, names, c.Geo != nil)
	defer start(ctx, func(ctx context.Context) { r.follower.Run(ctx, watch.changed) })()

	if c.State != "" {
		defer start(ctx, r.keep)()
	}

	zone, err := r.await(ctx)
	if err != nil {
		return nil // a requested stop is not a failure
	}
	watch.zone.Store(&zone)
	serves := c.server(zone, r.follower.View, r.metrics)
	serves.Proof, serves.Yields = r.others.prove, r.others.yields
	server, err := dns.New(serves)
	if err != nil {
		return &ConfigError{err}
	}
	for _, addr := range c.Listen {
		if err := server.Listen(addr.String()); err != nil {
			return fmt.Errorf("--listen: %w", bind.Error(err))
		}
	}
	var bound []string
	for _, a := range server.Addrs() {
		bound = append(bound, a.String())
	}
	r.ready.Store(true) // before the line that says so
	r.Log.Info("answering", "zone", zone, "listen", strings.Join(bound, " "), "ttl", c.TTL.String(), "metrics", c.Metrics)
	defer start(ctx, func(ctx context.Context) { r.others.follow(ctx, zone) })()
	systemd.Notify(r.Log, "READY=1\nSTATUS=answering")
	err = server.Serve(ctx)
	r.ready.Store(false)
	systemd.Notify(r.Log, "STOPPING=1")
	if err != nil {
		return err
	}
	r.Log.Info("stopped")
	return nil
}

// start runs f until the returned function is called, which waits for f to end.
func start(ctx context.Context, f func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { f(ctx) })
	return func() {
		cancel()
		running.Wait()
	}
}

// probe binds what will be bound later, and releases it.
func (r *router) probe() error {
	for _, a := range r.Listen {
		if a.Port() == 0 {
			continue
		}
		addr := a.String()
		udp, err := net.ListenPacket("udp", addr)
		if err != nil {
			return fmt.Errorf("--listen: %w", bind.Error(err))
		}
		_ = udp.Close() // nothing was sent
		tcp, err := bind.TCP(addr)
		if err != nil {
			return fmt.Errorf("--listen: %w", err)
		}
		_ = tcp.Close() // nothing was accepted
	}
	return nil
}

// await waits for a topology, then briefly for every region to report its nodes. It
// returns the zone to answer for; its only error is that ctx ended.
func (r *router) await(ctx context.Context) (string, error) {
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	began := time.Now()
	reminded := began.Add(time.Second - remindEvery) // the first reminder comes after a second
	for {
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-look.C:
		}
		v, now := r.follower.View(), time.Now()
		if v.Topology != nil && (allKnown(v) || now.Sub(began) >= settling) {
			return cmp.Or(canonical(r.Zone), v.Topology.Zone), nil
		}
		if v.Topology == nil && now.Sub(reminded) >= remindEvery {
			reminded = now
			r.Log.Warn("waiting for a topology; no query is answered until then; publish one with regionctl topology apply FILE", "regions", unknown(v))
			// A new fleet's topology may come hours later, and must not keep systemctl start waiting.
			systemd.Notify(r.Log, "READY=1\nSTATUS=waiting for a topology")
		}
	}
}

// allKnown reports whether every region reports its nodes.
func allKnown(v *region.View) bool {
	for _, s := range v.Regions {
		if !s.Known {
			return false
		}
	}
	return len(v.Regions) > 0
}

// unknown describes each region, for the reader of a message about a missing topology.
func unknown(v *region.View) string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(v.Regions)) {
		switch s := v.Regions[name]; {
		case s.Err != nil:
			list = append(list, fmt.Sprintf("%s: %v", name, s.Err))
		case !s.Heard.IsZero():
			list = append(list, name+" has none")
		default:
			list = append(list, name+" has not answered yet")
		}
	}
	return strings.Join(list, "; ")
}

// remarks returns the lines of /readyz: ok, and what an operator should know even so.
func (r *router) remarks(v *region.View) []string {
	lines := []string{"ok"}
	if why := v.Topology.CannotSteer(r.Geo != nil); why != "" {
		lines = append(lines, why)
	}
	if why := r.Geo.fault(); why != "" {
		lines = append(lines, why)
	}
	if v.SpillErr != nil {
		lines = append(lines, "works alone: which clients go elsewhere may differ from other routers: "+v.SpillErr.Error())
	}
	if to := r.others.yieldsTo(time.Now()); to != "" {
		lines = append(lines, "hears no region, and yields to "+to+", which does: queries for the nearest PoP get SERVFAIL")
	}
	for _, name := range slices.Sorted(maps.Keys(v.Regions)) {
		if s := v.Regions[name]; !s.Known {
			age := "not reported yet"
			if !s.Heard.IsZero() {
				age = s.Age(time.Now()).Round(time.Second).String() + " old"
			}
			lines = append(lines, fmt.Sprintf("facts of %s: %s", name, age))
		} else if s.Err != nil { // its Consul answers, but not what this can read
			lines = append(lines, name+": "+s.Err.Error())
		}
	}
	return lines
}

// serveMetrics serves the metrics listener until stop is called.
func (r *router) serveMetrics() (stop func(), err error) {
	l, err := bind.TCP(r.Metrics)
	if err != nil {
		return nil, fmt.Errorf("--metrics: %w, or pass --metrics '' for none", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", r.metrics.handler())
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { respond(w, http.StatusOK, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if r.ready.Load() {
			respond(w, http.StatusOK, strings.Join(r.remarks(r.follower.View()), "\n"))
		} else {
			respond(w, http.StatusServiceUnavailable, "waiting for a topology, or stopping")
		}
	})
	server := httpconns.New(mux)
	server.WriteTimeout, server.ErrorLog = 30*time.Second, slog.NewLogLogger(r.Log.Handler(), slog.LevelDebug)
	return httpconns.Serve(server, l, closing, func(err error) {
		r.Log.Error("the metrics listener failed; DNS answers continue", "error", err.Error())
	}), nil
}

func respond(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = fmt.Fprintln(w, text) // the caller may be gone
}
