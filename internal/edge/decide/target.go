package decide

import (
	"errors"
)

// ErrHost is the fault of a host that programs could read differently.
var ErrHost = errors.New("the host is neither a name nor an address, with or without a port")

var (
	errFragment = errors.New("the request target has a fragment")
	errTarget   = errors.New("the request target has a control character or a space; percent-encode it")
	errAsterisk = errors.New("the request target * is for OPTIONS only")
)

// CheckTarget refuses the bytes that no request target has.
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
