// Package ratelimit reads what a response says about limits: RateLimit and
// RateLimit-Policy (draft-ietf-httpapi-ratelimit-headers, structured fields of RFC 9651),
// and Retry-After (RFC 9110).
package ratelimit

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Policy is an item of RateLimit-Policy.
type Policy struct {
	Name   string
	Quota  int64 // q
	Window int64 // w in seconds, -1: not stated
	// Partition is pk, undecoded; empty: not stated.
	Partition string
	Unit      string // qu
}

// State is an item of RateLimit.
type State struct {
	Name      string
	Remaining int64 // r
	Reset     int64 // t in seconds, -1: not stated
	Partition string
}

// ParsePolicies reads all lines of RateLimit-Policy.
func ParsePolicies(lines []string) ([]Policy, error) {
	items, err := parse(lines)
	if err != nil {
		return nil, fmt.Errorf("RateLimit-Policy: %w", err)
	}
	policies := make([]Policy, 0, len(items))
	for _, item := range items {
		p := Policy{Name: item.name, Window: -1, Partition: item.params["pk"].text, Unit: item.params["qu"].text}
		q, ok := item.params["q"]
		if !ok || !q.isInt || q.number < 0 {
			return nil, fmt.Errorf("RateLimit-Policy: %q has no quota q", item.name)
		}
		p.Quota = q.number
		if w, ok := item.params["w"]; ok {
			if !w.isInt || w.number < 0 {
				return nil, fmt.Errorf("RateLimit-Policy: w of %q is not a count of seconds", item.name)
			}
			p.Window = w.number
		}
		policies = append(policies, p)
	}
	return policies, nil
}

// ParseStates reads all lines of RateLimit.
func ParseStates(lines []string) ([]State, error) {
	items, err := parse(lines)
	if err != nil {
		return nil, fmt.Errorf("RateLimit: %w", err)
	}
	states := make([]State, 0, len(items))
	for _, item := range items {
		s := State{Name: item.name, Reset: -1, Partition: item.params["pk"].text}
		r, ok := item.params["r"]
		if !ok || !r.isInt || r.number < 0 {
			return nil, fmt.Errorf("RateLimit: %q has no remaining r", item.name)
		}
		s.Remaining = r.number
		if t, ok := item.params["t"]; ok {
			if !t.isInt || t.number < 0 {
				return nil, fmt.Errorf("RateLimit: t of %q is not a count of seconds", item.name)
			}
			s.Reset = t.number
		}
		states = append(states, s)
	}
	return states, nil
}

// RetryAfter reads the header in either form, as seconds from now, rounded up. It
// returns -1 if there is none that can be read.
func RetryAfter(value string, now time.Time) int64 {
	value = strings.TrimSpace(value)
	if n, err := strconv.ParseUint(value, 10, 31); err == nil {
		return int64(n)
	}
	if at, err := http.ParseTime(value); err == nil {
		return max(0, int64((at.Sub(now)+time.Second-1)/time.Second))
	}
	return -1
}

// param is the value of a parameter: an integer, or anything else as text.
type param struct {
	number int64
	isInt  bool
	text   string
}

type item struct {
	name   string
	params map[string]param
}

var errItem = errors.New(`expected a list of strings in quotes, such as "default";r=1`)

// parse reads a list of String items with parameters. The lines of a header are one
// list; an empty one is none.
func parse(lines []string) ([]item, error) {
	p := parser{s: strings.Trim(strings.Join(lines, ", "), " ")}
	var items []item
	for p.s != "" {
		name, err := p.str()
		if err != nil {
			return nil, err
		}
		params, err := p.params()
		if err != nil {
			return nil, err
		}
		items = append(items, item{name, params})
		p.spaces()
		if p.s == "" {
			return items, nil
		}
		if p.s[0] != ',' {
			return nil, errItem
		}
		p.s = p.s[1:]
		p.spaces()
		if p.s == "" {
			return nil, errors.New("ends in a comma")
		}
	}
	return items, nil
}

type parser struct{ s string }

func (p *parser) spaces() { p.s = strings.TrimLeft(p.s, " \t") }

// str reads a String: printable ASCII in quotes, with \" and \\.
func (p *parser) str() (string, error) {
	if p.s == "" || p.s[0] != '"' {
		return "", errItem
	}
	var b strings.Builder
	for i := 1; i < len(p.s); i++ {
		switch c := p.s[i]; {
		case c == '"':
			p.s = p.s[i+1:]
			return b.String(), nil
		case c == '\\':
			i++
			if i == len(p.s) || (p.s[i] != '"' && p.s[i] != '\\') {
				return "", errors.New(`a backslash escapes only " and \`)
			}
			b.WriteByte(p.s[i])
		case c < 0x20 || c > 0x7e:
			return "", errors.New("a string holds printable ASCII only")
		default:
			b.WriteByte(c)
		}
	}
	return "", errors.New("a string does not end")
}

func (p *parser) params() (map[string]param, error) {
	params := map[string]param{}
	for strings.HasPrefix(p.s, ";") {
		p.s = strings.TrimLeft(p.s[1:], " ")
		n := 0
		for n < len(p.s) && (isLower(p.s[n]) || p.s[n] == '*' || (n > 0 && (isDigit(p.s[n]) || strings.IndexByte("_-.", p.s[n]) >= 0))) {
			n++
		}
		if n == 0 {
			return nil, errors.New("a parameter has no name")
		}
		key := p.s[:n]
		p.s = p.s[n:]
		if !strings.HasPrefix(p.s, "=") {
			params[key] = param{text: "?1"}
			continue
		}
		p.s = p.s[1:]
		v, err := p.bare()
		if err != nil {
			return nil, fmt.Errorf("parameter %s: %w", key, err)
		}
		params[key] = v // the last one counts
	}
	return params, nil
}

// bare reads a bare item. What is neither Integer nor String is kept as text.
func (p *parser) bare() (param, error) {
	if strings.HasPrefix(p.s, `"`) {
		text, err := p.str()
		return param{text: text}, err
	}
	if strings.HasPrefix(p.s, ":") { // a byte sequence in base64
		end := strings.IndexByte(p.s[1:], ':')
		if end < 0 {
			return param{}, errors.New("a byte sequence does not end")
		}
		text := p.s[:end+2]
		p.s = p.s[end+2:]
		return param{text: text}, nil
	}
	n := strings.IndexAny(p.s, ";, \t")
	if n < 0 {
		n = len(p.s)
	}
	text := p.s[:n]
	p.s = p.s[n:]
	if text == "" {
		return param{}, errors.New("has no value")
	}
	digits := strings.TrimPrefix(text, "-")
	if digits != "" && len(digits) <= 15 && strings.Trim(digits, "0123456789") == "" {
		number, err := strconv.ParseInt(text, 10, 64)
		return param{number: number, isInt: err == nil, text: text}, err
	}
	return param{text: text}, nil
}

func isLower(c byte) bool { return c >= 'a' && c <= 'z' }
func isDigit(c byte) bool { return c >= '0' && c <= '9' }
