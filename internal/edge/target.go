package edge

import (
	"bytes"
	"errors"

	"github.com/weir-edge/weir/internal/edge/proxy"
	"github.com/weir-edge/weir/pkg/limiter/rules"
	"github.com/weir-edge/weir/pkg/paths"
)

// What server.paths makes of a path that origins may read in several ways.
const (
	pathsMatchAll   = "match_all"  // forward it as received, if all readings are decided alike
	pathsStrict     = "strict"     // refuse it
	pathsNormalized = "normalized" // forward its normal form, and decide about that like match_all
)

var (
	errFragment  = errors.New("the request target has a fragment")
	errTarget    = errors.New("the request target has a control character or a space; percent-encode it")
	errAsterisk  = errors.New("the request target * is for OPTIONS only")
	errHost      = errors.New("the host is neither a name nor an address, with or without a port")
	errAmbiguous = errors.New("the path can be read in several ways" + paths.Plainly)
	errDisagree  = errors.New("the path can be read in several ways that are not limited and routed alike" + paths.Plainly)
)

// readTarget finds the readings of the path. From here on, the target is a path or *, and
// the host is the one that counts.
func (r *request) readTarget() error {
	h := &r.ctx.Request.Header
	for _, c := range h.RequestURI() {
		switch {
		case c == '#':
			return errFragment
		case c <= ' ' || c == 0x7f:
			return errTarget
		}
	}
	if h.IsConnect() {
		return r.paths.Read([]byte("/")) // forwarding refuses it
	}
	if err := proxy.OriginForm(h); err != nil {
		return err.Err
	}
	if !validHost(h.Host()) {
		return errHost
	}
	target := h.RequestURI()
	path, query, _ := bytes.Cut(target, []byte("?"))
	r.query = query
	if string(path) == "*" {
		if !h.IsOptions() {
			return errAsterisk
		}
		return r.paths.Read([]byte("/*"))
	}
	if r.edge.config.Server.Paths == pathsNormalized {
		normal, err := paths.AppendNormal(r.buf[:0], path)
		if err != nil {
			return err
		}
		size := len(normal)
		r.buf = append(normal, target[len(path):]...)
		h.SetRequestURIBytes(r.buf)
		path = h.RequestURI()[:size]
		r.query = bytes.TrimPrefix(h.RequestURI()[size:], []byte("?"))
	}
	return r.edge.config.readPath(&r.paths, path)
}

// readPath finds the readings of a path, as it is forwarded.
func (c *Config) readPath(p *paths.Readings, path []byte) error {
	if err := p.Read(path); err != nil {
		return err
	}
	if p.Len() > 1 && c.Server.Paths == pathsStrict {
		return errAmbiguous
	}
	return nil
}

// readable is a request whose Path is one of its readings at a time.
type readable interface {
	rules.Request
	readAs(reading []byte)
}

// comparison is room for deciding about further readings. Its Matches are reused.
type comparison struct{ checks, scratch rules.Match }

// matchReadings fills m with the checks that hold for every reading of a request's path.
// It fails if the readings differ in them, in the upstream group or in the class.
func (e *Edge) matchReadings(r readable, p *paths.Readings, set *rules.Set, slot uint64, m *rules.Match, c *comparison) error {
	r.readAs(p.At(0))
	if err := set.Match(r, slot, m); err != nil || p.Len() == 1 {
		return err
	}
	classes := e.keeper.active.Load().classes
	group, class := e.routes.find(r, &c.scratch), classes.Class(r, &c.scratch)
	for i := 1; i < p.Len(); i++ {
		r.readAs(p.At(i))
		if err := set.Match(r, slot, &c.checks); err != nil {
			return err
		}
		if !m.Same(&c.checks) || e.routes.find(r, &c.scratch) != group || classes.Class(r, &c.scratch) != class {
			return errDisagree
		}
	}
	r.readAs(p.At(0))
	return nil
}
