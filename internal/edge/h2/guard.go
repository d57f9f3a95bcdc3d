package h2

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"

	"github.com/weir-edge/weir/internal/edge/frames"
)

// Reason says why a connection was closed, or a stream refused.
type Reason uint8

// The reasons. Those but the last close the connection.
const (
	Resets         Reason = iota // streams reset, or opened beyond the limit, too often
	Controls                     // PING, SETTINGS, PRIORITY and unknown frames
	Windows                      // WINDOW_UPDATE without data to account for
	EmptyData                    // DATA without data
	Strays                       // DATA for streams that are over
	Continuations                // a header in too many frames
	BadProtocol                  // what no client may do, or a header too large to read
	SlowHeaders                  // a header that is late
	TooManyStreams               // of all connections
	reasons
)

var reasonNames = [reasons]string{"resets", "control_frames", "window_updates", "empty_data", "closed_streams", "continuations", "protocol", "slow_headers", "streams"}

// String is a stable label.
func (r Reason) String() string { return reasonNames[r] }

// Reasons yields all.
func Reasons(yield func(Reason) bool) {
	for r := range reasons {
		if !yield(r) {
			return
		}
	}
}

// Browsers and gRPC clients stay far below these budgets. None of them limits requests; rules
// do that.
var budgets = [Continuations]frames.Budget{
	Resets:    {Burst: 1000, Rate: 100},
	Controls:  {Burst: 1000, Rate: 100},
	Windows:   {Burst: 5000, Rate: 1000},
	EmptyData: {Burst: 100, Rate: 10},
	Strays:    {Burst: 1000, Rate: 100},
}

// maxContinuations is how many CONTINUATION frames one header may take. Frames are 16 KiB
// long, so no client needs more for the largest header that can be allowed.
const maxContinuations = 64

// maxAhead is after how many frames without a write the reader yields to the writer. Otherwise the
// http2 package may queue 10,000 answers and close the connection, which nothing would count.
const maxAhead = 256

// What other frames earn. A client acknowledges data by WINDOW_UPDATE and measures round trips by
// PING; browsers send the priority of each request; and when weir refuses a request, the rest of
// its body may still be in transit.
const (
	windowsPerData     = 4
	controlsPerData    = 1
	controlsPerRequest = 2
	straysPerBody      = 128
	resetsPerRequest   = 1 // of a trusted proxy
	// wholeData is the size, in bytes, from which a DATA frame earns the full amount. A smaller one
	// earns in proportion, unless the origin wrote the answer in such small parts.
	wholeData = 512
)

var errFlood = errors.New("the client floods the connection with frames")

// guard counts the frames of a connection and closes it when they exceed a budget. The http2
// package behind it has its own bounds for handlers, streams, header sizes, and queued answers
// to control frames.
type guard struct {
	net.Conn
	from    io.Reader // what has arrived
	refused func(Reason)

	headerTimeout time.Duration
	proxy         bool // the client is a trusted proxy
	in            frames.Follower
	continuations int
	header        bool // one has begun, and more frames of it follow
	begun         int  // frames, except CONTINUATION
	limited       int  // one more than begun, when the deadline for the rest of a header was set; 0: there is none

	mu      sync.Mutex // guards the rest
	budgets [Continuations]frames.Account
	written int // begun at the end of the last write
	out     frames.Follower
	last    uint32          // the highest stream of the client
	live    map[uint32]bool // streams that neither side has reset and whose answer has not ended: whether the request has
	logged  bool            // refused has been called

	parts   atomic.Int64 // of answers that were written, less the small DATA frames that they explain
	writing sync.Mutex   // held around writes of whole buffers
}

func newGuard(conn net.Conn, prefaced bool, headerTimeout time.Duration, refused func(Reason)) *guard {
	g := &guard{Conn: conn, from: conn, refused: refused, headerTimeout: headerTimeout, live: map[uint32]bool{}}
	now := time.Now()
	for i := range g.budgets {
		g.budgets[i] = frames.Open(budgets[i], now)
	}
	if !prefaced {
		g.in.SkipPreface()
	}
	return g
}

// tlsGuard lets the http2 package check the TLS connection.
type tlsGuard struct {
	*guard
	tls *tls.Conn
}

func (g *tlsGuard) ConnectionState() tls.ConnectionState { return g.tls.ConnectionState() }

func (g *guard) Read(b []byte) (int, error) {
	n, err := g.from.Read(b)
	if n > 0 {
		g.mu.Lock()
		reason, flood := g.follow(b[:n])
		if flood {
			g.countRefused(reason)
		}
		ahead := g.begun-g.written > maxAhead
		g.mu.Unlock()
		if ahead {
			runtime.Gosched()
		}
		if flood {
			g.refuse()
			return 0, errFlood
		}
		g.limitHeader()
	}
	if g.limited > 0 && errors.Is(err, os.ErrDeadlineExceeded) {
		g.mu.Lock()
		g.countRefused(SlowHeaders)
		g.mu.Unlock()
		g.refuse()
	}
	return n, err
}

// limitHeader bounds how long the rest of a header may take. Most headers arrive with one read
// and need no deadline. The http2 package sets no read deadlines.
func (g *guard) limitHeader() {
	switch open := g.header || g.in.Within(); {
	case open && g.limited != g.begun+1:
		g.limited = g.begun + 1
		_ = g.SetReadDeadline(time.Now().Add(g.headerTimeout))
	case !open && g.limited > 0:
		g.limited = 0
		_ = g.SetReadDeadline(time.Time{})
	}
}

// Write implements net.Conn. It lets other goroutines run first, so that other streams queue their
// frames for the next write. That saves a third of the CPU time of busy connections and costs idle
// ones nothing.
func (g *guard) Write(b []byte) (int, error) {
	runtime.Gosched()
	g.writing.Lock()
	defer g.writing.Unlock()
	n, err := g.Conn.Write(b)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.written = g.begun
	g.out.Follow(b[:n], func(f *frames.Frame) {
		switch f.Kind {
		case http2.FrameHeaders, http2.FrameData:
			if f.Kind == http2.FrameData {
				share := g.shareOf(f.Length)
				g.budgets[Windows].Earn(windowsPerData * share)
				g.budgets[Controls].Earn(controlsPerData * share)
			}
			if f.Ends() {
				delete(g.live, f.Stream)
			}
		case http2.FrameRSTStream:
			delete(g.live, f.Stream)
			switch f.Code {
			case http2.ErrCodeRefusedStream, http2.ErrCodeProtocol, http2.ErrCodeFlowControl, http2.ErrCodeFrameSize:
				_ = g.budgets[Resets].Spend() // the next Read sees that too much is spent
			}
		case http2.FrameGoAway:
			switch f.Code {
			case http2.ErrCodeNo:
			case http2.ErrCodeEnhanceYourCalm: // too many requests wait that were reset already
				g.countRefused(Resets)
			default:
				g.countRefused(BadProtocol)
			}
		}
	})
	return n, err
}

// follow counts the frames that were read.
func (g *guard) follow(b []byte) (reason Reason, flood bool) {
	exceeds := func(r Reason, is bool) {
		if is && !flood {
			reason, flood = r, true
		}
	}
	g.in.Follow(b, func(f *frames.Frame) {
		if f.Kind != http2.FrameContinuation {
			g.begun++
		}
		switch f.Kind {
		case http2.FrameHeaders:
			ends := f.Ends()
			if f.Stream > g.last {
				g.last = f.Stream
				g.live[f.Stream] = ends
				if !ends {
					g.budgets[Strays].Earn(straysPerBody)
				}
				if g.proxy { // any of its clients may give up its own request
					g.budgets[Resets].Earn(resetsPerRequest)
				}
			} else {
				exceeds(g.ends(f.Stream, ends))
			}
			g.continuations, g.header = 0, !f.Flags.Has(http2.FlagHeadersEndHeaders)
			g.budgets[Controls].Earn(controlsPerRequest)
			exceeds(Resets, g.budgets[Resets].Over())
		case http2.FrameContinuation:
			g.continuations++
			g.header = g.header && !f.Flags.Has(http2.FlagContinuationEndHeaders)
			exceeds(Continuations, g.continuations > maxContinuations)
		case http2.FrameRSTStream:
			delete(g.live, f.Stream)
			exceeds(Resets, g.budgets[Resets].Spend())
		case http2.FrameWindowUpdate:
			exceeds(Windows, g.budgets[Windows].Spend())
		case http2.FrameData:
			if f.Data() == 0 && !f.Ends() {
				exceeds(EmptyData, g.budgets[EmptyData].Spend())
			}
			exceeds(g.ends(f.Stream, f.Ends()))
		default:
			exceeds(Controls, g.budgets[Controls].Spend())
		}
	})
	return reason, flood
}

// wrote counts a part of an answer that has been written.
func (g *guard) wrote() { g.parts.Add(1) }

// ends counts a frame of a request after its first one. A frame after END_STREAM makes the node
// reset a stream that it serves; a frame for a closed stream only makes it send an answer.
func (g *guard) ends(stream uint32, ends bool) (Reason, bool) {
	switch ended, live := g.live[stream]; {
	case !live:
		return Strays, g.budgets[Strays].Spend()
	case ended:
		return Resets, g.budgets[Resets].Spend()
	}
	g.live[stream] = ends
	return 0, false
}

// shareOf returns how much of the full amount a DATA frame of that many bytes earns.
func (g *guard) shareOf(length int) float64 {
	if length >= wholeData {
		return 1
	}
	if length > 0 && g.parts.Load() > 0 { // only this goroutine, which holds mu, takes from it
		g.parts.Add(-1)
		return 1
	}
	return float64(length) / wholeData
}

// countRefused counts the connection as refused, once.
func (g *guard) countRefused(r Reason) {
	if !g.logged {
		g.logged = true
		g.refused(r)
	}
}

// refuse closes the connection, with GOAWAY if nothing is being written.
func (g *guard) refuse() {
	frames.Refuse(g.Conn, &g.writing, func() (uint32, bool) {
		g.mu.Lock()
		defer g.mu.Unlock()
		return g.last, g.out.Between()
	})
	_ = g.Close()
}
