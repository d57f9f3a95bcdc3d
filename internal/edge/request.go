package edge

import (
	"bytes"
	"errors"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/weir-edge/weir/internal/edge/decide"
	"github.com/weir-edge/weir/internal/edge/proxy"
	"github.com/weir-edge/weir/pkg/limiter/rules"
)

// request is one HTTP request. It is pooled: nothing of it may be retained.
type request struct {
	decide.Request
	edge *Edge
	ctx  *fasthttp.RequestCtx
	scan proxy.HeaderScan
	buf  []byte // scratch for header values

	verdict  decide.Verdict
	answered bool // by the origin

	boundaryKnown bool // where this request ends is certain, and that the next one follows there

	// holders counts who still uses this request: the handler, and the body of a response
	// that is still streaming after it returns. The last one finishes it.
	holders atomic.Int32
	status  int
	line    []byte // for the access log
}

var _ decide.Fields = (*request)(nil)

var (
	methodTrace = []byte("TRACE")
	methodTrack = []byte("TRACK")

	errVersion = errors.New("only HTTP/1.1 and HTTP/1.0 are supported")
	errExpect  = errors.New("the only supported expectation is 100-continue")
	errLoop    = errors.New("the request has passed this node before: its upstream leads back here")
	errTrace   = errors.New("TRACE is not supported: its answer would show cookies to scripts")
)

// checkHeader rejects a request that the origin might read differently from the rules.
func (r *request) checkHeader() error {
	var err error
	if r.scan, err = proxy.CheckFraming(&r.ctx.Request.Header); err != nil {
		return err
	}
	switch h := &r.ctx.Request.Header; {
	case !h.IsHTTP11() && string(h.Protocol()) != "HTTP/1.0":
		return errVersion
	case r.scan.UnsupportedExpect() && h.IsHTTP11():
		return errExpect
	case bytes.EqualFold(h.Method(), methodTrace), bytes.EqualFold(h.Method(), methodTrack):
		return errTrace
	case r.edge.upstreams.Loop.Seen(h, r.scan):
		return errLoop
	}
	return r.readTarget()
}

// Header implements decide.Fields.
func (r *request) Header(name string) [][]byte {
	if r.scan.DefinitelyLacks(name) {
		return nil
	}
	return r.ctx.Request.Header.PeekAll(name)
}

// Cookie implements decide.Fields. fasthttp's own cookies lack quotes, and those that it takes for
// malformed.
func (r *request) Cookie(name string) ([]byte, int) { return rules.Cookie(r.Header("Cookie"), name) }

// riskHeader tells the origin how the policy judges a client. An origin would believe a
// client that sends it, so it is always removed when there is a policy.
const riskHeader = "Weir-Risk"

// recordBehavior counts a finished request.
func (r *request) recordBehavior() {
	if k := r.edge.tiers; k != nil {
		status := 0
		if r.answered {
			status = r.ctx.Response.StatusCode()
		}
		k.Learn(&r.Request, r.verdict, status, time.Now())
	}
}

// setRiskHeader tells the origin how the policy judges the client.
func (r *request) setRiskHeader() {
	if r.edge.tiers == nil {
		return
	}
	header := &r.ctx.Request.Header
	header.Del(riskHeader)
	if r.buf = r.edge.tiers.AppendRisk(r.buf[:0], &r.Request); len(r.buf) > 0 {
		header.SetBytesV(riskHeader, r.buf)
	}
}
