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
)

const (
	// pulseEvery is how often a region's Consul is asked for no more than a word. A
	// watch may be silent for 20 s before it notices that the other end is gone.
	pulseEvery   = time.Second
	pulseTimeout = time.Second
	// reachEvery is how often each node is connected to while all is well, to know
	// what it means when one day it is silent; forgetAfter is how many looks in a
	// row it may be silent while its Consul says that it passes.
	reachEvery  = 10 * time.Second
	forgetAfter = 3

	reachTimeout = time.Second
	reachAtOnce  = 64
	// detourTimeout is how long another region's Consul may look for a way to one
	// that is in doubt.
	detourTimeout = 2500 * time.Millisecond
	// secondTimeout bounds all that is asked about it. It leaves time for a pulse.
	secondTimeout = detourTimeout + pulseTimeout
)

// pulse looks every second whether a region's Consul answers, and asks others when
// it is in doubt. It tells back when Consul has returned.
func (f *Follower) pulse(ctx context.Context, r FollowedRegion, back chan<- struct{}) {
	missed := 0
	for ctx.Err() == nil {
		started := time.Now()
		err := r.Consul.pulse(ctx)
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
		pause(ctx, pulseEvery-time.Since(started))
	}
}

// pulse returns why Consul does not answer.
func (c *Consul) pulse(ctx context.Context) error {
	ctx, cancel := within(ctx, pulseTimeout)
	defer cancel()
	leader, err := c.api.Status().LeaderWithQueryOptions(query{}.options(ctx))
	if err == nil && leader == "" {
		err = errors.New("nobody does")
	}
	if err != nil {
		return c.failure(ctx, "ask who leads", err)
	}
	return nil
}

// learn connects to the nodes that pass, now and then while Consul answers.
func (f *Follower) learn(ctx context.Context, r FollowedRegion) {
	var last time.Time
	for ; ctx.Err() == nil; pause(ctx, pulseEvery) {
		f.mu.Lock()
		facts := *f.facts[r.Name]
		f.mu.Unlock()
		if !facts.listed || facts.emptied || !facts.failing.IsZero() || time.Since(last) < reachEvery {
			continue
		}
		last = time.Now()
		results := connect(ctx, slices.DeleteFunc(slices.Clone(facts.nodes), func(n seenNode) bool { return !n.Passing }))
		f.mu.Lock()
		f.facts[r.Name].learn(results)
		f.mu.Unlock()
	}
}

// ask collects what the other regions' Consuls and its own nodes say of r.
func (f *Follower) ask(ctx context.Context, r FollowedRegion, facts regionFacts) *opinion {
	ctx, cancel := context.WithTimeout(ctx, secondTimeout)
	defer cancel()
	o := &opinion{}
	var both sync.WaitGroup
	both.Go(func() { o.reach = connect(ctx, facts.nodes) })
	if !facts.failing.IsZero() { // an empty list is no better for being asked for elsewhere
		both.Go(func() { f.detour(ctx, r, facts.datacenter, o) })
	}
	both.Wait()
	return o
}

// detour asks for the nodes of r through the Consuls of other regions.
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
			nodes, _, _, err := other.Consul.catalogue(ctx, datacenter, query{}, detourTimeout)
			// The way from here may be cut, and then the other says nothing of r.
			late := err != nil && time.Since(started) >= detourTimeout && other.Consul.pulse(ctx) == nil
			mu.Lock()
			defer mu.Unlock()
			var status *StatusError
			switch {
			case err == nil && (o.via == "" || other.Name < o.via):
				o.via, o.nodes = other.Name, nodes
				can++
			case err == nil:
				can++
			case errors.As(err, &status) && (status.Code < 500 || strings.Contains(status.Text, "No cluster leader")):
				// It may not tell, or there are servers and none leads: r is not gone.
			case errors.As(err, &status), late:
				// It answers, and has no way to r.
				deny++
			}
		})
	}
	all.Wait()
	o.gone = can == 0 && deny > 0
}

// connect tries all nodes at the addresses for clients.
func connect(ctx context.Context, nodes []seenNode) map[string]reach {
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
				_ = conn.Close() // nothing was said
				result = accepted
			case errors.Is(err, syscall.ECONNREFUSED):
				result = refused
			}
			mu.Lock()
			defer mu.Unlock()
			results[n.Address] = result
		})
	}
	all.Wait()
	return results
}
