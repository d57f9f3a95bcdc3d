package edge

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/valyala/fasthttp"
)

// openPorts are where the node accepts connections, besides those of its fields rls, spoe and peers.
type openPorts struct {
	public, admin net.Listener
	decide        *gateways // nil without listen.decide
}

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
	on, err := e.listen()
	if err != nil {
		return err
	}
	e.awaitStore(ctx)

	var wg sync.WaitGroup
	defer wg.Wait()
	server, adminServer := e.public, e.adminServer()
	failed := e.serveOn(&wg, on, server, adminServer)
	// e.ctx stays active: the last requests' slots are returned under it.
	watching, stopWatching := context.WithCancel(e.ctx)
	defer stopWatching()
	e.watch(&wg, watching, reload)
	registered, deregister := context.WithCancel(watching)
	defer deregister()
	if e.consul != nil {
		e.followConsul(&wg, watching, registered, on.public.Addr(), on.admin.Addr())
	}

	e.log.Info("serving", "public", on.public.Addr().String(), "admin", on.admin.Addr().String(), "store", e.config.Store.Kind)
	if ready != nil {
		ready(on.public.Addr(), on.admin.Addr())
	}
	select {
	case err = <-failed:
		err = fmt.Errorf("listener failed: %w", err)
	case <-ctx.Done():
	}
	deregister() // while the drain runs, which takes longer
	e.drain(server, on.decide)
	// Shutdown before Serve has begun does not close the listener.
	_ = on.public.Close()
	stopAdmin, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	if adminServer.Shutdown(stopAdmin) != nil {
		_ = adminServer.Close()
	}
	return err
}

// listen opens all ports. On an error it closes those that it opened, but for listen.peer, which
// close closes.
func (e *Edge) listen() (on openPorts, err error) {
	var opened []net.Listener
	defer func() {
		if err != nil {
			for _, ln := range opened {
				_ = ln.Close()
			}
			e.rls.drain(e.ctx) // no call has come
		}
	}()
	if on.public, err = net.Listen("tcp", e.config.Listen.Public); err != nil {
		return on, fmt.Errorf("listen.public: %w", err)
	}
	opened = append(opened, on.public)
	if on.admin, err = net.Listen("tcp", e.config.Listen.Admin); err != nil {
		return on, fmt.Errorf("listen.admin: %w", err)
	}
	opened = append(opened, on.admin)
	if on.decide, err = e.openGateways(); err != nil {
		return on, err
	}
	if on.decide != nil {
		opened = append(opened, on.decide.ln)
	}
	if e.rls, err = e.openRLS(); err != nil {
		return on, err
	}
	if e.rls.listener != nil {
		opened = append(opened, e.rls.listener)
	}
	if err = e.peers.listen(e.config); err != nil {
		return on, err
	}
	e.spoe, err = e.openSPOE()
	return on, err
}

// serveOn serves on all ports. The channel gets an error of each that fails.
func (e *Edge) serveOn(wg *sync.WaitGroup, on openPorts, server *fasthttp.Server, adminServer *http.Server) <-chan error {
	failed := make(chan error, 6)
	serve := func(serve func() error) {
		wg.Go(func() {
			if err := serve(); err != nil {
				failed <- err
			}
		})
	}
	serve(e.rls.serve)
	serve(e.spoe.serve)
	serve(e.peers.serve)
	serve(func() error { return server.Serve(e.listenHTTP(clientListener{on.public, &e.clients})) })
	serve(func() error {
		if err := adminServer.Serve(e.listenAdmin(on.admin)); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	if on.decide != nil {
		serve(func() error { return on.decide.serve(e) })
	}
	return failed
}

// watch starts what runs in the background.
func (e *Edge) watch(wg *sync.WaitGroup, ctx context.Context, reload <-chan os.Signal) {
	wg.Go(func() { e.watchFiles(ctx, reload) })
	wg.Go(func() { e.rules.Run(ctx) })
	wg.Go(func() { e.shedding.Run(ctx) })
	if e.conduct != nil {
		wg.Go(func() { e.conduct.policy.Run(ctx) })
	}
	if e.conduct != nil && e.chain.Shared != nil {
		wg.Go(func() { e.shareConduct(ctx) })
	}
	if e.listed != nil {
		wg.Go(func() { e.listed.run(ctx) })
	}
	wg.Go(func() { e.sample(ctx) })
	wg.Go(func() { e.load.run(ctx) })
	wg.Go(func() { e.checkHealth(ctx) })
	if e.across != nil {
		wg.Go(func() { e.across.Run(ctx) })
	}
	if e.chain.Shared != nil {
		wg.Go(func() { e.showPresence(ctx) })
	}
}

// drain stops accepting requests and lets those in flight finish.
func (e *Edge) drain(server *fasthttp.Server, asked *gateways) {
	e.draining.Store(true)
	e.rls.leave()
	e.spoe.leave()
	e.log.Info("draining", "delay", e.config.Shutdown.Delay.String(), "timeout", e.config.Shutdown.Timeout.String())
	e.linger(e.config.Shutdown.Delay)
	ctx, cancel := context.WithTimeout(context.Background(), e.config.Shutdown.Timeout)
	defer cancel()
	var rest sync.WaitGroup
	defer rest.Wait()
	rest.Go(func() { e.drainTunnels(e.config.Shutdown.Timeout) })
	rest.Go(func() { e.drainPeers(e.config.Shutdown.Timeout) })
	rest.Go(func() {
		if err := asked.shutdown(ctx); err != nil {
			e.log.Warn("questions of gateways cut off", "error", err)
		}
	})
	rest.Go(func() {
		if !e.spoe.drain(ctx) {
			e.log.Warn("questions of HAProxy cut off")
		}
	})
	rest.Go(e.http2.Drain)
	defer e.http2.Close()
	rest.Go(func() {
		if !e.rls.drain(ctx) {
			e.log.Warn("calls of the rate limit service cut off")
		}
	})
	if err := server.ShutdownWithContext(ctx); err != nil {
		e.log.Warn("requests cut off", "error", err)
		return
	}
	e.log.Info("drained")
}

func (e *Edge) close() {
	done := make(chan struct{})
	go func() { e.returns.Wait(); close(done) }()
	select { // the slots of the last requests; bounded, and they expire anyway
	case <-done:
	case <-time.After(4 * e.config.Store.Timeout):
	}
	e.peers.close()
	e.stop()
	<-done
	if e.access != nil {
		e.access.Close()
	}
	e.upstreams.close()
	e.chain.Close()
	if e.consul != nil {
		e.consul.Close()
	}
}
