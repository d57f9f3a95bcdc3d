// Package spoe is an agent of HAProxy's Stream Processing Offload Engine: HAProxy describes
// a request and gets variables that say whether it may pass. HAProxy may send requests before the
// earlier ones are answered; each connection answers them in order.
package spoe

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/internal/edge/decide"
	"github.com/weir-edge/weir/internal/edge/gateway"
)

// Config is what a Server needs.
type Config struct {
	Decider *decide.Decider
	Legacy  bool // set variables for X-RateLimit headers, too
	// MaxFrame bounds a frame, in bytes; HAProxy may ask for less.
	MaxFrame    int
	ReadTimeout time.Duration // of a frame that has begun, and of its answer
	IdleTimeout time.Duration // between frames

	Answered func(gateway.Answer, time.Duration) // called after each answer
	Panicked func(any)
}

// Server answers HAProxy.
type Server struct {
	config  Config
	leaving atomic.Bool

	mu       sync.Mutex
	conns    map[*conn]struct{}
	draining bool
	serving  sync.WaitGroup
}

func New(c Config) *Server { return &Server{config: c, conns: map[*conn]struct{}{}} }

// Serve accepts connections until the listener is closed. The listener admits only HAProxys, and
// bounds how many.
func (s *Server) Serve(ln net.Listener) error {
	for {
		accepted, err := ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		c := &conn{Conn: accepted, server: s}
		c.request.Fields = &c.request
		if !s.enter(c) {
			_ = accepted.Close()
			continue
		}
		go s.run(c)
	}
}

func (s *Server) run(c *conn) {
	defer s.leave(c)
	defer func() {
		if panicked := recover(); panicked != nil {
			s.config.Panicked(panicked)
			s.config.Answered(gateway.Failed, 0)
			_ = c.Close()
		}
	}()
	c.end(c.serve())
}

func (s *Server) enter(c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return false
	}
	s.conns[c] = struct{}{}
	s.serving.Add(1)
	return true
}

func (s *Server) leave(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	s.serving.Done()
}

// Leave makes health checks fail, and ends each connection with its next answer. HAProxy sends no
// request on a connection that is about to end, as it might when Drain ends idle ones.
func (s *Server) Leave() { s.leaving.Store(true) }

// Drain ends idle connections, and the others after their current frame. It closes those
// that have not ended by the end of ctx. It reports whether all ended in time.
func (s *Server) Drain(ctx context.Context) bool {
	s.mu.Lock()
	s.draining = true
	for c := range s.conns {
		c.leave()
	}
	s.mu.Unlock()
	done := make(chan struct{})
	go func() { s.serving.Wait(); close(done) }()
	select {
	case <-done:
		return true
	case <-ctx.Done():
	}
	s.mu.Lock()
	for c := range s.conns {
		_ = c.Close()
	}
	s.mu.Unlock()
	<-done
	return false
}

// Connections returns how many are open.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}
