package proxy

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"time"
)

// HealthCheck requests Path from each upstream every Interval, independently of client
// requests. A 2xx or 3xx answer within Timeout passes. Unhealthy consecutive failures
// take the upstream out; Healthy consecutive passes bring it back. An empty Path
// disables checks.
type HealthCheck struct {
	Path      string        `yaml:"path"`      // in ASCII, perhaps with a query; enables checks
	Interval  time.Duration `yaml:"interval"`  // between two checks of an upstream by one node
	Timeout   time.Duration `yaml:"timeout"`   // at most interval, to connect and receive the response's header
	Healthy   int           `yaml:"healthy"`   // passes in a row that bring an upstream back
	Unhealthy int           `yaml:"unhealthy"` // failures in a row that take it out
	Host      string        `yaml:"host"`      // of the checks; absent: the upstream's own
}

// HealthObserver is an Observer that also learns when the checks' verdict on an upstream
// changes. cause is the last failure, nil if the upstream is healthy.
type HealthObserver interface {
	Health(upstream string, cause error)
}

// CheckHealth checks the upstreams as Config.Check says until ctx ends. The first checks
// are spread over an interval, so that a fleet's nodes do not check in unison.
func (p *Pool) CheckHealth(ctx context.Context) {
	if p.cfg.Check.Path == "" {
		return
	}
	var wg sync.WaitGroup
	for _, u := range p.ups {
		wg.Go(func() { u.checkHealth(ctx) })
	}
	wg.Wait()
}

func (u *upstream) checkHealth(ctx context.Context) {
	check := &u.cfg.Check
	first := time.NewTimer(rand.N(check.Interval))
	defer first.Stop()
	select {
	case <-ctx.Done():
		return
	case <-first.C:
	}
	tick := time.NewTicker(check.Interval)
	defer tick.Stop()
	tr := u.checker()
	streak := 0 // consecutive results against the verdict
	for {
		err := u.check(ctx, tr)
		tr.CloseIdleConnections() // one that was established too late, too
		if ctx.Err() != nil {
			return
		}
		streak = u.verdict(streak, err)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// checker makes a new connection for each check: being able to connect is part of the result.
func (u *upstream) checker() *http.Transport {
	tr := &http.Transport{DisableKeepAlives: true, TLSClientConfig: u.tls.Clone(), MaxResponseHeaderBytes: int64(u.cfg.MaxResponseHeaderBytes)}
	if u.http2 != nil {
		tr.Protocols = &http.Protocols{}
		tr.Protocols.SetHTTP2(true)
		tr.Protocols.SetUnencryptedHTTP2(true)
		tr.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) { return u.dialHTTP2(ctx) }
		tr.DialTLSContext = func(ctx context.Context, _, _ string) (net.Conn, error) { return u.dialHTTP2(ctx) }
	}
	return tr
}

func (u *upstream) check(ctx context.Context, tr http.RoundTripper) error {
	ctx, cancel := context.WithTimeout(ctx, u.cfg.Check.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.urlScheme()+"://"+u.addr+u.cfg.Check.Path, nil)
	if err != nil {
		return err
	}
	req.Host = u.cfg.Check.Host
	req.Header.Set("User-Agent", "weir-health-check")
	resp, err := tr.RoundTrip(req) // a redirect is an answer
	if err != nil {
		return err
	}
	_ = resp.Body.Close()
	if resp.StatusCode < 200 || resp.StatusCode > 399 {
		return fmt.Errorf("status %d", resp.StatusCode)
	}
	return nil
}

// verdict records a check's result and returns how many consecutive results have
// contradicted the current verdict.
func (u *upstream) verdict(streak int, err error) int {
	down, needed := u.health.down.Load(), u.cfg.Check.Unhealthy
	if down {
		needed = u.cfg.Check.Healthy
	}
	if down == (err != nil) {
		return 0
	}
	if streak++; streak < needed {
		return streak
	}
	u.health.down.Store(!down)
	if down {
		u.health.succeed() // the checks were its trial, so a rest ends too
	}
	if o, ok := u.cfg.Observer.(HealthObserver); ok {
		o.Health(u.addr, err)
	}
	return 0
}

// Healthy yields each upstream's address and whether it gets requests, which it does unless
// it fails its checks or is resting.
func (p *Pool) Healthy(yield func(upstream string, healthy bool) bool) {
	now := time.Since(p.epoch)
	for _, u := range p.ups {
		if !yield(u.addr, !u.health.down.Load() && !u.health.resting(now)) {
			return
		}
	}
}
