package main

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/weir-edge/weir/tools/internal/overload"
)

// queue models overload.Workers without doing their work: each request goes to the
// worker that is free first, and its answer waits until that worker would be done. Work
// that starts late because this process was late still ends on time, so the origin
// keeps its exact capacity, however busy the machine.
type queue struct {
	epoch  time.Time
	inside atomic.Int64

	mu    sync.Mutex
	free  [overload.Workers]time.Duration // when each worker finishes its work
	times []time.Duration
	begun int
	// Service times are multiplied by slowness, unless 0; answers come later by delay.
	slowness float64
	delay    time.Duration
}

// enter returns when a request that arrives at now is answered; false if too many are
// waiting. Call leave at that time.
func (q *queue) enter(now time.Duration) (time.Duration, bool) {
	if q.inside.Add(1) > overload.Workers+overload.QueueLimit {
		q.inside.Add(-1)
		return 0, false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	first := 0
	for i, at := range q.free {
		if at < q.free[first] {
			first = i
		}
	}
	service := q.times[q.begun%len(q.times)]
	if q.slowness > 0 {
		service = time.Duration(float64(service) * q.slowness)
	}
	q.free[first] = max(now, q.free[first]) + service
	q.begun++
	return q.free[first] + q.delay, true
}

func (q *queue) leave() { q.inside.Add(-1) }

// change makes an overload.Change, as /change?slowness=2&delay=100ms asks for.
func (q *queue) change(args *fasthttp.Args) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	var err error
	if text := string(args.Peek("slowness")); text != "" {
		if q.slowness, err = strconv.ParseFloat(text, 64); err != nil {
			return err
		}
	}
	if text := string(args.Peek("delay")); text != "" {
		q.delay, err = time.ParseDuration(text)
	}
	return err
}

// serveOrigin is the origin of known capacity. /hold never answers, which keeps
// requests in flight; /change changes it.
func serveOrigin(ctx context.Context, listen string, seed uint64) error {
	q := &queue{epoch: time.Now(), times: overload.ServiceTimes(seed)}
	body := []byte("hello from the origin\n")
	server := &fasthttp.Server{CloseOnShutdown: true, Handler: func(req *fasthttp.RequestCtx) {
		switch string(req.Path()) {
		case "/hold":
			<-ctx.Done()
			return
		case "/change":
			if err := q.change(req.QueryArgs()); err != nil {
				req.Error(err.Error(), fasthttp.StatusBadRequest)
			}
			return
		}
		at, ok := q.enter(time.Since(q.epoch))
		if !ok {
			req.Error("the queue is full", fasthttp.StatusServiceUnavailable)
			return
		}
		time.Sleep(at - time.Since(q.epoch))
		q.leave()
		req.SetBody(body)
	}}
	return serve(ctx, server, listen)
}

// serveRefusals is the smallest fasthttp server that refuses, with weir's body and headers or
// with a short message.
func serveRefusals(ctx context.Context, listen string, same bool) error {
	kind, body := "text/plain; charset=utf-8", []byte("overloaded\n")
	if same {
		kind, body = "application/problem+json", []byte(`{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity","title":"Shedding load","status":503,"class":"read"}`)
	}
	return serve(ctx, &fasthttp.Server{Handler: func(req *fasthttp.RequestCtx) {
		req.SetStatusCode(fasthttp.StatusServiceUnavailable)
		req.SetContentType(kind)
		req.Response.Header.Set("Retry-After", "5")
		req.SetBody(body)
	}}, listen)
}

func serve(ctx context.Context, server *fasthttp.Server, listen string) error {
	stopped := context.AfterFunc(ctx, func() { _ = server.Shutdown() })
	defer stopped()
	return server.ListenAndServe(listen)
}
