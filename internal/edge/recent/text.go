package recent

import (
	"bytes"
	"net/netip"
	"strconv"
	"time"

	"github.com/weir-edge/weir/internal/edge/accesslog"
	"github.com/weir-edge/weir/internal/edge/decide"
)

// The text of a slot is a sequence of values, each preceded by its length in a byte:
// method, host, tier, the rules that refused, path, query, and then the headers, each
// preceded by its index.

// The longest values. A longer value that rules count by is cut and ends in its hash, so
// that it stays distinct from others with the same beginning.
const (
	longestMethod = 24
	longestHost   = 100
	longestTier   = 48
	longestRules  = 64
	longestPath   = 200
	longestHeader = 64
	hashed        = 17 // "~" and 16 digits
)

// describe encodes a request.
func (g *Ring) describe(s *slot, r *decide.Request) {
	held := g.scratch.Get().(*[]byte)
	b := *held
	w := writer{slot: s}
	w.put(r.Method[:min(len(r.Method), longestMethod)])
	b = g.clip(b[:0], r.Host, longestHost)
	w.put(b)
	b = g.clip(b[:0], r.Tier, longestTier)
	w.put(b)
	b = b[:0]
	for i := range r.Decision.Results {
		if i < len(r.Match.Checks) && r.Decision.Results[i].Refuses(&r.Match.Checks[i]) {
			if len(b) > 0 {
				b = append(b, ' ')
			}
			b = append(b, r.Match.Rules[i].ID...)
		}
	}
	w.put(b[:min(len(b), longestRules)])
	b = g.clip(b[:0], r.ForwardedPath, longestPath)
	w.put(b)
	b = g.redactor.AppendQuery(b[:0], r.Query, '?')
	w.put(b)
	for i, name := range g.headers {
		for _, value := range r.Fields.Header(name) {
			b = g.redactor.AppendHeader(append(b[:0], byte(i)), i, value)
			if len(b) > 1+longestHeader {
				b = append(b[:1], g.redactor.AppendHash(b, b[1:])[len(b):]...)
			}
			w.put(b)
		}
	}
	s.length = uint16(w.n)
	if w.cut {
		s.flags |= isCut
	}
	*held = b[:0]
	g.scratch.Put(held)
}

// clip appends a value or, if it is too long, its beginning and its hash.
func (g *Ring) clip(b, value []byte, longest int) []byte {
	if len(value) <= longest {
		return append(b, value...)
	}
	begin := value[:longest-hashed]
	if at := bytes.LastIndexByte(begin, '%'); at >= len(begin)-2 && at >= 0 { // not within %XX
		begin = begin[:at]
	}
	return g.redactor.AppendHash(append(b, begin...), value)
}

// writer writes values into a slot.
type writer struct {
	*slot
	n   int
	cut bool
}

func (w *writer) put(value []byte) {
	const longest = 255
	if len(value) > longest || w.n+1+len(value) > room {
		w.cut = true
		if value = nil; w.n == room {
			return
		}
	}
	w.text[w.n] = byte(len(value))
	w.n += 1 + copy(w.text[w.n+1:], value)
}

// take returns the first value, and those after it.
func take(text []byte) (value, rest []byte) {
	if len(text) == 0 {
		return nil, nil
	}
	n := 1 + int(text[0])
	return text[1:n], text[n:]
}

func (s *slot) address() netip.Addr {
	a := netip.AddrFrom16(s.client)
	if s.flags&isIPv4 != 0 {
		return a.Unmap()
	}
	return a
}

// append appends a slot as a JSON line that regionctl rules test reads.
func (g *Ring) append(b []byte, s *slot) []byte {
	text := func(name string, value []byte) {
		if len(value) > 0 {
			b = append(append(append(b, `,"`...), name...), `":`...)
			b = accesslog.AppendString(b, value)
		}
	}
	// The time comes first and has a fixed length, so that lines of several nodes can be
	// merged as text.
	b = append(b, `{"time":"`...)
	b = time.UnixMicro(s.began).UTC().AppendFormat(b, TimeFormat)
	b = append(b, `","client":"`...)
	b = s.address().AppendTo(b)
	b = append(b, '"')
	method, rest := take(s.text[:s.length])
	host, rest := take(rest)
	tier, rest := take(rest)
	refused, rest := take(rest)
	path, rest := take(rest)
	query, rest := take(rest)
	text("method", method)
	text("host", host)
	if len(path) == 0 {
		path = []byte{'*'}
	}
	text("target", append(bytes.Clone(path), query...))
	if s.status > 0 {
		b = append(b, `,"status":`...)
		b = strconv.AppendUint(b, uint64(s.status), 10)
	}
	text("tier", tier)
	if s.flags&isTrusted != 0 {
		b = append(b, `,"trusted":true`...)
	}
	b = g.appendHeaders(b, rest)
	if s.took >= 0 {
		b = append(b, `,"duration_ms":`...)
		b = strconv.AppendFloat(b, float64(s.took)/1e3, 'f', 3, 64)
	}
	b = append(b, `,"verdict":"`...)
	b = append(append(b, kindNames[s.verdict]...), '"')
	text("rules", refused)
	if s.flags&isCut != 0 {
		b = append(b, `,"cut":true`...)
	}
	return append(b, "}\n"...)
}

const TimeFormat = "2006-01-02T15:04:05.000000Z"

func (g *Ring) appendHeaders(b, rest []byte) []byte {
	last := -1
	for len(rest) > 0 {
		var value []byte
		if value, rest = take(rest); len(value) == 0 {
			continue
		}
		switch i := int(value[0]); {
		case i == last:
			b = append(b, ',')
		case last < 0:
			b = append(b, `,"headers":{"`...)
			b = append(append(b, g.headers[i]...), `":[`...)
			last = i
		default:
			b = append(b, `],"`...)
			b = append(append(b, g.headers[i]...), `":[`...)
			last = i
		}
		b = accesslog.AppendString(b, value[1:])
	}
	if last >= 0 {
		b = append(b, "]}"...)
	}
	return b
}
