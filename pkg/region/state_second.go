package region

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/weir-edge/weir/pkg/region/consul"
)

const (
	// pulseEvery is how often a region's Consul gets a minimal query. A watch may stay
	// silent for 20 s before it notices that the other end is gone.
	pulseEvery   = time.Second
	pulseTimeout = time.Second
	// reachEvery is how often each node is probed in normal operation, so that later
	// silence means something; forgetAfter is how many consecutive probes may go
	// unanswered while Consul reports the node as passing.
	reachEvery  = 10 * time.Second
	forgetAfter = 3

	reachTimeout = time.Second
	// reachAtOnce lets 4,500 nodes be asked within secondTimeout, even if none answers.
	reachAtOnce = 1500
	// detourTimeout is how long another region's Consul may try to reach the one in
	// doubt.
	detourTimeout = 2500 * time.Millisecond
	// secondTimeout bounds all queries about a region in doubt. It leaves time for a
	// pulse.
	secondTimeout = detourTimeout + pulseTimeout
)

// pulse checks every second that a region's Consul answers, and asks others about a
// region in doubt. It signals on back when Consul has recovered.
func (f *Follower) pulse(ctx context.Context, r FollowedRegion, back chan<- struct{}) {
	missed := 0
	for ctx.Err() == nil {
		started := time.Now()
		err := r.Consul.Pulse(ctx, pulseTimeout)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			if missed++; missed >= 2 {
				f.change(r.Name, func(facts *regionFacts) { facts.fail(err, started) })
			}
		default:
			if missed >= 2 {
				select {
				case back <- struct{}{}:
				default:
				}
			}
			missed = 0
		}
		f.mu.Lock()
		facts := *f.facts[r.Name]
		f.mu.Unlock()
		if facts.doubtful(time.Now()) {
			o := f.ask(ctx, r, facts)
			f.change(r.Name, func(facts *regionFacts) {
				if facts.doubtful(time.Now()) {
					facts.hear(o)
				}
			})
		}
		_ = consul.Pause(ctx, pulseEvery-time.Since(started))
	}
}

// learn probes passing nodes while Consul answers: as soon as they begin to pass, and
// every reachEvery.
func (f *Follower) learn(ctx context.Context, r FollowedRegion) {
	var last time.Time
	probed := map[string]bool{} // since last
	for ; ctx.Err() == nil; _ = consul.Pause(ctx, pulseEvery) {
		f.mu.Lock()
		facts := *f.facts[r.Name]
		f.mu.Unlock()
		if !facts.listed || facts.emptied || !facts.failing.IsZero() {
			continue
		}
		if time.Since(last) >= reachEvery {
			last, probed = time.Now(), map[string]bool{}
		}
		due := slices.DeleteFunc(slices.Clone(facts.nodes), func(n consul.Instance) bool { return !n.Passing || probed[n.Address] })
		if len(due) == 0 {
			continue
		}
		results := connect(ctx, due)
		for address := range results {
			probed[address] = true
		}
		f.mu.Lock()
		f.facts[r.Name].learn(results)
		f.mu.Unlock()
	}
}

// ask collects what the other regions' Consuls and r's own nodes report about r.
func (f *Follower) ask(ctx context.Context, r FollowedRegion, facts regionFacts) *opinion {
	ctx, cancel := context.WithTimeout(ctx, secondTimeout)
	defer cancel()
	o := &opinion{}
	var both sync.WaitGroup
	both.Go(func() { o.reach = connect(ctx, facts.nodes) })
	if !facts.failing.IsZero() { // other Consuls cannot improve an empty list
		both.Go(func() { f.detour(ctx, r, facts.datacenter, o) })
	}
	both.Wait()
	return o
}

// detour asks the Consuls of other regions for the nodes of r.
func (f *Follower) detour(ctx context.Context, r FollowedRegion, datacenter string, o *opinion) {
	var (
		mu        sync.Mutex
		all       sync.WaitGroup
		can, deny int
	)
	for _, other := range f.config.Regions {
		f.mu.Lock()
		away := !f.facts[other.Name].failing.IsZero()
		f.mu.Unlock()
		if other.Name == r.Name || away {
			continue
		}
		all.Go(func() {
			started := time.Now()
			nodes, err := r.Consul.InstancesVia(ctx, other.Consul, datacenter, detourTimeout)
			// The route from here may be cut; then the other Consul's silence does not
			// count against r.
			late := err != nil && time.Since(started) >= detourTimeout && other.Consul.Pulse(ctx, pulseTimeout) == nil
			mu.Lock()
			defer mu.Unlock()
			var status *consul.StatusError
			switch {
			case err == nil && (o.via == "" || other.Name < o.via):
				o.via, o.nodes = other.Name, nodes
				can++
			case err == nil:
				can++
			case errors.As(err, &status) && (status.Code < 500 || strings.Contains(status.Text, "No cluster leader")):
				// It may not be allowed to answer, or r has servers without a leader: r is
				// not gone.
			case errors.As(err, &status), late:
				// It answers, but cannot reach r.
				deny++
			}
		})
	}
	all.Wait()
	o.gone = can == 0 && deny > 0
}

// connect probes nodes at their public addresses. Those whose turn does not come before ctx ends
// have no result.
func connect(ctx context.Context, nodes []consul.Instance) map[string]reach {
	var (
		mu      sync.Mutex
		all     sync.WaitGroup
		results = make(map[string]reach, len(nodes))
		slots   = make(chan struct{}, reachAtOnce)
		dialer  = net.Dialer{Timeout: reachTimeout}
	)
	for _, n := range nodes {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			result := silent
			conn, err := dialer.DialContext(ctx, "tcp", n.Address)
			switch {
			case err == nil:
				_ = conn.Close() // nothing was sent
				result = accepted
			case errors.Is(err, syscall.ECONNREFUSED):
				result = refused
			}
			if result == silent && (ctx.Err() != nil || errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)) {
				return // it was not asked, or had no time to answer
			}
			mu.Lock()
			defer mu.Unlock()
			results[n.Address] = result
		})
	}
	all.Wait()
	return results
}
