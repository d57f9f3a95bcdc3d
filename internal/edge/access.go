package edge

import (
	"time"

	"github.com/weir-edge/weir/internal/edge/accesslog"
	"github.com/weir-edge/weir/internal/edge/recent"
)

// openAccessLog opens the access log, if one is configured.
func (e *Edge) openAccessLog() (err error) {
	if e.config.AccessLog != nil {
		e.access, err = accesslog.Open(*e.config.AccessLog, e.log, func(lines int) { e.metrics.accessLogDropped.Add(float64(lines)) })
	}
	return err
}

// beginLine writes the request's access log line while its RequestCtx is still valid.
func (r *request) beginLine() {
	log := r.edge.access
	if log == nil {
		return
	}
	client := r.Client
	if !client.IsValid() { // refused before it was identified
		client = r.Peer
	}
	line := accesslog.Request{Began: r.Began, Client: client, Tier: r.Tier, Trusted: r.Trusted}
	if c, ok := r.ctx.Conn().(interface{ HTTPVersion() string }); ok {
		line.Protocol = c.HTTPVersion()
	}
	r.line = log.Append(r.line, &line, r.ctx)
}

// endLine hands the line to the log once the last byte of the response is sent.
func (r *request) endLine() {
	if log := r.edge.access; log != nil {
		r.line = log.AppendEnd(r.line, time.Since(r.Began))
		log.Add(r.line)
	}
}

// openRecent makes the ring of recent requests, if the configuration asks for one.
func (e *Edge) openRecent() (err error) {
	if e.config.Recent.Keep == 0 {
		return nil
	}
	if e.recent, err = recent.New(e.config.Recent); err == nil {
		e.decider.Decided = e.recent.Put
	}
	return err
}
