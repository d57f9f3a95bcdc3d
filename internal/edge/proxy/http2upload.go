package proxy

import (
	"errors"
	"io"
	"sync"
	"time"
)

// clientBody is the body of a client's request on its way to an upstream that speaks
// HTTP/2. The upstream's transport reads it on another goroutine. Reading ends with the
// exchange.
type clientBody struct {
	incoming
	x         *exchange
	interrupt func() error

	mu      sync.Mutex // guards the rest
	watch   Upload
	reading bool
	closed  bool
	whole   bool
	fault   *Error        // why it is incomplete
	over    chan struct{} // closed once complete or closed, with no reader left
}

var errUploadOver = errors.New("the exchange is over")

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
	if b.interrupt == nil { // nothing else interrupts a Read of HTTP/1.1
		_ = b.client.SetReadDeadline(time.Now().Add(b.p.cfg.StreamTimeout))
	}
	n, err := b.incoming.Read(p)
	b.x.touch()

	b.mu.Lock()
	defer b.mu.Unlock()
	b.reading = false
	b.watch.AwaitClient(false)
	if fault, ok := err.(*Error); ok && !b.closed {
		b.fault, b.closed = fault, true
	}
	if err == io.EOF {
		b.whole = true
		b.x.pause(b.p.cfg.Timeout)
	}
	if b.closed || b.whole {
		b.settle()
	}
	return n, err
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

func (b *clientBody) failure() *Error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.fault
}

// answered is failure once the answer has begun or will not: how the client sends the rest
// no longer matters.
func (b *clientBody) answered() *Error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.watch = unwatched{}
	b.talks.Store(true)
	return b.fault
}

// awaited reports whether the client is to send more.
func (b *clientBody) awaited() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.reading
}
