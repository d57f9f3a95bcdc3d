package edge

import (
	"context"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/weir-edge/weir/internal/systemd"
)

// Run serves until ctx ends, then drains: readyz fails, the listener closes after
// shutdown.delay, and requests in flight have shutdown.timeout to finish. ready,
// which may be nil, is called once both listeners accept. A signal on reload reloads
// rules and certificate at once.
func (e *Edge) Run(ctx context.Context, reload <-chan os.Signal, ready func(public, admin net.Addr)) error {
	defer e.close()
	unlock, err := e.config.LockCaches()
	if err != nil {
		return err
	}
	defer unlock()
	if err = e.listeners.Open(); err != nil {
		return err
	}
	if e.spoe, err = e.openSPOE(); err != nil {
		e.listeners.Close()
		return err
	}
	e.awaitStore(ctx)

	var wg sync.WaitGroup
	defer wg.Wait()
	failed, spoeFailed := e.listeners.Serve(&wg), make(chan error, 1)
	wg.Go(func() {
		if err := e.spoe.serve(); err != nil {
			spoeFailed <- err
		}
	})
	public, admin := e.listeners.Addr("public"), e.listeners.Addr("admin")
	// e.ctx stays active: the last requests' slots are returned under it.
	watching, stopWatching := context.WithCancel(e.ctx)
	defer stopWatching()
	e.watch(&wg, watching, reload)
	registered, deregister := context.WithCancel(watching)
	defer deregister()
	if e.consul != nil {
		e.followConsul(&wg, watching, registered, public, admin)
	}

	e.log.Info("serving", "public", public.String(), "admin", admin.String(), "store", e.config.Store.Kind)
	systemd.Notify(e.log, "READY=1")
	if ready != nil {
		ready(public, admin)
	}
	select {
	case err = <-failed:
		err = fmt.Errorf("listener failed: %w", err)
	case err = <-spoeFailed:
		err = fmt.Errorf("listener failed: %w", err)
	case <-ctx.Done():
	}
	deregister() // while the drain runs, which takes longer
	e.drain()
	e.listeners.Close()
	return err
}

// watch starts what runs in the background.
func (e *Edge) watch(wg *sync.WaitGroup, ctx context.Context, reload <-chan os.Signal) {
	wg.Go(func() { e.watchFiles(ctx, reload) })
	wg.Go(func() { e.rules.Run(ctx) })
	wg.Go(func() { e.shedding.Run(ctx) })
	if e.tiers != nil {
		wg.Go(func() { e.tiers.Policies.Run(ctx) })
	}
	if e.tiers != nil && e.chain.Shared != nil {
		wg.Go(func() { e.tiers.Share(ctx, e.chain.Shared, e.config.Node.ID) })
	}
	if e.clients != nil {
		wg.Go(func() { e.clients.Run(ctx) })
	}
	wg.Go(func() { e.upstreams.Sample(ctx) })
	wg.Go(func() { e.underLoad.Run(ctx) })
	wg.Go(func() { e.upstreams.CheckHealth(ctx) })
	if e.exchange != nil {
		wg.Go(func() { e.exchange.Run(ctx) })
	}
	if e.chain.Shared != nil {
		wg.Go(func() { e.showPresence(ctx) })
	}
}

// drain stops accepting requests and lets those in flight finish.
func (e *Edge) drain() {
	e.draining.Store(true)
	systemd.Notify(e.log, "STOPPING=1")
	e.listeners.Leave()
	e.spoe.leave()
	e.log.Info("draining", "delay", e.config.Shutdown.Delay.String(), "timeout", e.config.Shutdown.Timeout.String())
	e.linger(e.config.Shutdown.Delay)
	ctx, cancel := context.WithTimeout(context.Background(), e.config.Shutdown.Timeout)
	defer cancel()
	var rest sync.WaitGroup
	defer rest.Wait()
	rest.Go(func() { e.upstreams.DrainTunnels(e.config.Shutdown.Timeout) })
	rest.Go(func() {
		if !e.spoe.drain(ctx) {
			e.log.Warn("requests of HAProxy cut off")
		}
	})
	e.listeners.Drain(ctx)
}

// close ends what New has begun, which may be a part if it failed.
func (e *Edge) close() {
	done := make(chan struct{})
	go func() { e.returns.Wait(); close(done) }()
	select { // the slots of the last requests; bounded, and they expire anyway
	case <-done:
	case <-time.After(4 * e.config.Store.Timeout):
	}
	if e.listeners != nil {
		e.listeners.Peers.Close()
	}
	e.stop()
	<-done
	if e.access != nil {
		e.access.Close()
	}
	e.upstreams.Close()
	if e.chain != nil {
		e.chain.Close()
	}
	if e.consul != nil {
		e.consul.Close()
	}
}
