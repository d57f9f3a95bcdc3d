package edge

import (
	"bytes"

	"github.com/weir-edge/weir/internal/edge/config"
	"github.com/weir-edge/weir/internal/edge/decide"
	"github.com/weir-edge/weir/internal/edge/proxy"
	"github.com/weir-edge/weir/pkg/paths"
)

// readTarget finds the readings of the path. From here on, the target is a path or *, and
// the host is the effective one.
func (r *request) readTarget() error {
	h := &r.ctx.Request.Header
	if err := decide.CheckTarget(h.RequestURI()); err != nil {
		return err
	}
	r.Method, r.Host = h.Method(), h.Host()
	if h.IsConnect() {
		return r.Paths.Read([]byte("/")) // forwarding rejects it
	}
	if err := proxy.OriginForm(h, r.edge.upstreams.Host()); err != nil {
		return err.Err
	}
	if r.Host = h.Host(); !decide.ValidHost(r.Host) { // which OriginForm may have changed
		return decide.ErrHost
	}
	r.boundaryKnown = true
	target := h.RequestURI()
	path, query, _ := bytes.Cut(target, []byte("?"))
	r.Query = query
	if string(path) == "*" {
		return r.ReadAsterisk()
	}
	if r.edge.config.Server.Paths == config.PathsNormalized {
		normal, err := paths.AppendNormal(r.buf[:0], path)
		if err != nil {
			return err
		}
		size := len(normal)
		r.buf = append(normal, target[len(path):]...)
		h.SetRequestURIBytes(r.buf)
		path = h.RequestURI()[:size]
		r.Query = bytes.TrimPrefix(h.RequestURI()[size:], []byte("?"))
	}
	return r.edge.decider.ReadPath(&r.Request, path)
}
