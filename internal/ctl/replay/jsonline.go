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

// fieldOf returns the field of a name, and the name's rank in the order of preference.
func fieldOf(name []byte) (field, int) {
	switch string(name) {
	case "time":
		return timeField, 0
	case "StartUTC":
		return timeField, 1
	case "ts":
		return timeField, 2
	case "timestamp":
		return timeField, 3
	case "@timestamp":
		return timeField, 4
	case "msec":
		return timeField, 5
	case "time_iso8601":
		return timeField, 6
	case "time_local":
		return timeField, 7
	case "client":
		return clientField, 0
	case "client_ip":
		return clientField, 1
	case "remote_ip":
		return clientField, 2
	case "remote_addr":
		return clientField, 3
	case "ClientHost":
		return clientField, 4
	case "target":
		return targetField, 0
	case "request_uri":
		return targetField, 1
	case "uri":
		return targetField, 2
	case "path":
		return targetField, 3
	case "url":
		return targetField, 4
	case "RequestPath":
		return targetField, 5
	case "query":
		return queryField, 0
	case "query_string":
		return queryField, 1
	case "args":
		return queryField, 2
	case "method":
		return methodField, 0
	case "request_method":
		return methodField, 1
	case "RequestMethod":
		return methodField, 2
	case "host":
		return hostField, 0
	case "http_host":
		return hostField, 1
	case "vhost":
		return hostField, 2
	case "RequestHost":
		return hostField, 3
	case "tier":
		return tierField, 0
	case "status":
		return statusField, 0
	case "status_code":
		return statusField, 1
	case "DownstreamStatus":
		return statusField, 2
	case "request":
		return requestField, 0
	case "headers":
		return headersField, 0
	case "user_agent":
		return userAgentField, 0
	case "referer", "referrer":
		return refererField, 0
	case "trusted":
		return trustedField, 0
	case "duration", "request_time":
		return secondsField, 0
	case "duration_ms":
		return millisecondsField, 0
	case "Duration":
		return nanosecondsField, 0
	}
	return noField, 0
}

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

// json reads a line of JSON.
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
		f, rank := fieldOf(name)
		switch {
		case string(raw) == "null":
		case f != noField && f < values:
			if l.ranks[f] == 0 || rank+1 < l.ranks[f] {
				l.values[f], l.ranks[f] = l.text.scalar(raw), rank+1
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
		method, asked, err := requestLine(l.request)
		if err != nil {
			return err
		}
		if l.ranks[targetField] == 0 {
			target, l.ranks[targetField] = asked, 1
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
