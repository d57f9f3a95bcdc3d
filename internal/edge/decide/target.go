package decide

import (
	"bytes"
	"errors"
	"strings"
)

// ErrHost is the fault of a host that programs could read differently.
var ErrHost = errors.New("the host is neither a name nor an address, with or without a port")

var (
	errFragment = errors.New("the request target has a fragment")
	errTarget   = errors.New("the request target has a control character or a space; percent-encode it")
	errAsterisk = errors.New("the request target * is for OPTIONS only")
)

var errMethod = errors.New("the method is not one of HTTP's")

// ReadTarget reads a request target, in origin form or *, into r, and checks the method and
// the host that r already has. It is for protocols that did not parse the request
// themselves.
func (d *Decider) ReadTarget(r *Request, target []byte) error {
	switch {
	case !validMethod(r.Method):
		return errMethod
	case !ValidHost(r.Host):
		return ErrHost
	}
	if err := CheckTarget(target); err != nil {
		return err
	}
	path, query, _ := bytes.Cut(target, []byte("?"))
	r.Query = query
	if string(path) == "*" {
		return r.ReadAsterisk()
	}
	return d.ReadPath(r, path)
}

// validMethod reports whether a method is a token (RFC 9110).
func validMethod(method []byte) bool {
	const longest = 32
	for _, c := range method {
		if c <= ' ' || c >= 0x7f || strings.IndexByte(`"(),/:;<=>?@[\]{}`, c) >= 0 {
			return false
		}
	}
	return len(method) > 0 && len(method) <= longest
}

// CheckTarget rejects bytes that no request target contains.
func CheckTarget(target []byte) error {
	for _, c := range target {
		switch {
		case c == '#':
			return errFragment
		case c <= ' ' || c == 0x7f:
			return errTarget
		}
	}
	return nil
}

// ReadAsterisk reads the target *, whose rules are those of the path /*.
func (r *Request) ReadAsterisk() error {
	if string(r.Method) != "OPTIONS" {
		return errAsterisk
	}
	return r.Paths.Read([]byte("/*"))
}
