package proxy

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"
)

const (
	// tunnelBuffer is how much a tunnel buffers in each direction.
	tunnelBuffer = 8 << 10
	// halfClosed is the longest pause of a tunnel with one side closed.
	halfClosed = 10 * time.Second
)

var (
	errEarly       = errors.New("bytes follow an Upgrade request before its answer")
	errOtherSwitch = errors.New("the 101 does not switch to the requested protocol")
	errDraining    = errors.New("no new tunnels while draining")
	valueUpgrade   = []byte("Upgrade")
)

// upgradeTo returns the protocol that a request asks to switch to, if allowed: one of
// Config.Upgrades, alone, and without a body. Any other Upgrade is dropped, as a server
// may do (RFC 9110, 7.8), and the request is an ordinary one. Never list h2c: its further
// requests would bypass every decision.
func (p *Pool) upgradeTo(ctx *fasthttp.RequestCtx, found fields) (protocol []byte, err error) {
	h := &ctx.Request.Header
	client, ok := ctx.Conn().(ender)
	if found&(upgrade|connectionUpgrade|connectionClose|expect) != upgrade|connectionUpgrade || !ok || !h.IsHTTP11() || h.ContentLength() > 0 || h.ContentLength() == -1 {
		return nil, nil
	}
	requested := h.PeekAll("Upgrade")
	for _, listed := range p.cfg.Upgrades {
		if len(requested) == 1 && bytes.EqualFold(requested[0], []byte(listed)) {
			protocol = append([]byte(nil), requested[0]...) // fasthttp reuses it
		}
	}
	if protocol != nil && client.self().early(ctx.ConnRequestNum()) {
		return nil, errEarly
	}
	return protocol, nil
}

// tunnel is a connection that has switched to another protocol and carries bytes that
// only its two sides understand.
type tunnel struct {
	p      *Pool
	c      *conn
	client *clientConn
	done   Finisher
	until  time.Duration // 0: no bound

	state  atomic.Uint32
	active atomic.Int64 // the last byte, since the pool's epoch
	half   atomic.Bool  // one side has ended
	clock  *time.Timer  // calls watch
}

// The states of a tunnel.
const (
	tunnelWaiting uint32 = iota // for the client's 101 to be sent
	tunnelOpen
	tunnelOver
)

// tunnels are a pool's open ones.
type tunnels struct {
	mu       sync.Mutex
	open     map[*tunnel]struct{}
	draining bool
	running  sync.WaitGroup
}

// Tunnels returns how many connections have switched to another protocol.
func (p *Pool) Tunnels() int {
	p.tunnels.mu.Lock()
	defer p.tunnels.mu.Unlock()
	return len(p.tunnels.open)
}

// DrainTunnels closes the tunnels, each at a random moment within d so that their clients
// do not reconnect in unison, and starts no more. It returns when all are closed.
func (p *Pool) DrainTunnels(d time.Duration) {
	p.tunnels.mu.Lock()
	p.tunnels.draining = true
	for t := range p.tunnels.open {
		time.AfterFunc(rand.N(max(d, 1)), t.cut)
	}
	p.tunnels.mu.Unlock()
	p.tunnels.running.Wait()
}

// startTunnel answers 101 and forwards bytes once the answer is sent.
func (p *Pool) startTunnel(ctx *fasthttp.RequestCtx, c *conn, via *ForwardOptions) *Error {
	h := &ctx.Response.Header
	if !bytes.EqualFold(h.PeekCanonical(upgrade.name()), via.upgrade) {
		return &Error{Kind: KindBadResponse, Err: errOtherSwitch}
	}
	t := &tunnel{p: p, c: c, client: ctx.Conn().(ender).self(), done: via.Done}
	if !via.Until.IsZero() {
		t.until = via.Until.Sub(p.epoch)
	}
	p.tunnels.mu.Lock()
	if p.tunnels.draining {
		p.tunnels.mu.Unlock()
		return &Error{Kind: KindUnavailable, Err: errDraining}
	}
	if p.tunnels.open == nil {
		p.tunnels.open = map[*tunnel]struct{}{}
	}
	p.tunnels.open[t] = struct{}{}
	p.tunnels.running.Add(1)
	t.client.tunnel.Store(t) // its Close ends the tunnel if fasthttp never runs it
	p.tunnels.mu.Unlock()

	stripResponse(h)
	h.DelBytes(contentLength.name())
	h.DelBytes(transferEncoding.name())
	h.SetCanonical(connection.name(), valueUpgrade)
	h.SetCanonical(upgrade.name(), via.upgrade)
	ctx.Response.SkipBody = true
	ctx.Hijack(func(net.Conn) { t.run() })
	return nil
}

// run forwards bytes until both sides have ended.
func (t *tunnel) run() {
	if !t.state.CompareAndSwap(tunnelWaiting, tunnelOpen) {
		return
	}
	t.client.unlist()
	t.touch()
	t.clock = time.AfterFunc(time.Hour, t.watch)
	t.watch() // once clock is set
	first, _ := t.c.br.Peek(t.c.br.Buffered())
	t.c.br, t.c.bw = nil, nil // only first is needed, briefly
	_ = t.c.SetDeadline(time.Time{})
	var down sync.WaitGroup
	down.Go(func() { t.pass(t.client.Conn, t.c.Conn, first) })
	t.pass(t.c.Conn, t.client.Conn, nil)
	down.Wait()
	t.end()
}

// pass copies from one side to the other, then closes the other's sending half. If it
// cannot write to a side, it ends both.
func (t *tunnel) pass(to, from net.Conn, first []byte) {
	var buf [tunnelBuffer]byte
	var err error
	if len(first) > 0 {
		_, err = to.Write(first)
	}
	for err == nil {
		var n int
		var rerr error
		if n, rerr = from.Read(buf[:]); n > 0 {
			t.touch()
			_, err = to.Write(buf[:n])
		}
		if err == nil {
			err = rerr
		}
	}
	half, ok := to.(interface{ CloseWrite() error })
	if err != io.EOF || !ok || half.CloseWrite() != nil {
		t.cut()
		return
	}
	t.half.Store(true)
	t.touch()
	t.clock.Reset(0) // it may end sooner now
}

func (t *tunnel) touch() { t.active.Store(int64(time.Since(t.p.epoch))) }

// watch cuts a tunnel that has been silent too long or has reached its time limit.
func (t *tunnel) watch() {
	now, pause := time.Since(t.p.epoch), t.p.cfg.TunnelTimeout
	if t.half.Load() {
		pause = min(pause, halfClosed)
	}
	ends := time.Duration(t.active.Load()) + pause
	if t.until > 0 {
		ends = min(ends, t.until)
	}
	switch {
	case t.state.Load() == tunnelOver:
	case now >= ends:
		t.cut()
	default:
		t.clock.Reset(ends - now)
	}
}

// cut closes both sides, which ends their pending reads and writes.
func (t *tunnel) cut() {
	_ = t.c.Conn.Close()
	_ = t.client.Close()
}

// abandon ends a tunnel that never ran.
func (t *tunnel) abandon() {
	if t.state.CompareAndSwap(tunnelWaiting, tunnelOver) {
		t.end()
	}
}

func (t *tunnel) end() {
	t.state.Store(tunnelOver)
	if t.clock != nil {
		t.clock.Stop()
	}
	t.c.up.put(t.c, false, 0)
	if t.done != nil {
		t.done.Finish()
	}
	p := &t.p.tunnels
	p.mu.Lock()
	delete(p.open, t)
	p.mu.Unlock()
	p.running.Done()
}
