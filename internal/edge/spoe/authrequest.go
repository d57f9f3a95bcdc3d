package spoe

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/weir-edge/weir/internal/edge/decide"
	"github.com/weir-edge/weir/pkg/limiter/rules"
)

// authRequest is HAProxy's description of one request. A connection reuses one: nothing of it
// may be retained.
type authRequest struct {
	decide.Request
	headers [][2][]byte // names in lower case, and values, in order
	values  [][]byte    // what Header returned
	name    []byte      // scratch: of a header, in lower case
	target  []byte
	seen    [arguments]bool
}

// The arguments of the message.
const (
	argClient = iota
	argMethod
	argTarget
	argHeaders
	arguments
)

var argNames = [arguments]string{"client", "method", "target", "headers"}

// keptHeaders is room for how many headers a connection keeps between requests. HAProxy allows
// 101 by default.
const keptHeaders = 256

func (q *authRequest) reset() {
	q.Reset()
	clear(q.headers)
	if cap(q.headers) > keptHeaders { // a frame of tiny headers takes 16 times its size here
		q.headers = nil
	}
	q.headers, q.target, q.seen = q.headers[:0], nil, [arguments]bool{}
}

var errMessages = errors.New("the frame must have one message")

// read fills in what HAProxy states. A status as the error means that the frame is not
// SPOP; any other error names what the configuration of HAProxy leaves unclear.
func (q *authRequest) read(p reader) (unclear, err error) {
	if _, err := p.text(); err != nil { // the message's name
		return nil, err
	}
	n, err := p.octet()
	if err != nil {
		return nil, err
	}
	for range n {
		name, v, err := p.pair()
		if err != nil {
			return nil, err
		}
		if fault := q.argument(name, v); fault != nil && unclear == nil {
			unclear = fault
		}
	}
	switch {
	case unclear != nil:
		return unclear, nil
	case len(p) > 0:
		return errMessages, nil
	}
	for i, seen := range q.seen {
		if !seen {
			return fmt.Errorf("argument %s is required: add it to the spoe-message", argNames[i]), nil
		}
	}
	return q.checkHost(), nil
}

func (q *authRequest) argument(name []byte, v value) error {
	i := 0
	for i < arguments && string(name) != argNames[i] {
		i++
	}
	switch {
	case i == arguments:
		return fmt.Errorf("argument %.32q is unknown; the spoe-message must have client, method, target and headers", name)
	case q.seen[i]:
		return fmt.Errorf("argument %s occurs twice", argNames[i])
	}
	q.seen[i] = true
	ok := v.kind == typeString
	switch i {
	case argClient:
		var a netip.Addr
		a, ok = netip.AddrFromSlice(v.text)
		ok = ok && (v.kind == typeIPv4 || v.kind == typeIPv6)
		q.Source = a.Unmap()
	case argMethod:
		q.Method = v.text
	case argTarget:
		q.target = v.text
	case argHeaders:
		ok = v.kind == typeBinary && q.readHeaders(v.text)
	}
	if !ok {
		return fmt.Errorf("argument %s must be %s", argNames[i], [arguments]string{"src", "method", "pathq", "req.hdrs_bin"}[i])
	}
	return nil
}

// readHeaders reads the format of req.hdrs_bin: names and values, each preceded by its
// length, and two empty ones at the end.
func (q *authRequest) readHeaders(r reader) bool {
	for {
		name, err := r.text()
		if err != nil {
			return false
		}
		v, err := r.text()
		switch {
		case err != nil || !decide.Lower(name):
			return false
		case len(name) == 0:
			return len(v) == 0 && len(r) == 0
		}
		q.headers = append(q.headers, [2][]byte{name, v})
	}
}

// checkHeaders rejects a header that the origin could read differently from the rules.
func (q *authRequest) checkHeaders(d *decide.Decider) error {
	for _, h := range q.headers {
		if err := decide.CheckValue(h[0], h[1]); err != nil {
			return err
		}
		if err := decide.CheckName(d, &q.Request, h[0]); err != nil {
			return err
		}
	}
	return nil
}

func (q *authRequest) checkHost() error {
	hosts := q.Header("Host")
	if len(hosts) != 1 {
		return fmt.Errorf("argument headers must have one host (got %d)", len(hosts))
	}
	q.Host = hosts[0]
	return nil
}

var _ decide.Fields = (*authRequest)(nil)

// Header implements decide.Fields.
func (q *authRequest) Header(name string) [][]byte {
	q.name = decide.AppendLower(q.name[:0], name)
	q.values = q.values[:0]
	for _, h := range q.headers {
		if string(h[0]) == string(q.name) {
			q.values = append(q.values, h[1])
		}
	}
	return q.values
}

// Cookie implements decide.Fields.
func (q *authRequest) Cookie(name string) ([]byte, int) {
	return rules.Cookie(q.Header("Cookie"), name)
}
