package accesslog

import (
	"bytes"
	"net/netip"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/valyala/fasthttp"
)

// Request is what a line needs in addition to the RequestCtx.
type Request struct {
	Began   time.Time
	Client  netip.Addr
	Tier    []byte
	Trusted bool // it came through a trusted proxy
	// Protocol is what the client spoke; "" means the version in the RequestCtx.
	Protocol string
}

// Append appends the line of a request whose response is known. AppendEnd completes it when
// the last byte is sent.
func (l *Log) Append(b []byte, r *Request, ctx *fasthttp.RequestCtx) []byte {
	if l.config.Format == JSON {
		return l.appendJSON(b, r, ctx)
	}
	return l.appendCombined(b, r, ctx)
}

func (l *Log) AppendEnd(b []byte, took time.Duration) []byte {
	if l.config.Format == JSON {
		b = append(b, `,"duration_ms":`...)
		b = strconv.AppendFloat(b, float64(took.Microseconds())/1e3, 'f', 3, 64)
		b = append(b, '}')
	}
	return append(b, '\n')
}

func (l *Log) appendCombined(b []byte, r *Request, ctx *fasthttp.RequestCtx) []byte {
	b = r.Client.AppendTo(b)
	b = append(b, " - - ["...)
	b = r.Began.UTC().AppendFormat(b, "02/Jan/2006:15:04:05 -0700")
	b = append(b, `] "`...)
	b = appendEscaped(b, ctx.Method())
	b = append(b, ' ')
	b = appendEscaped(b, l.target(ctx))
	b = append(b, ' ')
	if r.Protocol != "" {
		b = append(b, r.Protocol...)
	} else {
		b = appendEscaped(b, ctx.Request.Header.Protocol())
	}
	b = append(b, `" `...)
	b = strconv.AppendInt(b, int64(ctx.Response.StatusCode()), 10)
	b = append(b, ' ')
	if n := size(ctx); n >= 0 {
		b = strconv.AppendInt(b, int64(n), 10)
	} else {
		b = append(b, '-')
	}
	for _, value := range [...][]byte{page(ctx.Referer()), ctx.UserAgent()} {
		b = append(b, ` "`...)
		if len(value) == 0 {
			b = append(b, '-')
		}
		b = appendEscaped(b, value)
		b = append(b, '"')
	}
	return b
}

// appendEscaped appends text within quotes as nginx does: bytes that could end the quotes
// or the line are written as \xXX.
func appendEscaped(b, text []byte) []byte {
	const digits = "0123456789ABCDEF"
	for _, c := range text {
		if c < ' ' || c == '"' || c == '\\' || c >= 0x7f {
			b = append(b, '\\', 'x', digits[c>>4], digits[c&15])
			continue
		}
		b = append(b, c)
	}
	return b
}

func (l *Log) appendJSON(b []byte, r *Request, ctx *fasthttp.RequestCtx) []byte {
	text := func(name string, value []byte) {
		if len(value) > 0 {
			b = append(b, `,"`...)
			b = append(b, name...)
			b = append(b, `":`...)
			b = AppendString(b, value)
		}
	}
	b = append(b, `{"time":"`...)
	b = r.Began.UTC().AppendFormat(b, "2006-01-02T15:04:05.000000Z")
	b = append(b, `","client":"`...)
	b = r.Client.AppendTo(b)
	b = append(b, '"')
	text("method", ctx.Method())
	text("host", ctx.Request.Header.Host())
	text("target", l.target(ctx))
	b = append(b, `,"status":`...)
	b = strconv.AppendInt(b, int64(ctx.Response.StatusCode()), 10)
	if n := size(ctx); n >= 0 {
		b = append(b, `,"bytes":`...)
		b = strconv.AppendInt(b, int64(n), 10)
	}
	text("tier", r.Tier)
	if r.Trusted {
		b = append(b, `,"trusted":true`...)
	}
	text("user_agent", ctx.UserAgent())
	text("referer", page(ctx.Referer()))
	return l.appendHeaders(b, ctx)
}

// appendHeaders appends the chosen headers. A repeated header is logged twice, because
// rules refuse such a request.
func (l *Log) appendHeaders(b []byte, ctx *fasthttp.RequestCtx) []byte {
	before := len(b)
	for i := range l.redactor.headers {
		h := &l.redactor.headers[i]
		values := ctx.Request.Header.PeekAll(h.name)
		if len(values) == 0 {
			continue
		}
		if len(b) == before {
			b = append(b, `,"headers":{`...)
		} else {
			b = append(b, ',')
		}
		b = append(b, '"')
		b = append(b, h.name...)
		b = append(b, `":[`...)
		for j, value := range values {
			if j > 0 {
				b = append(b, ',')
			}
			b = AppendString(b, l.redactor.AppendHeader(nil, i, value))
		}
		b = append(b, ']')
	}
	if len(b) > before {
		b = append(b, '}')
	}
	return b
}

// AppendString appends a JSON string. A byte that is not UTF-8 becomes U+FFFD.
func AppendString(b, text []byte) []byte {
	const digits = "0123456789abcdef"
	b = append(b, '"')
	for len(text) > 0 {
		c, n := utf8.DecodeRune(text)
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', byte(c))
		case c < ' ' || c == 0x7f:
			b = append(b, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
		case c == utf8.RuneError && n == 1:
			b = append(b, `\ufffd`...)
		default:
			b = append(b, text[:n]...)
		}
		text = text[n:]
	}
	return append(b, '"')
}

// target returns the path as sent, and the query without its secrets. It does not use ctx.URI, whose
// normal form takes time in proportion to the square of a path of slashes.
func (l *Log) target(ctx *fasthttp.RequestCtx) []byte {
	target, _, _ := bytes.Cut(ctx.Request.Header.RequestURI(), []byte("#"))
	path, query, _ := bytes.Cut(target, []byte("?"))
	if _, rest, absolute := bytes.Cut(path, []byte("://")); absolute && path[0] != '/' {
		_, path, _ = bytes.Cut(rest, []byte("/"))
		path = append([]byte("/"), path...)
	} else {
		path = bytes.Clone(path)
	}
	if len(path) == 0 {
		path = append(path, '/')
	}
	return l.redactor.AppendQuery(path, query, '?')
}

// page returns a URL without its query, fragment and user.
func page(url []byte) []byte {
	if end := bytes.IndexAny(url, "?#"); end >= 0 {
		url = url[:end]
	}
	scheme, rest, ok := bytes.Cut(url, []byte("//"))
	host, _, _ := bytes.Cut(rest, []byte("/"))
	if at := bytes.LastIndexByte(host, '@'); ok && at >= 0 {
		url = slices.Concat(scheme, []byte("//"), rest[at+1:])
	}
	return url
}

// size returns the length of the response's body, -1 if unknown.
func size(ctx *fasthttp.RequestCtx) int {
	if ctx.Response.IsBodyStream() {
		return max(ctx.Response.Header.ContentLength(), -1)
	}
	return len(ctx.Response.Body())
}
