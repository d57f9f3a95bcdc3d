// Package httpconns makes the HTTP servers for operators, Prometheus and health checks. Requests
// must arrive in time, and connections that send none, or half of one, keep nobody else out.
package httpconns

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

const (
	// Max is how many unauthenticated connections a server may have, and as many of operators:
	// far more than it needs, and few enough to harm nothing else.
	Max = 256
	// maxProbes is how many may be in a health check. Its answer takes no time.
	maxProbes = 64
	// Most is how many a server may have in all.
	Most = 2*Max + maxProbes

	headerWithin  = 5 * time.Second
	requestWithin = 15 * time.Second
	idleWithin    = time.Minute
	maxHeader     = 64 << 10
)

// New returns a server for h. A request must arrive completely within 15 seconds of its first
// byte; a handler that expects longer bodies sets its own read deadlines.
func New(h http.Handler) *http.Server {
	b := &bound{open: map[net.Conn]held{}, from: map[holder]int{}}
	return &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if Probe(r) && r.ContentLength == 0 {
				move(r, probes)
			}
			h.ServeHTTP(w, r)
		}),
		ReadHeaderTimeout: headerWithin, ReadTimeout: requestWithin, IdleTimeout: idleWithin, MaxHeaderBytes: maxHeader,
		ConnState: b.changed,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, key{}, caller{b, c})
		},
	}
}

// Serve serves l until stop is called, which lets answers in progress take a while longer. failed is
// called if serving ends before.
func Serve(s *http.Server, l net.Listener, longer time.Duration, failed func(error)) (stop func()) {
	var running sync.WaitGroup
	running.Go(func() {
		if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			failed(err)
		}
	})
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), longer)
		defer cancel()
		if s.Shutdown(ctx) != nil {
			_ = s.Close()
		}
		running.Wait()
	}
}

// Probe reports whether a request is a health check, which needs no credentials.
func Probe(r *http.Request) bool {
	return r.URL.Path == "/healthz" || r.URL.Path == "/readyz"
}

// Known gives a request's connection a place among those of operators until the request ends.
// proven means that its caller has presented credentials. Where none are needed, a request
// counts only if it has arrived completely.
func Known(r *http.Request, proven bool) {
	if !Probe(r) && (proven || r.ContentLength == 0) {
		move(r, operators)
	}
}

type key struct{}

// caller is what a request's context holds.
type caller struct {
	bound *bound
	conn  net.Conn
}

// move does nothing in tests without a server.
func move(r *http.Request, to group) {
	if c, ok := r.Context().Value(key{}).(caller); ok {
		c.bound.move(c.conn, to, false)
	}
}

// group is what a connection counts as. Each has its own bound, so no group takes the places of
// another.
type group uint8

const (
	unauthenticated group = iota // it waits for a request, or its request shows no credentials
	operators
	probes
	groups
)

var most = [groups]int{Max, Max, maxProbes}

// bound bounds the connections of one server.
type bound struct {
	mu   sync.Mutex
	open map[net.Conn]held
	held [groups]int
	from map[holder]int
	turn uint64
}

// held is a connection's.
type held struct {
	holder
	since uint64 // the turn at which it came into its group
}

// holder is a subscriber that has connections in a group.
type holder struct {
	group group
	addr  netip.Addr
}

// changed is the server's ConnState.
func (b *bound) changed(c net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		b.move(c, unauthenticated, true)
	case http.StateIdle:
		b.move(c, unauthenticated, false)
	case http.StateClosed, http.StateHijacked:
		b.mu.Lock()
		defer b.mu.Unlock()
		b.leave(c)
	}
}

// move gives c a place in a group. One that is not new may have lost its place, and gets none.
func (b *bound) move(c net.Conn, to group, isNew bool) {
	if victim := b.enter(c, to, isNew); victim != nil {
		if t, ok := victim.(*tls.Conn); ok {
			victim = t.NetConn() // TLS would wait for its peer to acknowledge the close
		}
		_ = victim.Close()
	}
}

// enter returns the connection that makes room for c, if one must.
func (b *bound) enter(c net.Conn, to group, isNew bool) (victim net.Conn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p, known := b.open[c]
	if !known && !isNew {
		return nil
	}
	if known {
		b.leave(c)
	} else if at, err := netip.ParseAddrPort(c.RemoteAddr().String()); err == nil {
		p.addr = Subscriber(at.Addr())
	}
	if b.held[to] >= most[to] {
		victim = b.victim(to)
		b.leave(victim)
	}
	b.turn++
	p.group, p.since = to, b.turn
	b.open[c] = p
	b.held[to]++
	b.from[p.holder]++
	return victim
}

// leave takes the place of c, if it has one.
func (b *bound) leave(c net.Conn) {
	p, known := b.open[c]
	if !known {
		return
	}
	delete(b.open, c)
	b.held[p.group]--
	if b.from[p.holder]--; b.from[p.holder] == 0 {
		delete(b.from, p.holder)
	}
}

// victim returns the connection that has been in a group for longest, of the addresses with the
// most there. A caller that completes its request soon is never that one, even if it shares its
// address with connections that do not.
func (b *bound) victim(of group) (victim net.Conn) {
	var oldest uint64
	n := 0
	for c, p := range b.open {
		if p.group != of {
			continue
		}
		if from := b.from[p.holder]; from > n || from == n && p.since < oldest {
			victim, oldest, n = c, p.since, from
		}
	}
	return victim
}

// Subscriber returns what an address shares with the others of its subscriber: for IPv6, its /64,
// which is the least that one has.
func Subscriber(a netip.Addr) netip.Addr {
	if a = a.Unmap().WithZone(""); a.Is6() {
		a = netip.PrefixFrom(a, 64).Masked().Addr()
	}
	return a
}
