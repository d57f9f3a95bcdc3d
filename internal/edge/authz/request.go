package authz

import (
	"errors"
	"fmt"
	"net/netip"
	"unsafe"

	"github.com/weir-edge/weir/internal/edge/decide"
	"github.com/weir-edge/weir/pkg/limiter/rules"
)

// The paths of a call's parts, in messages.
const (
	atHTTP   = "attributes.request.http"
	atSource = "attributes.source.address.socket_address.address"
)

var (
	errMessage = errors.New("the message is not a CheckRequest of envoy.service.auth.v3, or the method, path, host or a header in it is not UTF-8")
	errHeaders = errors.New("the header of the request is too large")
	errNoHTTP  = errors.New(atHTTP + ": is missing: Envoy's HTTP filter states the request there, its network filter does not")
	errBoth    = errors.New(atHTTP + ": has headers and header_map; send one of them")
	errQuery   = errors.New(atHTTP + ".query: must be empty: the query belongs to path")
)

// read fills in what Envoy states. Missing or contradictory data is an error, and nothing
// is charged then.
func (c *call) read() (err error) {
	q := &c.request
	switch {
	case c.malformed:
		return errMessage
	case !q.http:
		return errNoHTTP
	case len(q.query) > 0 || len(q.fragment) > 0:
		return errQuery
	case len(q.joined) > 0 && len(q.raw) > 0:
		return errBoth
	case len(q.host) == 0:
		return fmt.Errorf("%s.host: is empty", atHTTP)
	}
	if c.Source, err = addressOf(q.source); err != nil {
		return err
	}
	if err := c.checkHeaders(len(q.method) + len(q.path)); err != nil {
		return err
	}
	c.Method, c.Host = bytesOf(q.method), bytesOf(q.host)
	return c.service.Decider.ReadTarget(&c.Request, bytesOf(q.path))
}

func addressOf(text string) (netip.Addr, error) {
	a, err := netip.ParseAddr(text)
	if err != nil {
		return a, fmt.Errorf("%s: must be the address of Envoy's client (got %.64q)", atSource, text)
	}
	return a.WithZone("").Unmap(), nil
}

// checkHeaders rejects too many headers, names that lookups would not find or that the origin
// could take for others, and values that it could read differently.
func (c *call) checkHeaders(size int) error {
	for name, value := range c.request.joined {
		if err := c.checkField(name, bytesOf(value)); err != nil {
			return err
		}
		size += len(name) + len(value)
	}
	for _, h := range c.request.raw {
		if err := c.checkField(h.name, h.value()); err != nil {
			return err
		}
		size += len(h.name) + len(h.text) + len(h.raw)
	}
	if size > c.service.MaxHeaders {
		return errHeaders
	}
	return nil
}

func (c *call) checkField(name string, value []byte) error {
	if name == "" || !decide.Lower(name) {
		return fmt.Errorf("%s.headers: %.64q is not the name of a header in lower case", atHTTP, name)
	}
	if err := decide.CheckValue(name, value); err != nil {
		return err
	}
	return decide.CheckName(c.service.Decider, &c.Request, name)
}

var _ decide.Fields = (*call)(nil)

// Header implements decide.Fields.
func (c *call) Header(name string) [][]byte {
	c.values = c.values[:0]
	if name == "Host" {
		return append(c.values, c.Host)
	}
	c.name = decide.AppendLower(c.name[:0], name)
	if value, ok := c.request.joined[string(c.name)]; ok {
		c.split(name, bytesOf(value))
	}
	for _, h := range c.request.raw {
		if h.name == string(c.name) {
			c.values = append(c.values, h.value())
		}
	}
	return c.values
}

// split undoes how Envoy joins a header that occurs several times: with a comma and no
// space. Lists that clients send usually have spaces. If there is none, the header counts
// as several, and rules that read it refuse the request: the origin might read only one
// value, and a client could vary the others. Address lists are lists in any case, and the
// other two headers never affect what an origin lets a client do.
func (c *call) split(name string, value []byte) {
	switch name {
	case "User-Agent", "Content-Type", "X-Forwarded-For":
		c.values = append(c.values, value)
		return
	}
	start := 0
	for i := range value {
		if value[i] == ',' && (i+1 == len(value) || value[i+1] != ' ') {
			c.values = append(c.values, value[start:i])
			start = i + 1
		}
	}
	c.values = append(c.values, value[start:])
}

// Cookie implements decide.Fields.
func (c *call) Cookie(name string) (value []byte, n int) {
	if line, ok := c.request.joined["cookie"]; ok {
		value, n = rules.FindCookie(bytesOf(line), name, value, n)
	}
	for _, h := range c.request.raw {
		if h.name == "cookie" {
			value, n = rules.FindCookie(h.value(), name, value, n)
		}
	}
	return value, n
}

// bytesOf returns the bytes of a string of the call, which must not be changed.
func bytesOf(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }
