package spoe

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"runtime"
	"sync"
	"time"

	"github.com/weir-edge/weir/internal/edge/decide"
	"github.com/weir-edge/weir/internal/edge/gateway"
	"github.com/weir-edge/weir/internal/edge/proxy"
)

// conn is one connection of HAProxy, which answers one frame after the other. It owns its
// buffers, which are as long as the longest frame.
type conn struct {
	net.Conn
	server   *Server
	reader   *bufio.Reader
	maxFrame int
	request  authRequest
	out      []byte
	scratch  []byte
	until    time.Time // the connection ends with the first answer after this time

	mu      sync.Mutex
	idle    bool // between frames
	leaving bool
}

// maxAge is how long HAProxy keeps a connection. HAProxy reuses connections while it has
// any, so a restarted node would get no requests; also, a certificate may expire while a
// connection is open.
const maxAge = 3 * time.Second

var (
	errLeaving = errors.New("the node is draining")
	errOld     = errors.New("the connection is old")
)

// serve answers until the connection ends.
func (c *conn) serve() error {
	if err := c.greet(); err != nil {
		return err
	}
	for {
		if err := c.await(); err != nil {
			return err
		}
		if err := c.handle(); err != nil {
			return err
		}
		if c.reader.Buffered() > 0 { // it does not wait for answers, but others go first
			runtime.Gosched()
		}
	}
}

// greet negotiates the protocol.
func (c *conn) greet() error {
	if err := c.SetDeadline(time.Now().Add(c.server.config.ReadTimeout)); err != nil {
		return err
	}
	c.reader, c.maxFrame = bufio.NewReaderSize(c.Conn, lengthSize+maxHello), maxHello
	b, err := c.frame()
	if err != nil {
		return err
	}
	h, err := readHello(b)
	if err != nil {
		return err
	}
	if h.check && c.server.leaving.Load() {
		return net.ErrClosed // a failed check makes HAProxy ask elsewhere
	}
	c.maxFrame = int(min(h.maxFrame, uint64(c.server.config.MaxFrame)))
	if c.reader.Buffered() > lengthSize+len(b) {
		return statusInvalid // HAProxy waits for the answer
	}
	c.reader = bufio.NewReaderSize(c.Conn, lengthSize+c.maxFrame)
	c.until = time.Now().Add(maxAge/2 + rand.N(maxAge/2)) // not all at once
	c.out = appendHello(c.out, c.maxFrame)
	if _, err = c.Conn.Write(c.out); h.check && err == nil {
		err = net.ErrClosed // nothing follows
	}
	return err
}

// await waits until a frame begins.
func (c *conn) await() error {
	c.mu.Lock()
	leaving := c.leaving
	c.idle = !leaving
	err := c.SetReadDeadline(time.Now().Add(c.server.config.IdleTimeout))
	c.mu.Unlock()
	if leaving && c.reader.Buffered() == 0 { // what has arrived is answered first
		return errLeaving
	}
	if err != nil {
		return err
	}
	_, err = c.reader.Peek(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.idle = false
	switch {
	case err != nil && c.leaving:
		return errLeaving
	case err != nil:
		return err
	}
	return c.SetDeadline(time.Now().Add(c.server.config.ReadTimeout))
}

// frame reads one frame. The result is valid until the next.
func (c *conn) frame() ([]byte, error) {
	head, err := c.reader.Peek(lengthSize)
	if err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(head)
	if n > uint32(c.maxFrame) {
		return nil, statusTooBig
	}
	b, err := c.reader.Peek(lengthSize + int(n))
	if err != nil {
		return nil, err
	}
	return b[lengthSize:], nil
}

// handle answers the frame that has begun.
func (c *conn) handle() error {
	b, err := c.frame()
	if err != nil {
		return err
	}
	f, err := readFrame(b)
	switch {
	case err != nil:
		return err
	case f.flags != flagFinal:
		return statusFragmented
	case f.kind == haproxyDisconnect:
		return statusNormal
	case f.kind != haproxyNotify:
		return statusInvalid
	}
	began := time.Now()
	defer c.request.reset()
	outcome, err := c.answer(&f, began)
	if err != nil {
		return err
	}
	last := c.reader.Buffered() == lengthSize+len(b) // no other request would be lost
	old := last && (began.After(c.until) || c.server.leaving.Load()) || began.After(c.until.Add(maxAge))
	if old { // in one write, so that HAProxy sends nothing in between
		c.out = append(c.out, goodbye...)
	}
	if _, err = c.reader.Discard(lengthSize + len(b)); err == nil {
		_, err = c.Conn.Write(c.out)
	}
	c.server.config.Answered(outcome, time.Since(began))
	if old && err == nil {
		err = errOld
	}
	return err
}

// answer builds the ACK of a request. After a panic, it builds one that refuses the request.
func (c *conn) answer(f *frame, began time.Time) (outcome gateway.Answer, err error) {
	q := &c.request
	defer func() {
		if panicked := recover(); panicked != nil {
			c.server.config.Panicked(panicked)
			q.reset()
			outcome, err = gateway.Failed, nil
			c.write(f, outcome, decide.Refusal{Status: http.StatusInternalServerError, Body: decide.Problem(http.StatusInternalServerError, "internal error", "")})
		}
	}()
	q.Began, q.Rules, q.Peer = began, c.server.config.Decider.Rules(), proxy.AddrOf(c.RemoteAddr())
	q.FromGateway, q.CompletionUnknown = true, true
	unclear, err := q.read(f.payload)
	if err != nil {
		return outcome, err
	}
	if unclear == nil {
		unclear = q.checkHeaders(c.server.config.Decider)
	}
	return c.decide(f, unclear), nil
}

var goodbye = appendDisconnect(nil, statusNormal)

// leave makes the connection end after its current frame.
func (c *conn) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leaving = true
	if c.idle {
		_ = c.SetReadDeadline(time.Unix(1, 0)) // in the past, so it fails immediately
	}
}

// end tells HAProxy why the connection ends, and closes it.
func (c *conn) end(why error) {
	var s status
	switch {
	case errors.As(why, &s):
		if s != statusNormal {
			c.server.config.Answered(gateway.Malformed, 0)
		}
	case errors.Is(why, errHello):
		c.server.config.Answered(gateway.Malformed, 0)
		s = statusInvalid
	case !errors.Is(why, errLeaving) && !errors.Is(why, errOld):
		_ = c.Close()
		return
	}
	_ = c.SetDeadline(time.Now().Add(time.Second))
	if !errors.Is(why, errOld) { // else HAProxy has got it with the last answer
		_, _ = c.Conn.Write(appendDisconnect(c.out[:0], s))
	}
	if s == statusNormal { // closing with unread frames would discard answers on their way
		_, _ = io.Copy(io.Discard, c.Conn)
	}
	_ = c.Close()
}
