package proxy

import (
	"errors"
	"net"

	"github.com/valyala/fasthttp"
)

// Kind classifies a failure, in words that fit a metric's label.
type Kind uint8

// The kinds of failure.
const (
	KindNone        Kind = iota
	KindConnect          // no connection: refused, unreachable, too slow, TLS not accepted
	KindTimeout          // the upstream took longer than Timeout or StreamTimeout
	KindBroken           // the upstream disconnected before the response was complete
	KindBadResponse      // the answer was not HTTP, had too large a header, or was a 101
	KindUnavailable      // every connection in use, or the pool is closed
	KindClient           // the client disconnected, stalled or broke the framing of its body
	KindTooLarge         // the request's body exceeds MaxRequestBodyBytes
	KindBadRequest       // the request's header is ambiguous, see CheckFraming
	KindUnsupported      // CONNECT
)

var kindNames = [...]string{
	"none", "connect", "timeout", "broken", "bad_response", "unavailable",
	"client", "too_large", "bad_request", "unsupported",
}

// String is a stable label: "connect", "bad_response".
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "unknown"
}

// BeforeUpstream reports whether a request was refused before any upstream was contacted. What
// follows it on the client's connection may then be no request; see CloseUnlessReusable.
func (k Kind) BeforeUpstream() bool {
	return k == KindBadRequest || k == KindUnsupported
}

// Error says why a request got no response from an upstream.
type Error struct {
	Kind     Kind
	Upstream string // host:port; empty if none was tried
	Err      error
}

func (e *Error) Error() string {
	s := "proxy: " + e.Kind.String()
	if e.Upstream != "" {
		s += " " + e.Upstream
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Status returns the status to answer with: 504 for a timeout, 502 for the upstream's
// other faults; 400, 408, 413 or 501 if the request is at fault.
func (e *Error) Status() int {
	switch e.Kind {
	case KindTimeout:
		return fasthttp.StatusGatewayTimeout
	case KindClient:
		if isTimeout(e.Err) {
			return fasthttp.StatusRequestTimeout
		}
		return fasthttp.StatusBadRequest
	case KindBadRequest:
		return fasthttp.StatusBadRequest
	case KindTooLarge:
		return fasthttp.StatusRequestEntityTooLarge
	case KindUnsupported:
		return fasthttp.StatusNotImplemented
	default:
		return fasthttp.StatusBadGateway
	}
}

func isTimeout(err error) bool {
	var ne net.Error
	return errors.Is(err, fasthttp.ErrTimeout) || errors.As(err, &ne) && ne.Timeout()
}

// blame classifies the error of an exchange on c. Not all of fasthttp's errors wrap
// their cause, so the connection remembers it; if it has none, the bytes themselves
// were at fault.
func (c *conn) blame() Kind {
	switch {
	case c.failure == nil:
		return KindBadResponse
	case isTimeout(c.failure):
		return KindTimeout
	default:
		return KindBroken
	}
}
