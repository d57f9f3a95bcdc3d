package proxy

import (
	"bytes"
	"io"
	"net"
	"time"

	"github.com/valyala/fasthttp"
)

// stream is a response body that is forwarded as it arrives. fasthttp closes it exactly
// once: after writing it to the client, when that fails, or when the response is reset.
type stream struct {
	p       *Pool
	c       *conn
	client  net.Conn
	framing *fasthttp.Response // decodes lengths and chunks
	body    io.Reader          // framing's body
	done    Finisher
	chunked bool
	closing bool // the connection ends with this response
	whole   bool
	failed  Kind
}

var (
	_ fasthttp.BodyWriterTo        = (*stream)(nil)
	_ fasthttp.ReadCloserWithError = (*stream)(nil)
)

func (p *Pool) startStream(ctx *fasthttp.RequestCtx, c *conn, via *ForwardOptions, size int, closing bool) {
	s := p.streams.Get().(*stream)
	// A second response decodes the body, since fasthttp lends its reader only to a
	// response and would close the first one's if it were wrapped. Any trailer goes
	// into the second response and no further.
	framing := fasthttp.AcquireResponse()
	framing.StreamBody = true
	framing.Header.SetContentLength(size)
	_ = framing.ReadBody(c.br, 0) // reads nothing yet
	*s = stream{
		p: p, c: c, client: ctx.Conn(), framing: framing, body: framing.BodyStream(),
		done: via.Done, chunked: size == -1, closing: closing,
	}
	c.pause = p.cfg.StreamTimeout
	resp := &ctx.Response
	resp.SetBodyStream(s, max(size, -1))
	// A client that waits for events must see that its request was accepted.
	resp.ImmediateHeaderFlush = c.br.Buffered() == 0
}

// Read reads the body. On an error fasthttp closes the client's connection without the
// last chunk, or short of the announced length.
func (s *stream) Read(b []byte) (int, error) {
	n, err := gather(s.body, b, s.nextChunk)
	switch err {
	case nil:
	case io.EOF:
		if s.chunked && s.c.failure == io.EOF {
			// fasthttp takes a connection that closes between two chunks for the last
			// chunk; after a real last one nothing more is read.
			s.failed = KindBroken
			return n, io.ErrUnexpectedEOF
		}
		s.whole = true
	default:
		s.failed = s.c.blame()
	}
	return n, err
}

// nextChunk returns the size of the next chunk, if all of it has arrived.
func (s *stream) nextChunk(int) int {
	b, _ := s.c.br.Peek(s.c.br.Buffered())
	line := bytes.IndexByte(b, '\n') + 1
	if size, ok := chunkSize(b); s.chunked && ok && line > 0 && size <= int64(len(b)-line-len("\r\n")) {
		return int(size)
	}
	return 0
}

// gather reads what has arrived of a body, and waits only for the first of it: forwarding each of
// many small parts would cost a write. ready returns how much follows the first n bytes for certain.
func gather(body io.Reader, b []byte, ready func(n int) int) (n int, err error) {
	for more := len(b); more > 0 && err == nil; more = min(len(b)-n, ready(n)) {
		var m int
		m, err = body.Read(b[n : n+more])
		n += m
	}
	return n, err
}

// SupportsBodyWriteTo lets fasthttp call WriteTo, which reads in larger pieces and sets
// a deadline for the client.
func (s *stream) SupportsBodyWriteTo() bool { return true }

// WriteTo copies the body to the client.
func (s *stream) WriteTo(w io.Writer) (int64, error) {
	written, lost, err := s.p.relay(w, s, s.client, s.c.Conn)
	if lost {
		s.failed = KindClient
	}
	return written, err
}

func (s *stream) relayed() {}

// relayed is a response's body.
type relayed interface {
	io.Reader
	relayed() // follows each part
}

// relay copies a response's body to the client. It closes upstream, unless that is nil, when the
// client disconnects, and reports whether the client was lost.
func (p *Pool) relay(w io.Writer, body relayed, client net.Conn, upstream io.Closer) (written int64, lost bool, err error) {
	buf := p.buffers.Get().(*[]byte)
	defer p.buffers.Put(buf)
	if upstream != nil {
		watch := watchHangUp(client, upstream)
		defer func() { lost = watch.stop() || lost }()
	}
	var waited time.Duration // for the client
	for {
		n, rerr := body.Read(*buf)
		began := time.Now()
		if err := client.SetWriteDeadline(began.Add(p.cfg.StreamTimeout)); err != nil {
			return written, true, err
		}
		if n > 0 {
			m, err := w.Write((*buf)[:n])
			written += int64(m)
			if waited += time.Since(began); err == nil && p.tooSlow(written, waited) {
				err = fasthttp.ErrTimeout
			}
			if err != nil {
				return written, true, err
			}
		}
		body.relayed()
		if rerr == io.EOF {
			return written, false, nil
		}
		if rerr != nil {
			return written, false, rerr
		}
	}
}

// CloseWithError ends the exchange. If the body did not end normally, the connection is
// left in the middle of it, so the connection is closed too.
func (s *stream) CloseWithError(err error) error {
	p, c, done := s.p, s.c, s.done
	failed := s.failed
	if failed == KindNone && (err != nil || !s.whole) {
		failed = KindClient
	}
	_ = s.framing.CloseBodyStream()
	fasthttp.ReleaseResponse(s.framing)
	keep := s.whole && !s.closing
	*s = stream{}
	p.streams.Put(s)

	c.up.put(c, keep, time.Since(p.epoch))
	if failed != KindNone {
		if o, ok := p.cfg.Observer.(StreamObserver); ok {
			o.Stream(failed)
		}
	}
	if done != nil {
		done.Finish()
	}
	return nil
}
