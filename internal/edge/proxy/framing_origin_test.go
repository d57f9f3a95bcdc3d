package proxy

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// A mark identifies one request of one client. Everything sent for the request carries
// it, so misplaced bytes show.
var markForm = regexp.MustCompile(`mk\d+-\d+k`)

// foreign returns a mark in text other than this one, or "".
func foreign(text, mark string) string {
	for _, found := range markForm.FindAllString(strings.ReplaceAll(text, mark, ""), -1) {
		if found != mark {
			return found
		}
	}
	return ""
}

// marked is size bytes of the mark.
func marked(mark string, size int) string {
	return strings.Repeat(mark+" ", size/len(mark)+1)[:size]
}

// unasked is what an origin sends unrequested.
func unasked(mark string) string {
	return fmt.Sprintf("HTTP/1.1 200 OK\r\nX-Unasked: 1\r\nX-Mark: %s\r\nContent-Length: %d\r\n\r\n%s", mark, len(mark), mark)
}

func withLength(mark, body string, length int) string {
	return fmt.Sprintf("HTTP/1.1 200 OK\r\nX-Mark: %s\r\nContent-Length: %d\r\n\r\n%s", mark, length, body)
}

func chunks(mark, body string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "HTTP/1.1 200 OK\r\nX-Mark: %s\r\nTransfer-Encoding: chunked\r\n\r\n", mark)
	for size := 1; len(body) > 0; size = size*3 + 1 {
		n := min(size, len(body))
		fmt.Fprintf(&b, "%x\r\n%s\r\n", n, body[:n])
		body = body[n:]
	}
	return b.String()
}

// behavior is one way in which an origin answers: at once, and later, when the edge has
// no request left. An honest one sends the whole body.
type behavior struct {
	name   string
	honest bool
	answer func(mark, body string) (now, later string)
	end    bool // hang up after it
	early  bool // answer before the request's body
}

const atOnce = 8 << 10 // small enough to arrive with what follows it, in one packet

var behaviors = []behavior{
	{"length", true, func(m, b string) (string, string) { return withLength(m, b, len(b)), "" }, false, false},
	{"chunks", true, func(m, b string) (string, string) { return chunks(m, b) + "0\r\n\r\n", "" }, false, false},
	{"trailer", true, func(m, b string) (string, string) { return chunks(m, b) + "0\r\nX-Sum: " + m + "\r\n\r\n", "" }, false, false},
	{"until the end", true, func(m, b string) (string, string) {
		return "HTTP/1.1 200 OK\r\nConnection: close\r\nX-Mark: " + m + "\r\n\r\n" + b, ""
	}, true, false},
	{"HTTP/1.0", true, func(m, b string) (string, string) { return "HTTP/1.0 200 OK\r\nX-Mark: " + m + "\r\n\r\n" + b, "" }, true, false},
	{"interim", true, func(m, b string) (string, string) {
		return "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: " + m + "\r\n\r\n" + withLength(m, b, len(b)), ""
	}, false, false},
	{"before the body", true, func(m, b string) (string, string) { return withLength(m, b, len(b)), "" }, false, true},

	{"no content", false, func(m, _ string) (string, string) {
		return "HTTP/1.1 204 No Content\r\nX-Mark: " + m + "\r\n\r\n", ""
	}, false, false},
	{"hangs up later", false, func(m, b string) (string, string) { return withLength(m, b, len(b)), "" }, true, false},
	{"more", false, func(m, b string) (string, string) {
		b = b[:min(len(b), atOnce)]
		return withLength(m, b, len(b)) + unasked(m), ""
	}, false, false},
	{"more later", false, func(m, b string) (string, string) { return withLength(m, b, len(b)), unasked(m) }, false, false},
	{"a line feed later", false, func(m, b string) (string, string) { return withLength(m, b, len(b)), "\n" }, false, false},
	{"half a status later", false, func(m, b string) (string, string) { return withLength(m, b, len(b)), "HTTP/1.1 2" }, false, false},
	{"interim later", false, func(m, b string) (string, string) {
		return withLength(m, b, len(b)), "HTTP/1.1 103 Early Hints\r\nLink: " + m + "\r\n\r\n"
	}, false, false},
	{"408 later", false, func(m, b string) (string, string) {
		return withLength(m, b, len(b)), "HTTP/1.1 408 Request Timeout\r\nX-Mark: " + m + "\r\nContent-Length: 0\r\n\r\n"
	}, true, false},
	{"chunks, more later", false, func(m, b string) (string, string) { return chunks(m, b) + "0\r\n\r\n", unasked(m) }, false, false},
	{"204 with a body", false, func(m, _ string) (string, string) {
		return "HTTP/1.1 204 No Content\r\nX-Mark: " + m + "\r\nContent-Length: 9\r\n\r\n" + unasked(m), ""
	}, false, false},
	{"204, a body later", false, func(m, b string) (string, string) {
		return "HTTP/1.1 204 No Content\r\nX-Mark: " + m + "\r\n\r\n", unasked(m)
	}, false, false},
	{"304 with a body", false, func(m, b string) (string, string) {
		return "HTTP/1.1 304 Not Modified\r\nX-Mark: " + m + "\r\nContent-Length: 99\r\n\r\n" + unasked(m), ""
	}, false, false},
	{"304, a body later", false, func(m, b string) (string, string) {
		return "HTTP/1.1 304 Not Modified\r\nX-Mark: " + m + "\r\nContent-Length: 99\r\n\r\n", unasked(m)
	}, false, false},
	{"less", false, func(m, b string) (string, string) { return withLength(m, b, len(b)+1), "" }, true, false},
	{"less chunks", false, func(m, b string) (string, string) { return chunks(m, b), "" }, true, false},
	{"a bad chunk", false, func(m, b string) (string, string) { return chunks(m, b) + "x\r\n" + m + "\r\n0\r\n\r\n", "" }, false, false},
	{"an endless chunk", false, func(m, b string) (string, string) { return chunks(m, b) + "fffffffffffffffff\r\n" + m, "" }, true, false},
	{"length and chunks", false, func(m, b string) (string, string) {
		b = b[:min(len(b), atOnce)]
		return strings.Replace(chunks(m, b), "\r\n", "\r\nContent-Length: 3\r\n", 1) + "0\r\n\r\n", ""
	}, false, false},
	{"two lengths", false, func(m, b string) (string, string) {
		b = b[:min(len(b), atOnce)]
		return strings.Replace(withLength(m, b, len(b)), "\r\n", "\r\nContent-Length: 1\r\n", 1), ""
	}, true, false},
	{"no response", false, func(m, b string) (string, string) { return m + " " + b + "\r\n\r\n", "" }, true, false},
	{"nothing", false, func(string, string) (string, string) { return "", "" }, true, false},
	{"switches", false, func(m, _ string) (string, string) {
		return "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nX-Mark: " + m + "\r\n\r\n" + unasked(m), ""
	}, false, false},
	{"refuses the body", false, func(m, b string) (string, string) { return withLength(m, b, len(b)), "" }, true, true},
}

// framingOrigin answers each request as its path (/MARK/CONDUCT/SIZE) says.
type framingOrigin struct {
	mu    sync.Mutex
	fault error // something it got that no client sent this way
	later []later
	conns []net.Conn // of HTTP/2
}

// later is what to send when the edge has no request left.
type later struct {
	c    net.Conn
	text string
	end  bool
}

func (o *framingOrigin) noteFault(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.fault = errors.Join(o.fault, err)
}

func (o *framingOrigin) serve(c net.Conn, br *bufio.Reader) {
	for {
		req, err := http.ReadRequest(br)
		if err != nil {
			var netErr net.Error
			if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.As(err, &netErr) && !errors.Is(err, net.ErrClosed) {
				o.noteFault(fmt.Errorf("the origin got no request: %w", err))
			}
			return
		}
		path := strings.Split(req.URL.Path, "/")
		if len(path) != 4 {
			o.noteFault(fmt.Errorf("the origin got %s %s", req.Method, req.URL))
			return
		}
		mark := path[1]
		number, _ := strconv.Atoi(path[2])
		size, _ := strconv.Atoi(path[3])
		way := &behaviors[number]
		now, after := way.answer(mark, marked(mark, size))
		if req.Method == http.MethodHead && (way.honest || size > atOnce) {
			now = headerOf(now) // a body after HEAD is unrequested
		}
		if way.early {
			_, _ = io.WriteString(c, now)
			if way.end {
				return
			}
		}
		body, err := io.ReadAll(req.Body)
		if other := foreign(fmt.Sprint(req.URL, req.Header, req.Trailer, string(body)), mark); other != "" {
			o.noteFault(fmt.Errorf("the origin got %s in request %s", other, mark))
		}
		if err != nil {
			return // the client hung up in the middle of it
		}
		if want := req.Header.Get("X-Size"); want != strconv.Itoa(len(body)) || string(body) != marked(mark, len(body)) {
			o.noteFault(fmt.Errorf("the origin got a body of %d bytes in request %s, sent were %s", len(body), mark, want))
		}
		if !way.early {
			_, _ = io.WriteString(c, now)
		}
		if after != "" || way.name == "hangs up later" {
			o.mu.Lock()
			o.later = append(o.later, later{c, after, way.end})
			o.mu.Unlock()
		} else if way.end {
			return
		}
	}
}

// headerOf returns an answer without its body, interim responses included.
func headerOf(answer string) string {
	head := ""
	for {
		header, rest, _ := strings.Cut(answer, "\r\n\r\n")
		head += header + "\r\n\r\n"
		if !strings.HasPrefix(header, "HTTP/1.1 1") {
			return head
		}
		answer = rest
	}
}

// arrive sends what is due later and returns when it has arrived at the edge, which
// must have no request in progress.
func (o *framingOrigin) arrive(t *testing.T, u *upstream) {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, l := range o.later {
		_, _ = io.WriteString(l.c, l.text)
		if l.end {
			_ = l.c.Close()
		}
		u.mu.Lock()
		idle := append([]*conn(nil), u.idle...)
		u.mu.Unlock()
		for _, c := range idle {
			if c.LocalAddr().String() == l.c.RemoteAddr().String() {
				await(t, "what the origin sent arrives", func() bool { return c.look() != idleQuiet })
			}
		}
	}
	o.later = o.later[:0]
}
