package h2

import (
	"net/http"
	"strconv"
	"time"

	"golang.org/x/net/http/httpguts"
)

// answer sends the ctx's response. It reports whether the answer is whole.
func (st *stream) answer() bool {
	resp := &st.ctx.Response
	h := st.w.Header()
	h["Content-Type"] = nil // without one, none is guessed
	for name, value := range resp.Header.All() {
		switch key := string(name); key {
		case "Connection", "Content-Length", "Keep-Alive", "Proxy-Connection", "Trailer", "Transfer-Encoding", "Upgrade":
		default:
			h[key] = append(h[key], string(value))
		}
	}
	size, streams := resp.Header.ContentLength(), resp.IsBodyStream()
	if !streams && !resp.SkipBody {
		size = len(resp.Body())
	}
	if size >= 0 && mayHaveBody(resp.StatusCode()) {
		h["Content-Length"] = []string{strconv.Itoa(size)}
	}
	st.w.WriteHeader(resp.StatusCode())
	switch {
	case resp.SkipBody || st.req.Method == http.MethodHead:
		return resp.CloseBodyStream() == nil
	case !streams && size == 0:
		return true // the end of the header is that of the stream
	case !streams && !st.free:
		st.guard.wrote()
		_, err := st.w.Write(resp.Body()) // it is sent, in time, when the handler has returned
		return err == nil
	}
	st.release()
	if !streams {
		_ = st.SetWriteDeadline(time.Now().Add(st.server.config.WriteTimeout))
		_, err := (*passing)(st).Write(resp.Body())
		return err == nil
	}
	if resp.ImmediateHeaderFlush {
		st.flow.Flush()
	}
	if resp.BodyWriteTo((*passing)(st)) != nil {
		return false
	}
	for name, values := range st.trailer {
		if httpguts.ValidTrailerHeader(name) {
			h[http.TrailerPrefix+name] = values
		}
	}
	return true
}

func mayHaveBody(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}

// passing sends each part of a body as it comes.
type passing stream

func (p *passing) Write(b []byte) (int, error) {
	p.guard.wrote()
	n, err := p.w.Write(b)
	if err == nil {
		p.flow.Flush()
		err = p.req.Context().Err() // Flush reports nothing
	}
	return n, err
}
