package edge

import (
	"errors"
	"runtime/debug"
	"strings"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/weir-edge/weir/internal/edge/decide"
	"github.com/weir-edge/weir/internal/edge/proxy"
	"github.com/weir-edge/weir/internal/edge/ruleset"
	"github.com/weir-edge/weir/pkg/limiter"
)

// serve is the request path.
func (e *Edge) serve(ctx *fasthttp.RequestCtx) {
	defer proxy.YieldAfterPipelined(ctx.Conn())
	r := expectedRequest(ctx)
	alreadyPassed := r != nil
	if !alreadyPassed {
		r = e.begin(ctx)
	}
	defer r.end()
	if alreadyPassed || r.decideOrRefuse() {
		r.forward()
		r.setLimitHeaders()
	}
}

// decideOrRefuse reports whether a request may proceed; otherwise it has been answered.
func (r *request) decideOrRefuse() bool {
	if err := r.checkHeader(); err != nil {
		r.badRequest(err)
		return false
	}
	if r.scan.ConnectionNamesHeaders() && r.Rules != nil {
		if err := r.checkConnection(); err != nil {
			r.badRequest(err)
			return false
		}
	}
	r.verdict = r.edge.decider.Decide(&r.Request)
	if r.verdict != decide.Pass {
		r.refuse(r.verdict)
	}
	return r.verdict == decide.Pass
}

// begin takes a request from the pool.
func (e *Edge) begin(ctx *fasthttp.RequestCtx) *request {
	r := e.requests.Get().(*request)
	r.edge, r.ctx = e, ctx
	r.Began, r.Rules, r.Peer = ctx.Time(), e.decider.Rules(), proxy.PeerOf(ctx)
	if r.Began.IsZero() { // fasthttp did not read it
		r.Began = time.Now()
	}
	r.holders.Store(1)
	return r
}

// reset clears a request for the pool.
func (r *request) reset() {
	r.Reset()
	r.ctx, r.scan, r.status, r.line, r.boundaryKnown = nil, proxy.HeaderScan{}, 0, r.line[:0], false
	r.verdict, r.answered = decide.Pass, false
}

// forward hands the request to an upstream.
func (r *request) forward() {
	r.holders.Add(1) // until the response's body is sent
	r.removeUntrustedHeaders()
	r.setRiskHeader()
	via := proxy.ForwardOptions{Peer: r.Peer, Trusted: r.Trusted, TLS: proxy.IsTLS(r.ctx), Scan: r.scan, Done: r, Upload: &r.Permit}
	if r.scan.ConnectionUpgrade() {
		via.Until = r.slotsEnd()
	}
	r.Permit.Sent()
	err := r.edge.upstreams.Groups[r.Upstream].Pool.Forward(r.ctx, via)
	var failed *proxy.Error
	if err != nil {
		if errors.As(err, &failed) {
			if failed.Kind.BeforeUpstream() {
				r.Permit.UndoSent()
				r.boundaryKnown = false
			}
			r.upstreamFailed(failed)
		} else {
			r.problem(fasthttp.StatusBadGateway, "the origin did not answer", err.Error())
		}
	} else {
		r.Permit.Answered()
		r.answered = true
	}
	r.status = r.ctx.Response.StatusCode()
}

// Finish implements proxy.Finisher: the exchange with the upstream is over.
func (r *request) Finish() { r.release() }

// end finishes the handler. It also recovers from a panic, which would otherwise end the
// process.
func (r *request) end() { r.conclude(recover()) }

// conclude ends the handler's part, after a panic if there was one.
func (r *request) conclude(panicked any) {
	if panicked != nil {
		r.edge.log.Error("handler panicked", "panic", panicked, "stack", strings.TrimSpace(string(debug.Stack())))
		r.edge.metrics.panics.Inc()
		r.answered = false
		r.boundaryKnown = false
		r.ctx.Response.Reset()
		r.problem(fasthttp.StatusInternalServerError, "internal error", "")
		r.holders.Store(1) // no other holder will release it
	}
	r.status = r.ctx.Response.StatusCode()
	r.recordBehavior()
	if len(r.Match.InExperiments) > 0 && r.verdict == decide.Pass {
		r.Rules.(*ruleset.Running).Answered(&r.Request, r.status >= fasthttp.StatusInternalServerError)
	}
	r.beginLine()
	proxy.CloseUnlessReusable(r.ctx, r.boundaryKnown && !r.scan.ConnectionClose())
	r.release()
}

// release finishes the request when its last holder lets go: it returns the permit and the
// concurrency slots, and counts the request.
func (r *request) release() {
	if r.holders.Add(-1) != 0 {
		return
	}
	e := r.edge
	r.Permit.Done()
	e.returnSlots(r)
	e.metrics.served(r)
	r.endLine()
	if r.RecentID != 0 {
		e.recent.Ended(r.RecentID, r.status, time.Since(r.Began))
	}
	r.reset()
	e.requests.Put(r)
}

// returnSlots returns the concurrency slots of a finished request, off the request path.
func (e *Edge) returnSlots(r *request) {
	checks, results := r.slots()
	if len(checks) == 0 {
		return
	}
	e.returns.Go(func() {
		if err := e.chain.Return.Return(e.ctx, checks, &limiter.Decision{Results: results}); err != nil {
			e.log.Warn("concurrency slot not returned; it expires automatically", "rule", checks[0].Limit.Rule, "error", err)
		}
	})
}

// slots returns copies of the checks that hold a slot, and of their results.
func (r *request) slots() (checks []limiter.Check, results []limiter.Result) {
	for i := range r.Decision.Results {
		c := r.Match.Checks[i]
		if !r.Decision.Results[i].Charged || c.Limit.Algorithm != limiter.Concurrency {
			continue
		}
		c.Key = append([]byte(nil), c.Key...)
		checks, results = append(checks, c), append(results, r.Decision.Results[i])
	}
	return checks, results
}

// slotsEnd returns until when the concurrency slots of this request are sure to be counted;
// zero without any. A connection that lasted longer would no longer be counted.
func (r *request) slotsEnd() (end time.Time) {
	for i := range r.Decision.Results {
		l := r.Match.Checks[i].Limit
		if r.Decision.Results[i].Charged && l.Algorithm == limiter.Concurrency && !l.Shadow {
			if at := r.Began.Add(l.Window); end.IsZero() || at.Before(end) {
				end = at
			}
		}
	}
	return end
}

var _ proxy.Finisher = (*request)(nil)
