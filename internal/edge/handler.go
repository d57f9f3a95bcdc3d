package edge

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/netip"
	"runtime/debug"
	"strings"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/weir-edge/weir/internal/edge/proxy"
	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/shedder"
)

// serve is the request path.
func (e *Edge) serve(ctx *fasthttp.RequestCtx) {
	r := expectedRequest(ctx)
	passed := r != nil
	if !passed {
		r = e.begin(ctx)
	}
	defer r.end()
	if passed || r.pass() {
		r.forward()
		r.describe()
	}
}

// pass decides about a request, from top to bottom. One that does not pass has its answer.
func (r *request) pass() bool {
	if err := r.checkForm(); err != nil {
		r.ctx.SetConnectionClose()
		r.badRequest(err)
		return false
	}
	if r.running == nil {
		r.noRules()
		return false
	}
	if r.form.Names() {
		if err := r.checkConnection(); err != nil {
			r.badRequest(err)
			return false
		}
	}
	r.identify()
	if err := r.matchRules(); err != nil {
		r.badRequest(err)
		return false
	}
	if r.known() {
		r.refuse()
		return false
	}
	r.route()
	if !r.admit() {
		r.shed()
		return false
	}
	if len(r.match.Checks) > 0 && !r.take() {
		r.refuse()
		return false
	}
	return true
}

// begin takes a request from the pool.
func (e *Edge) begin(ctx *fasthttp.RequestCtx) *request {
	r := e.requests.Get().(*request)
	r.edge, r.ctx, r.running, r.began = e, ctx, e.rules.running.Load(), ctx.Time()
	r.holders.Store(1)
	return r
}

// reset makes a request ready for the pool: nothing of it is left for the next one.
func (r *request) reset() {
	r.ctx, r.running, r.group, r.permit = nil, nil, nil, shedder.Permit{}
	r.peer, r.client, r.trusted, r.form, r.tier = netip.Addr{}, netip.Addr{}, false, proxy.Form{}, nil
	r.path, r.query = nil, nil
	r.paths.Reset()
	r.args.Reset()
	r.match.Reset()
	r.decision.Reset(0)
	r.status, r.line = 0, r.line[:0]
}

// matchRules finds the checks that this request must pass.
func (r *request) matchRules() error {
	return r.edge.matchReadings(r, &r.paths, r.running.set, rand.Uint64(), &r.match, &r.others)
}

// known decides what takes no I/O: that a check is known to be refused. A flood of
// refused requests is to cost neither the store nor the shedder.
func (r *request) known() bool {
	denied := r.edge.denied()
	if denied == nil {
		return false
	}
	r.look = denied.Look(r.match.Checks, &r.decision)
	if r.look.Refused {
		r.edge.metrics.decided(r, time.Since(r.began))
	}
	return r.look.Refused
}

// take decides; it reports whether the request passes.
func (r *request) take() bool {
	// Bounded by the store's own time budget. A RequestCtx must not serve as the
	// context: it is reused while a late answer may still look at it.
	var err error
	if denied := r.edge.denied(); denied != nil {
		err = denied.TakeAfter(context.Background(), r.match.Checks, &r.decision, r.look)
	} else {
		err = r.edge.store.Take(context.Background(), r.match.Checks, &r.decision)
	}
	if err != nil { // no layer returns one, but a limiter must not fail open by accident
		r.edge.log.Error("decide", "error", err)
		r.decision.Reset(len(r.match.Checks))
		r.decision.Unavailable = true
	}
	r.edge.metrics.decided(r, time.Since(r.began))
	return r.decision.Allowed
}

// refuse answers 429, or 503 if only the store's failure stands in the way.
func (r *request) refuse() {
	wait := r.decision.RetryAfter(r.match.Checks)
	if r.decision.Unavailable {
		r.unavailable()
	} else {
		r.tooMany(wait)
		r.edge.metrics.limited.Inc()
	}
	r.describe()
	r.logDenied(wait)
}

// forward hands the request to an upstream.
func (r *request) forward() {
	r.holders.Add(1) // until the response's body has gone out
	r.hide()
	via := proxy.Via{Peer: r.peer, Trusted: r.trusted, TLS: r.ctx.IsTLS(), Form: r.form, Done: r}
	r.permit.Sent()
	err := r.group.pool.Forward(r.ctx, via)
	var failed *proxy.Error
	if err != nil {
		if errors.As(err, &failed) {
			if failed.Kind.BeforeUpstream() {
				r.permit.Withdraw()
			}
			r.upstreamFailed(failed)
		} else {
			r.problem(fasthttp.StatusBadGateway, "about:blank", "the origin did not answer", err.Error())
		}
	} else {
		r.permit.Answered()
	}
	r.status = r.ctx.Response.StatusCode()
}

// Finish implements proxy.Finisher: the exchange with the upstream is over.
func (r *request) Finish() { r.release() }

// end is the handler's last word. It also stops a panic, which fasthttp would let
// take the process down.
func (r *request) end() { r.conclude(recover()) }

// conclude ends the handler's part, after a panic if there was one.
func (r *request) conclude(panicked any) {
	if panicked != nil {
		r.edge.log.Error("handler panicked", "panic", panicked, "stack", strings.TrimSpace(string(debug.Stack())))
		r.edge.metrics.panics.Inc()
		r.ctx.Response.Reset()
		r.ctx.SetConnectionClose()
		r.problem(fasthttp.StatusInternalServerError, "about:blank", "internal error", "")
		r.holders.Store(1) // whatever else held it will not come back to it
	}
	if r.form.Closes() {
		r.ctx.SetConnectionClose()
	}
	r.status = r.ctx.Response.StatusCode()
	r.beginLine()
	r.release()
}

// release finishes the request when its last holder lets go: its permit and the
// concurrency slots come back, and it is counted.
func (r *request) release() {
	if r.holders.Add(-1) != 0 {
		return
	}
	e := r.edge
	r.permit.Done()
	e.returnSlots(r)
	e.metrics.served(r)
	r.endLine()
	r.reset()
	e.requests.Put(r)
}

// returnSlots gives the concurrency slots of a finished request back, off the
// request path.
func (e *Edge) returnSlots(r *request) {
	checks, results := r.slots()
	if len(checks) == 0 {
		return
	}
	e.returns.Go(func() {
		if err := e.store.Return(e.ctx, checks, &limiter.Decision{Results: results}); err != nil {
			e.log.Warn("concurrency slot not returned, it expires by itself", "rule", checks[0].Limit.Rule, "error", err)
		}
	})
}

// slots returns copies of the checks that hold a slot, and of their results.
func (r *request) slots() (checks []limiter.Check, results []limiter.Result) {
	for i := range r.decision.Results {
		c := r.match.Checks[i]
		if !r.decision.Results[i].Charged || c.Limit.Algorithm != limiter.Concurrency {
			continue
		}
		c.Key = append([]byte(nil), c.Key...)
		checks, results = append(checks, c), append(results, r.decision.Results[i])
	}
	return checks, results
}

// logDenied tells of a refusal, at most once a second for each rule, and never
// with anything of the request that could be secret.
func (r *request) logDenied(wait time.Duration) {
	for i := range r.decision.Results {
		res := &r.decision.Results[i]
		if !res.Refuses(&r.match.Checks[i]) {
			continue
		}
		rule := r.match.Rules[i]
		if skipped, ok := r.running.samplers[rule.Index].sample(r.began); ok {
			r.edge.log.Info("request limited", "rule", rule.ID, "client", r.client, "status", r.ctx.Response.StatusCode(),
				"source", res.Source.String(), "retry_after", wait.String(), "not_logged", skipped)
		}
	}
}

var _ proxy.Finisher = (*request)(nil)
