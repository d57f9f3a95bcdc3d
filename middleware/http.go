package middleware

import (
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"unsafe"

	"github.com/weir-edge/weir/pkg/limiter/rules"
)

// Handler returns a handler that answers the requests that the rules refuse, and passes all others to next.
// A request holds its concurrency slots until next returns.
//
// Handler sets the RateLimit headers before it calls next, which may change them.
func (l *Limiter) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f := fieldsPool.Get().(*httpFields)
		f.r = r
		peer, _ := netip.ParseAddrPort(r.RemoteAddr)
		c := l.Begin(Request{Peer: peer.Addr(), Method: bytesOf(r.Method), Host: bytesOf(r.Host), Target: bytesOf(target(r)), Fields: f})
		defer func() {
			c.End()
			f.r = nil
			clear(f.values)
			fieldsPool.Put(f)
		}()
		h := w.Header()
		c.Describe(func(name string, value []byte) { h[http.CanonicalHeaderKey(name)] = []string{string(value)} })
		if c.Passed() {
			next.ServeHTTP(w, r)
			return
		}
		h.Set("Content-Type", "application/problem+json")
		w.WriteHeader(c.Status())
		_, _ = w.Write(c.Body()) // the client may have gone
	})
}

// target returns the request target without scheme and host.
func target(r *http.Request) string {
	if t := r.RequestURI; strings.HasPrefix(t, "/") || t == "*" {
		return t
	}
	return r.URL.RequestURI()
}

var fieldsPool = sync.Pool{New: func() any { return &httpFields{} }}

// httpFields are those of a request of net/http.
type httpFields struct {
	r      *http.Request
	values [][]byte
}

var _ Fields = (*httpFields)(nil)

// Header implements Fields.
func (f *httpFields) Header(name string) [][]byte {
	f.values = f.values[:0]
	if name == "Host" {
		return append(f.values, bytesOf(f.r.Host))
	}
	for _, v := range f.r.Header[http.CanonicalHeaderKey(name)] {
		f.values = append(f.values, bytesOf(v))
	}
	return f.values
}

// Cookie implements Fields.
func (f *httpFields) Cookie(name string) (value []byte, n int) {
	for _, line := range f.r.Header["Cookie"] {
		value, n = rules.FindCookie(bytesOf(line), name, value, n)
	}
	return value, n
}

// bytesOf returns the bytes of a string, which must not be changed.
func bytesOf(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }
