package replay

import (
	"bytes"
	"errors"

	"github.com/weir-edge/weir/pkg/paths"
)

var errNoTime = errors.New("has no time in brackets, as in [10/Oct/2000:13:55:36 -0700]")

// combined reads a line of the Combined or Common Log Format:
//
//	[vhost] client ident user [time] "request" status bytes ["referer" "user agent"] …
func (p *parser) combined(line []byte, e *entry, text *arena) (err error) {
	field, rest, _ := bytes.Cut(line, []byte(" "))
	if e.client, err = address(field); err != nil {
		// Perhaps a virtual host stands in front.
		second, after, _ := bytes.Cut(rest, []byte(" "))
		client, notClient := address(second)
		if notClient != nil {
			return err
		}
		e.host, e.client, rest = field, client, after
	}
	// The user may contain spaces.
	begin := bytes.IndexByte(rest, '[')
	if begin < 0 {
		return errNoTime
	}
	stamp, rest, closed := bytes.Cut(rest[begin+1:], []byte("]"))
	if !closed {
		return errNoTime
	}
	if e.time, err = p.timeOf(stamp); err != nil {
		return err
	}
	request, rest, ok := quoted(rest, text)
	if !ok {
		return errors.New(`has no request in quotes behind the time, as in "GET / HTTP/1.1"`)
	}
	var target []byte
	if e.method, target, err = requestLine(request); err != nil {
		return err
	}
	if err := e.setTarget(target, text); err != nil {
		return err
	}
	status, _, _ := bytes.Cut(bytes.TrimLeft(rest, " "), []byte(" "))
	e.status = statusOf(status)
	if i := bytes.IndexByte(rest, '"'); i >= 0 { // behind status and bytes
		rest = rest[i:]
		for _, name := range [...]string{"Referer", "User-Agent"} {
			var value []byte
			if value, rest, ok = quoted(rest, text); !ok {
				break
			}
			if len(value) > 0 && string(value) != "-" {
				e.headers = append(e.headers, header{[]byte(name), value})
			}
		}
	}
	return nil
}

// quoted reads a string in quotes, with a space in front or not. Apache escapes quotes
// and control characters as C does, nginx writes \xXX.
func quoted(b []byte, text *arena) (value, rest []byte, ok bool) {
	b = bytes.TrimLeft(b, " ")
	if len(b) == 0 || b[0] != '"' {
		return nil, b, false
	}
	b = b[1:]
	i := bytes.IndexAny(b, `"\`)
	if i >= 0 && b[i] == '"' {
		return b[:i], b[i+1:], true
	}
	start := len(text.buf)
	for i = 0; i < len(b); i++ {
		c := b[i]
		if c == '"' {
			return text.since(start), b[i+1:], true
		}
		if c == '\\' && i+1 < len(b) {
			i++
			c = unescaped(b[i])
			if b[i] == 'x' && i+2 < len(b) && paths.Unhex(b[i+1]) < 16 && paths.Unhex(b[i+2]) < 16 {
				c = paths.Unhex(b[i+1])<<4 | paths.Unhex(b[i+2])
				i += 2
			}
		}
		text.buf = append(text.buf, c)
	}
	return nil, nil, false
}

func unescaped(c byte) byte {
	switch c {
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	case 'v':
		return '\v'
	}
	return c
}
