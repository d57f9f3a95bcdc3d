package proxy

import (
	"errors"
	"io"
	"sync"
	"time"

	"github.com/valyala/fasthttp"
)

// clientBody is the body of a client's request on its way to an upstream that speaks
// HTTP/2. The upstream's transport reads it on another goroutine. Reading ends with the
// exchange.
type clientBody struct {
	x         *exchange
	body      io.Reader
	size      int64 // below 0: unknown
	interrupt func() error
	sent      int64
	waited    time.Duration // for the client

	mu      sync.Mutex // guards the rest
	watch   Upload
	begun   bool // the answer
	reading bool
	closed  bool
	whole   bool
	failed  Kind
	err     error
	over    chan struct{} // closed once complete or closed, with no reader left
}

var errUploadOver = errors.New("the exchange is over")

// Read implements io.Reader.
func (b *clientBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	if b.closed || b.whole {
		defer b.mu.Unlock()
		if b.whole {
			return 0, io.EOF
		}
		return 0, errUploadOver
	}
	b.reading = true
	b.watch.AwaitClient(true)
	b.mu.Unlock()
	began := time.Now()
	if b.interrupt == nil { // nothing else interrupts a Read of HTTP/1.1
		_ = b.x.client.SetReadDeadline(began.Add(b.x.p.cfg.StreamTimeout))
	}
	n, err := b.body.Read(p)
	b.sent, b.waited = b.sent+int64(n), b.waited+time.Since(began)
	b.x.touch()

	b.mu.Lock()
	defer b.mu.Unlock()
	b.reading = false
	b.watch.AwaitClient(false)
	limit := b.x.p.cfg.MaxRequestBodyBytes
	switch c, ok := b.x.client.(ender); {
	case limit > 0 && b.sent > limit:
		n, err = 0, b.fail(KindTooLarge, errors.New("a body of unknown length exceeds the limit"))
	case !b.begun && b.x.p.tooSlow(b.sent, b.waited): // once the answer has, it may be a conversation
		n, err = 0, b.fail(KindClient, fasthttp.ErrTimeout)
	case err == io.EOF && (b.size >= 0 && b.sent != b.size || b.size < 0 && ok && c.self().ended): // see Listen
		err = b.fail(KindClient, io.ErrUnexpectedEOF)
	case err == io.EOF:
		b.whole = true
		b.watch.Received()
		b.x.pause(b.x.p.cfg.Timeout)
		b.settle()
	case err != nil && !b.closed:
		err = b.fail(KindClient, err)
	}
	if b.closed {
		b.settle()
	}
	return n, err
}

// fail records why the body is incomplete.
func (b *clientBody) fail(kind Kind, err error) error {
	b.failed, b.err, b.closed = kind, err, true
	return err
}

// settle says that reading has ended.
func (b *clientBody) settle() {
	select {
	case <-b.over:
	default:
		close(b.over)
	}
}

// Close implements io.Closer: the http2 package needs no more of it.
func (b *clientBody) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	switch {
	case !b.reading:
		b.settle()
	case b.interrupt != nil:
		_ = b.interrupt()
	}
	return nil
}

// end waits until reading has ended.
func (b *clientBody) end() {
	_ = b.Close()
	<-b.over
}

func (b *clientBody) failure() Kind {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.failed
}

// answered is failure once the answer has begun or will not: how the client sends the rest
// no longer matters.
func (b *clientBody) answered() Kind {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.watch, b.begun = unwatched{}, true
	return b.failed
}

// awaited reports whether the client is to send more.
func (b *clientBody) awaited() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.reading
}
