package edge

import (
	"math"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/valyala/fasthttp"

	"github.com/weir-edge/weir/internal/shedding"
	"github.com/weir-edge/weir/pkg/limiter/rules"
	"github.com/weir-edge/weir/pkg/shedder"
)

// shedSettings are the settings in force with what a request needs of them, swapped as
// one. They are immutable.
type shedSettings struct {
	document *shedding.Document
	source   string
	since    time.Time

	classes  *shedding.Matcher
	user     []rules.KeyPart
	counters map[shedLabels]prometheus.Counter
}

// shedLabels are those of weir_shed_total.
type shedLabels struct{ class, reason string }

// route finds the upstream group.
func (r *request) route() { r.group = r.edge.routes.find(r, &r.scratch) }

// admit asks the shedder of the upstream group for leave. The class is an index in the
// settings that were loaded here; if others are activated at this moment, one request
// may count as another class.
func (r *request) admit() bool {
	s := r.edge.keeper.active.Load()
	class := s.classes.Class(r, &r.scratch)
	var admitted bool
	r.permit, admitted = r.group.shedder.Admit(class, r.user(s.user))
	return admitted
}

// user is a hash of by what the request's user is known: the first that it has, and in
// the end the address. Without any, all such users would be shed at once. It is the same
// on every node: who is shed here is to find no better luck by asking again elsewhere.
func (r *request) user(known []rules.KeyPart) uint64 {
	b := r.buf[:0]
	for i := range known {
		if b = known[i].Append(b, r); len(b) > 0 {
			break
		}
	}
	if len(b) == 0 {
		b = rules.KeyPart{Kind: rules.ByClient}.Append(b, r)
	}
	r.buf = b
	return xxhash.Sum64(b)
}

var headerShedReason = []byte("Weir-Shed-Reason")

// shed answers 503: the site is too busy for this request.
func (r *request) shed() {
	e, s, reason := r.edge, r.edge.keeper.active.Load(), r.permit.Reason()
	r.start(fasthttp.StatusServiceUnavailable)
	retry := s.document.RetryAfter
	r.retryAfter(time.Duration(retry.Min) + rand.N(time.Duration(retry.Max-retry.Min)+1))
	if s.document.ReasonHeader {
		r.buf = appendReason(r.buf[:0], &reason)
		r.ctx.Response.Header.SetCanonical(headerShedReason, r.buf)
	}
	b := append(r.buf[:0], `{"type":"`+typeReducedCapacity+`","title":"Shedding load","status":503,"class":"`...)
	b = append(b, reason.Class...) // [a-z0-9_-] only
	r.body(append(b, `"}`...))
	e.metrics.countShed(s, &reason)
	if skipped, ok := e.shedLog.sample(r.began); ok {
		e.log.Info("request shed", "class", reason.Class, "upstream", reason.Upstream, "kind", reason.Kind, "signal", reason.Signal,
			"value", reason.Value, "threshold", reason.Threshold, "utilization", reason.Utilization, "level", reason.Level,
			"version", reason.Version, "not_logged", skipped)
	}
}

// appendReason writes a reason for those who look for faults.
func appendReason(b []byte, reason *shedder.Reason) []byte {
	number := func(name string, v float64) {
		b = append(b, name...)
		b = strconv.AppendFloat(b, math.Round(v*1000)/1000, 'f', -1, 64)
	}
	b = append(b, reason.Signal...)
	number(";value=", reason.Value)
	number(";threshold=", reason.Threshold)
	number(";utilization=", reason.Utilization)
	number(";level=", reason.Level)
	b = append(append(b, ";version="...), reason.Version...)
	b = append(append(b, ";class="...), reason.Class...)
	b = append(append(b, ";upstream="...), reason.Upstream...)
	return append(append(b, ";kind="...), reason.Kind...)
}
