// Package ratelimit reads a response's limit headers: RateLimit and RateLimit-Policy
// (draft-ietf-httpapi-ratelimit-headers, structured fields of RFC 9651), and Retry-After
// (RFC 9110).
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
}

// State is an item of RateLimit.
type State struct {
	Name      string
	Remaining int64 // r
	Reset     int64 // t in seconds, -1: not stated
}

// ParsePolicies reads all lines of RateLimit-Policy.
func ParsePolicies(lines []string) ([]Policy, error) {
	return read("RateLimit-Policy", lines, "q", "w", func(name string, q, w int64) Policy { return Policy{name, q, w} })
}

// ParseStates reads all lines of RateLimit.
func ParseStates(lines []string) ([]State, error) {
	return read("RateLimit", lines, "r", "t", func(name string, r, t int64) State { return State{name, r, t} })
}

// read makes a T of each item: from its name, a required parameter and an optional one.
func read[T any](field string, lines []string, must, may string, value func(name string, must, may int64) T) ([]T, error) {
	items, err := parse(lines)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", field, err)
	}
	values := make([]T, 0, len(items))
	for _, item := range items {
		counts := [2]int64{-1, -1}
		for i, name := range []string{must, may} {
			p, ok := item.params[name]
			if ok && p < 0 {
				return nil, fmt.Errorf("%s: %s of %q is not a count", field, name, item.name)
			}
			if ok {
				counts[i] = p
			}
		}
		if counts[0] < 0 {
			return nil, fmt.Errorf("%s: %q has no %s", field, item.name, must)
		}
		values = append(values, value(item.name, counts[0], counts[1]))
	}
	return values, nil
}

// RetryAfter reads the header in either form, as seconds from now, rounded up. It
// returns -1 if it cannot be read.
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

// item is a String with parameters. A parameter that is not an Integer of 0 or more is
// -1.
type item struct {
	name   string
	params map[string]int64
}

var errItem = errors.New(`expected a list of strings in quotes, such as "default";r=1`)

// parse reads a list of String items with parameters. A header's lines form one list;
// an empty list returns none.
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

func (p *parser) params() (map[string]int64, error) {
	params := map[string]int64{}
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
			params[key] = -1 // a Boolean
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

// bare reads a bare item: an Integer, or -1 for anything else.
func (p *parser) bare() (int64, error) {
	if strings.HasPrefix(p.s, `"`) {
		_, err := p.str()
		return -1, err
	}
	if strings.HasPrefix(p.s, ":") { // a byte sequence in base64
		end := strings.IndexByte(p.s[1:], ':')
		if end < 0 {
			return -1, errors.New("a byte sequence does not end")
		}
		p.s = p.s[end+2:]
		return -1, nil
	}
	n := strings.IndexAny(p.s, ";, \t")
	if n < 0 {
		n = len(p.s)
	}
	text := p.s[:n]
	p.s = p.s[n:]
	if text == "" {
		return -1, errors.New("has no value")
	}
	number, err := strconv.ParseUint(text, 10, 63)
	if err != nil || len(text) > 15 {
		return -1, nil
	}
	return int64(number), nil
}

func isLower(c byte) bool { return c >= 'a' && c <= 'z' }
func isDigit(c byte) bool { return c >= '0' && c <= '9' }
