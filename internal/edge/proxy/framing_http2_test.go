package proxy

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// The window of an origin's streams: what an early answer leaves unread stays with the edge.
const reluctance = 3000

// streamBehaviors are the ways in which an origin of HTTP/2 answers. They may end the connection that
// other clients share.
var streamBehaviors = []struct {
	name          string
	honest, early bool
	answer        func(s *originStream, body string)
}{
	{"length", true, false, func(s *originStream, b string) { s.head("200", b); s.data(b, true) }},
	{"no length", true, false, func(s *originStream, b string) { s.fields(false, ":status", "200"); s.data(b, true) }},
	{"before the body", true, true, func(s *originStream, b string) { s.head("200", b); s.data(b, true) }},
	{"trailer", true, false, func(s *originStream, b string) {
		s.fields(false, ":status", "200", "trailer", "x-sum")
		s.data(b, false)
		s.fields(true, "x-sum", s.mark)
	}},
	{"interim", true, false, func(s *originStream, b string) {
		s.fields(false, ":status", "103", "link", s.mark)
		s.head("200", b)
		s.data(b, true)
	}},
	{"pieces", true, false, func(s *originStream, b string) {
		s.head("200", b)
		for size := 1; len(b) > size; size = size*3 + 1 {
			_ = s.o.WriteDataPadded(s.id, false, []byte(b[:size]), make([]byte, 7))
			b = b[size:]
		}
		s.data(b, true)
	}},
	{"refuses the body", false, true, func(s *originStream, b string) {
		s.head("200", b)
		s.data(b, true)
		_ = s.o.WriteRSTStream(s.id, http2.ErrCodeNo)
	}},
	{"refuses it with a long answer", false, true, func(s *originStream, b string) {
		s.fields(false, ":status", "413")
		s.data(strings.Repeat(s.mark+" ", 5000), true)
		_ = s.o.WriteRSTStream(s.id, http2.ErrCodeNo)
	}},
	{"breaks off early", false, true, func(s *originStream, _ string) { _ = s.o.WriteRSTStream(s.id, http2.ErrCodeInternal) }},
	{"hangs up early", false, true, func(s *originStream, _ string) { _ = s.o.c.Close() }},
	{"wants HTTP/1.1's connection closed", false, true, func(s *originStream, b string) {
		s.fields(false, ":status", "200", "connection", "close, x-other", "transfer-encoding", "chunked", "keep-alive", "timeout=9")
		s.data(b, true)
		_ = s.o.WriteRSTStream(s.id, http2.ErrCodeNo)
	}},
	{"no content", false, false, func(s *originStream, _ string) { s.fields(true, ":status", "204") }},
	{"204 with a body", false, false, func(s *originStream, b string) { s.fields(false, ":status", "204"); s.data(b+s.mark, true) }},
	{"304 with a body", false, false, func(s *originStream, b string) { s.head("304", b); s.data(b+s.mark, true) }},
	{"more", false, false, func(s *originStream, b string) { s.head("200", b); s.data(b+unasked(s.mark), true) }},
	{"less", false, false, func(s *originStream, b string) { s.head("200", b+"x"); s.data(b, true) }},
	{"less and a reset", false, false, func(s *originStream, b string) {
		s.head("200", b+"x")
		s.data(b, false)
		_ = s.o.WriteRSTStream(s.id, http2.ErrCodeInternal)
	}},
	{"less and hangs up", false, false, func(s *originStream, b string) { s.head("200", b+"x"); s.data(b, false); _ = s.o.c.Close() }},
	{"more behind the end", false, false, func(s *originStream, b string) { s.head("200", b); s.data(b, true); s.data(unasked(s.mark), true) }},
	{"another answer behind the end", false, false, func(s *originStream, b string) {
		s.head("200", b)
		s.data(b, true)
		s.fields(true, ":status", "200", "x-unasked", "1")
	}},
	{"an answer to a request to come", false, false, func(s *originStream, b string) {
		s.head("200", b)
		s.data(b, true)
		s.id += 1000
		s.fields(true, ":status", "200", "x-unasked", "1")
	}},
	{"two lengths", false, false, func(s *originStream, b string) {
		s.fields(false, ":status", "200", "content-length", "1", "content-length", strconv.Itoa(len(b)))
		s.data(b, true)
	}},
	{"two statuses", false, false, func(s *originStream, b string) { s.fields(false, ":status", "200", ":status", "204"); s.data(b, true) }},
	{"no status", false, false, func(s *originStream, b string) { s.fields(false, "x", "y"); s.data(b, true) }},
	{"a line break", false, false, func(s *originStream, b string) {
		s.fields(false, ":status", "200", "x", unasked(s.mark))
		s.data(b, true)
	}},
	{"switches", false, false, func(s *originStream, b string) { s.fields(false, ":status", "101", "upgrade", "x"); s.data(b, true) }},
	{"promises", false, false, func(s *originStream, b string) {
		_ = s.o.WritePushPromise(http2.PushPromiseParam{StreamID: s.id, PromiseID: 2, BlockFragment: s.encode(":status", "200"), EndHeaders: true})
		s.head("200", b)
		s.data(b, true)
	}},
	{"goes away", false, false, func(s *originStream, b string) {
		s.head("200", b)
		s.data(b, true)
		_ = s.o.WriteGoAway(s.id, http2.ErrCodeNo, nil)
	}},
	{"data without an answer", false, false, func(s *originStream, b string) { s.data(b+"x", true) }},
}

// asBehaviors is what clients must know of them.
func asBehaviors() (list []behavior) {
	for _, c := range streamBehaviors {
		list = append(list, behavior{name: c.name, honest: c.honest, early: c.early})
	}
	return list
}

// originConn is one connection of an origin that speaks HTTP/2.
type originConn struct {
	*http2.Framer
	c net.Conn
}

// originStream is one request and its answer.
type originStream struct {
	o                *originConn
	id               uint32
	mark, from       string
	number, size     int
	announced        string
	body             bytes.Buffer
	honest, answered bool
}

func (s *originStream) encode(list ...string) []byte {
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	for i := 0; i < len(list); i += 2 {
		_ = e.WriteField(hpack.HeaderField{Name: list[i], Value: list[i+1]})
	}
	return b.Bytes()
}

// fields sends a header in two frames.
func (s *originStream) fields(end bool, list ...string) {
	block := s.encode(append(list, "x-mark", s.mark)...)
	_ = s.o.WriteHeaders(http2.HeadersFrameParam{StreamID: s.id, BlockFragment: block[:1], EndStream: end})
	_ = s.o.WriteContinuation(s.id, true, block[1:])
}

func (s *originStream) head(status, body string) {
	s.fields(false, ":status", status, "content-length", strconv.Itoa(len(body)))
}

func (s *originStream) data(body string, end bool) {
	if s.from == "HEAD" && s.honest {
		body = ""
	}
	for len(body) > 16<<10 {
		_ = s.o.WriteData(s.id, false, []byte(body[:16<<10]))
		body = body[16<<10:]
	}
	_ = s.o.WriteData(s.id, end, []byte(body))
}

func (s *originStream) answer() {
	s.answered = true
	streamBehaviors[s.number].answer(s, marked(s.mark, s.size))
}

// serveHTTP2 is serve for a connection of HTTP/2.
func (o *framingOrigin) serveHTTP2(c net.Conn, br *bufio.Reader) {
	if _, err := io.CopyN(io.Discard, br, int64(len(http2.ClientPreface))); err != nil {
		return
	}
	conn := &originConn{http2.NewFramer(c, br), c}
	conn.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	conn.AllowIllegalWrites = true
	o.mu.Lock()
	o.conns = append(o.conns, c)
	o.mu.Unlock()
	_ = conn.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: reluctance})
	streams := map[uint32]*originStream{}
	for {
		frame, err := conn.ReadFrame()
		if err != nil {
			return
		}
		switch f := frame.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				_ = conn.WriteSettingsAck()
			}
		case *http2.PingFrame:
			if !f.IsAck() {
				_ = conn.WritePing(true, f.Data)
			}
		case *http2.RSTStreamFrame:
			delete(streams, f.StreamID)
		case *http2.MetaHeadersFrame:
			s := &originStream{o: conn, id: f.StreamID, from: f.PseudoValue("method")}
			path := strings.Split(f.PseudoValue("path"), "/")
			if len(path) != 4 {
				o.noteFault(fmt.Errorf("the origin got %s %s", s.from, f.PseudoValue("path")))
				return
			}
			s.mark = path[1]
			s.number, _ = strconv.Atoi(path[2])
			s.size, _ = strconv.Atoi(path[3])
			s.honest = streamBehaviors[s.number].honest
			for _, field := range f.Fields {
				if other := foreign(field.Value, s.mark); other != "" {
					o.noteFault(fmt.Errorf("the origin got %s in request %s", other, s.mark))
				}
				if field.Name == "x-size" {
					s.announced = field.Value
				}
			}
			streams[s.id] = s
			if streamBehaviors[s.number].early {
				s.answer()
			}
			if f.StreamEnded() {
				o.ended(streams, s)
			}
		case *http2.DataFrame:
			n := uint32(f.Length)
			if n > 0 {
				_ = conn.WriteWindowUpdate(0, n)
			}
			s := streams[f.StreamID]
			if s == nil {
				continue // its answer came first
			}
			s.body.Write(f.Data())
			if n > 0 && (!s.answered || s.honest) {
				_ = conn.WriteWindowUpdate(s.id, n)
			}
			if f.StreamEnded() {
				o.ended(streams, s)
			}
		}
	}
}

// hangUp closes the connections of HTTP/2.
func (o *framingOrigin) hangUp() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, c := range o.conns {
		_ = c.Close()
	}
}

// ended checks a whole request and answers it.
func (o *framingOrigin) ended(streams map[uint32]*originStream, s *originStream) {
	delete(streams, s.id)
	body := s.body.String()
	if other := foreign(body, s.mark); other != "" {
		o.noteFault(fmt.Errorf("the origin got %s in request %s", other, s.mark))
	}
	if s.announced != strconv.Itoa(len(body)) || body != marked(s.mark, len(body)) {
		o.noteFault(fmt.Errorf("the origin got a body of %d bytes in request %s, sent were %s", len(body), s.mark, s.announced))
	}
	if !s.answered {
		s.answer()
	}
}
