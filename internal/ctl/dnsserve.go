package ctl

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/weir-edge/weir/pkg/region"
	"github.com/weir-edge/weir/pkg/region/dns"
)

const (
	// settling is how long a start waits for regions that do not tell of their nodes:
	// before that it would answer with what it does not know to be down.
	settling = 3 * time.Second
	// remindEvery is how often a process that cannot begin says why.
	remindEvery = time.Minute
	// closing is how long scrapes may take to end.
	closing = time.Second
)

// router is a DNS server with what it knows and tells.
type router struct {
	*dnsOptions
	log      *slog.Logger
	follower *region.Follower
	metrics  *dnsMetrics
	ready    atomic.Bool
}

// newLog is for people on a terminal, and for programs elsewhere.
func (p *program) newLog() *slog.Logger {
	if p.live && !p.wantsJSON() {
		return slog.New(slog.NewTextHandler(p.errOut, nil))
	}
	return slog.New(slog.NewJSONHandler(p.errOut, nil))
}

// followed are the regions as a follower takes them.
func followed(targets []*target) []region.FollowedRegion {
	list := make([]region.FollowedRegion, len(targets))
	for i, t := range targets {
		list[i] = region.FollowedRegion{Name: t.name, Consul: t.consul}
	}
	return list
}

// serveDNS runs until ctx ends, or something that it needs fails for good.
func (p *program) serveDNS(ctx context.Context, o *dnsOptions) (err error) {
	targets, closeAll, err := p.targets(nil)
	if err != nil {
		return err
	}
	defer closeAll()
	r := &router{dnsOptions: o, log: p.newLog()}

	// What can be wrong with this host is said before anything is waited for.
	config := region.FollowConfig{Regions: followed(targets), PassingShare: o.share}
	if o.geoip != "" {
		geo, err := openGeo(o.geoip)
		if err != nil {
			return misused("--geoip: %w", err)
		}
		defer geo.close()
		defer start(ctx, func(ctx context.Context) { geo.follow(ctx, r.log) })()
		config.Geo = geo
	}
	r.follower = region.NewFollower(config)
	r.metrics = newDNSMetrics(r.follower.View)
	if err := r.probe(); err != nil {
		return err
	}
	if o.metrics != "" {
		stop, err := r.serveMetrics()
		if err != nil {
			return err
		}
		defer stop()
	}
	watch := newStateLog(r.log, regionNames(targets))
	defer start(ctx, func(ctx context.Context) { r.follower.Run(ctx, watch.changed) })()

	zone, err := r.await(ctx)
	if err != nil {
		return nil // told to stop, which is no failure
	}
	watch.zone.Store(&zone)
	server, err := dns.New(o.config(zone, r.follower.View, r.metrics))
	if err != nil {
		return misused("%w", flagNames(err))
	}
	for _, addr := range o.listen {
		if err := server.Listen(addr); err != nil {
			return bindError(addr, err)
		}
	}
	var bound []string
	for _, a := range server.Addrs() {
		bound = append(bound, a.String())
	}
	r.log.Info("answering", "zone", zone, "listen", strings.Join(bound, " "), "ttl", o.ttl.String(), "metrics", o.metrics)
	r.ready.Store(true)
	err = server.Serve(ctx)
	r.ready.Store(false)
	if err != nil {
		return failed("%w", err)
	}
	r.log.Info("stopped")
	return nil
}

// start runs f until the function that it returns is called, which waits for its end.
func start(ctx context.Context, f func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { f(ctx) })
	return func() {
		cancel()
		running.Wait()
	}
}

// probe binds what shall be bound later, and lets it go.
func (r *router) probe() error {
	for i, addr := range r.listen {
		if r.addrs[i].Port() == 0 {
			continue
		}
		udp, err := net.ListenPacket("udp", addr)
		if err != nil {
			return bindError(addr, err)
		}
		_ = udp.Close() // nothing was sent
		tcp, err := net.Listen("tcp", addr)
		if err != nil {
			return bindError(addr, err)
		}
		_ = tcp.Close() // nobody was accepted
	}
	return nil
}

// bindError says what to do about an address that cannot be had.
func bindError(addr string, err error) error {
	_, port, _ := net.SplitHostPort(addr)
	switch {
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		return failed("listen on %s: port %s needs a privilege: give the program cap_net_bind_service (deploy/systemd/weir-dns.service does; or setcap cap_net_bind_service=+ep on it), or use a port above 1023, as --listen 127.0.0.1:5300", addr, port)
	case errors.Is(err, syscall.EADDRINUSE):
		return failed("listen on %s: something listens there already, over UDP or TCP (ss -lnup, ss -lntp show what; port 53 is often systemd-resolved): stop that, or name one address of this host with --listen", addr)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return failed("listen on %s: this host does not have that address (ip address shows which it has); correct --listen", addr)
	}
	return failed("listen on %s: %w", addr, err)
}

// await waits for a topology, and shortly for every region to tell of its nodes. It
// returns the zone to answer for; its error is that ctx ended.
func (r *router) await(ctx context.Context) (string, error) {
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	began := time.Now()
	reminded := began.Add(time.Second - remindEvery) // the first follows after a second
	for {
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-look.C:
		}
		v, now := r.follower.View(), time.Now()
		if v.Topology != nil && (allKnown(v) || now.Sub(began) >= settling) {
			if r.zone != "" {
				return strings.TrimSuffix(strings.ToLower(r.zone), "."), nil
			}
			return v.Topology.Zone, nil
		}
		if v.Topology == nil && now.Sub(reminded) >= remindEvery {
			reminded = now
			r.log.Warn("waiting for a topology, and answering nobody until there is one; regionctl topology apply FILE publishes it", "regions", unknownRegions(v))
		}
	}
}

// allKnown reports whether every region tells of its nodes.
func allKnown(v *region.View) bool {
	for _, s := range v.Regions {
		if !s.Known {
			return false
		}
	}
	return len(v.Regions) > 0
}

// unknownRegions says how each region stands, for one who waits.
func unknownRegions(v *region.View) string {
	var list []string
	for _, name := range sortedKeys(v.Regions) {
		switch s := v.Regions[name]; {
		case s.Err != nil:
			list = append(list, fmt.Sprintf("%s: %v", name, s.Err))
		case !s.Heard.IsZero():
			list = append(list, name+" holds none")
		default:
			list = append(list, name+" has not answered yet")
		}
	}
	return strings.Join(list, "; ")
}

// serveMetrics serves the metrics listener until stop is called.
func (r *router) serveMetrics() (stop func(), err error) {
	l, err := net.Listen("tcp", r.dnsOptions.metrics)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, failed("--metrics %s: something listens there already; name another address:port, or none with --metrics ''", r.dnsOptions.metrics)
	}
	if err != nil {
		return nil, failed("--metrics: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", r.metrics.handler())
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { tell(w, http.StatusOK, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if r.ready.Load() {
			tell(w, http.StatusOK, "ok")
		} else {
			tell(w, http.StatusServiceUnavailable, "waiting for a topology, or stopping")
		}
	})
	server := &http.Server{
		Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: time.Minute,
		MaxHeaderBytes: 16 << 10, ErrorLog: slog.NewLogLogger(r.log.Handler(), slog.LevelDebug),
	}
	var running sync.WaitGroup
	running.Go(func() {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			r.log.Error("the metrics listener failed; answers go on", "error", err.Error())
		}
	})
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), closing)
		defer cancel()
		if server.Shutdown(ctx) != nil {
			_ = server.Close() // whoever still reads has had a second
		}
		running.Wait()
	}, nil
}

func tell(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = fmt.Fprintln(w, text) // a caller that is gone
}
