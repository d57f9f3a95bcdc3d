package replay

import (
	"bytes"
	"errors"
	"fmt"
)

// A node reads a request target with fasthttp and pkg/paths. This file does the same
// without linking an HTTP server into regionctl; a test compares the two on arbitrary
// targets.

var (
	errFragment = errors.New("the target has a fragment, which a node answers with 400")
	errControl  = errors.New("the target has a control character, which a node answers with 400")
)

// setTarget reads a request target: a path, a URL (whose host then counts), *, or the
// argument of CONNECT. e.method must be set.
func (e *entry) setTarget(target []byte, text *arena) error {
	for _, c := range target {
		switch {
		case c == '#':
			return errFragment
		case c < ' ' || c == 0x7f:
			return errControl
		}
	}
	switch {
	case len(target) == 0:
		return errors.New("the target is empty")
	case target[0] == '/':
	case string(target) == "*" || string(e.method) == "CONNECT" && !bytes.Contains(target, []byte("://")):
	default:
		scheme, rest, ok := bytes.Cut(target, []byte("://"))
		if !ok || !isScheme(scheme) {
			return fmt.Errorf("target %s is neither a path nor a URL", quote(target))
		}
		end := bytes.IndexAny(rest, "/?")
		if end < 0 {
			end = len(rest)
		}
		e.host = rest[bytes.LastIndexByte(rest[:end], '@')+1 : end]
		target = rest[end:]
	}
	path, query, _ := bytes.Cut(target, []byte("?"))
	e.query = query
	if e.path = path; len(path) == 0 || path[0] != '/' {
		start := len(text.buf)
		text.buf = append(append(text.buf, '/'), path...)
		e.path = text.since(start)
	}
	return nil
}

func isScheme(s []byte) bool {
	for i, c := range s {
		letter := c|0x20 >= 'a' && c|0x20 <= 'z'
		if !letter && (i == 0 || (c < '0' || c > '9') && c != '+' && c != '-' && c != '.') {
			return false
		}
	}
	return len(s) > 0
}
