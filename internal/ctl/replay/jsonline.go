package replay

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// field is the meaning of a member of a JSON line.
type field uint8

const (
	noField field = iota
	timeField
	clientField
	targetField
	queryField
	methodField
	hostField
	tierField
	statusField
	requestField
	headersField
	userAgentField
	refererField
	trustedField
	secondsField
	millisecondsField
	nanosecondsField

	// values are the fields that are kept until the whole line is read, because the
	// preferred of several names counts.
	values = requestField
)

// fieldNames are the names of each field, in the order of preference.
var fieldNames = [...][]string{
	timeField:         {"time", "StartUTC", "ts", "timestamp", "@timestamp", "msec", "time_iso8601", "time_local"},
	clientField:       {"client", "client_ip", "remote_ip", "remote_addr", "ClientHost"},
	targetField:       {"target", "request_uri", "uri", "path", "url", "RequestPath"},
	queryField:        {"query", "query_string", "args"},
	methodField:       {"method", "request_method", "RequestMethod"},
	hostField:         {"host", "http_host", "vhost", "RequestHost"},
	tierField:         {"tier"},
	statusField:       {"status", "status_code", "DownstreamStatus"},
	requestField:      {"request"},
	headersField:      {"headers"},
	userAgentField:    {"user_agent"},
	refererField:      {"referer", "referrer"},
	trustedField:      {"trusted"},
	secondsField:      {"duration", "request_time"},
	millisecondsField: {"duration_ms"},
	nanosecondsField:  {"Duration"},
}

// ranked is a field, and the rank of one of its names, from 1 on.
type ranked struct {
	field field
	rank  int
}

var fieldsByName = func() map[string]ranked {
	all := map[string]ranked{}
	for f, list := range fieldNames {
		for i, name := range list {
			all[name] = ranked{field(f), i + 1}
		}
	}
	return all
}()

// jsonLine is a line being read.
type jsonLine struct {
	*entry
	text    *arena
	values  [values][]byte
	ranks   [values]int // 0: none yet
	request []byte      // a request line
	flat    []header    // headers that are fields of their own
	nested  bool        // headers is there
}

func (p *parser) json(line []byte, e *entry, text *arena) error {
	if !json.Valid(line) {
		return notJSON(line)
	}
	if line[0] != '{' {
		return errors.New("is not a JSON object")
	}
	l := &p.line
	*l = jsonLine{entry: e, text: text, flat: l.flat[:0]}
	if err := l.read(line, true); err != nil {
		return err
	}
	return p.complete(l)
}

func notJSON(line []byte) error {
	var anything json.RawMessage
	err := json.Unmarshal(line, &anything)
	if bytes.Contains(line, []byte(`\x`)) {
		return fmt.Errorf("is not JSON: %w; nginx writes it with log_format … escape=json", err)
	}
	return fmt.Errorf("is not JSON: %w", err)
}

// read takes the members of an object, which must be valid JSON.
func (l *jsonLine) read(object []byte, outermost bool) (err error) {
	for name, raw := range members(object) {
		name = l.text.unquoted(name)
		known := fieldsByName[string(name)]
		f := known.field
		switch {
		case string(raw) == "null":
		case f != noField && f < values:
			if l.ranks[f] == 0 || known.rank < l.ranks[f] {
				l.values[f], l.ranks[f] = l.text.scalar(raw), known.rank
			}
		case f == requestField && raw[0] == '{' && outermost:
			err = l.read(raw, false)
		case f == requestField && raw[0] == '"':
			l.request = l.text.unquoted(raw)
		case f == headersField && raw[0] == '{':
			l.nested = true
			l.readHeaders(raw)
		case f == userAgentField:
			l.addFlat([]byte("User-Agent"), raw)
		case f == refererField:
			l.addFlat([]byte("Referer"), raw)
		case f == trustedField:
			l.trusted = string(raw) == "true"
		case f == secondsField:
			l.duration = durationOf(l.text.scalar(raw), time.Second)
		case f == millisecondsField:
			l.duration = durationOf(l.text.scalar(raw), time.Millisecond)
		case f == nanosecondsField:
			l.duration = durationOf(l.text.scalar(raw), time.Nanosecond)
		case bytes.HasPrefix(name, []byte("http_")):
			start := len(l.text.buf)
			for _, c := range name[len("http_"):] {
				if c == '_' {
					c = '-'
				}
				l.text.buf = append(l.text.buf, c)
			}
			l.addFlat(l.text.since(start), raw)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// addFlat handles a header that is a field of its own. Servers write an absent one as - or
// as nothing.
func (l *jsonLine) addFlat(name, raw []byte) {
	if v := l.text.scalar(raw); len(v) > 0 && string(v) != "-" {
		l.flat = append(l.flat, header{name, v})
	}
}

func (l *jsonLine) readHeaders(object []byte) {
	for name, raw := range members(object) {
		name = l.text.unquoted(name)
		switch {
		case string(raw) == "null":
		case raw[0] == '[':
			for item := range items(raw) {
				l.headers = append(l.headers, header{name, l.text.scalar(item)})
			}
		default:
			l.headers = append(l.headers, header{name, l.text.scalar(raw)})
		}
	}
}

// complete builds the entry from what was read.
func (p *parser) complete(l *jsonLine) (err error) {
	e := l.entry
	for _, needed := range [...]struct {
		field field
		name  string
	}{{timeField, "time"}, {clientField, "client"}} {
		if l.ranks[needed.field] == 0 {
			return fmt.Errorf("has no %s", needed.name)
		}
	}
	if e.time, err = p.timeOf(l.values[timeField]); err != nil {
		return err
	}
	if e.client, err = address(l.values[clientField]); err != nil {
		return err
	}
	if !l.nested {
		e.headers = append(e.headers, l.flat...)
	}
	e.host, e.tier, e.method = l.values[hostField], l.values[tierField], l.values[methodField]
	e.status = statusOf(l.values[statusField])
	target := l.values[targetField]
	if l.request != nil && (l.ranks[targetField] == 0 || l.ranks[methodField] == 0) {
		method, requested, err := requestLine(l.request)
		if err != nil {
			return err
		}
		if l.ranks[targetField] == 0 {
			target, l.ranks[targetField] = requested, 1
		}
		if l.ranks[methodField] == 0 {
			e.method = method
		}
	}
	if l.ranks[targetField] == 0 {
		return errors.New("has no target (or path, uri, request)")
	}
	if len(e.method) == 0 {
		e.method = []byte("GET")
	} else if !isToken(e.method) {
		return fmt.Errorf("%s is not a method; nodes answer it with 400", quote(e.method))
	}
	if err := e.setTarget(target, l.text); err != nil {
		return err
	}
	if len(e.query) == 0 {
		e.query = bytes.TrimPrefix(l.values[queryField], []byte("?"))
	}
	return nil
}
