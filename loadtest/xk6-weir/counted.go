package weir

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// network is how many bits of a client's address a rule counts by.
type network struct{ ipv4, ipv6 int }

// networkOf returns the network that a key part names; known is false for other parts.
func networkOf(part string) (n network, known bool) {
	name, lengths, sized := strings.Cut(part, "/")
	var form string
	var into []any
	switch name {
	case "client_ip":
		n, form, into = network{32, 64}, "%d", []any{&n.ipv6}
	case "client_net":
		n, form, into = network{24, 48}, "%d/%d", []any{&n.ipv4, &n.ipv6}
	default:
		return n, false
	}
	if sized {
		_, err := fmt.Sscanf(lengths, form, into...)
		return n, err == nil
	}
	return n, true
}

// key returns the count that an address belongs to; anything that is not an address is
// itself a key.
func (n network) key(text string) string {
	a, err := netip.ParseAddr(text)
	if err != nil {
		return text
	}
	a = a.Unmap().WithZone("")
	bits := n.ipv4
	if a.Is6() {
		bits = n.ipv6
	}
	p, err := a.Prefix(bits)
	if err != nil || bits == a.BitLen() {
		return a.String()
	}
	return p.String()
}

// exemption is match.not of a rule: the requests that it does not count.
type exemption struct {
	Hosts   []string          `json:"hosts"`
	Paths   []string          `json:"paths"`
	Methods []string          `json:"methods"`
	Clients []string          `json:"clients"`
	Headers map[string]string `json:"headers"`
}

// exemptionOf reads the exemption from a rule's match, which may lack one.
func exemptionOf(match json.RawMessage) (*exemption, error) {
	var m struct {
		Not json.RawMessage `json:"not"`
	}
	if err := json.Unmarshal(match, &m); len(match) > 0 && err != nil {
		return nil, fmt.Errorf("match: %w", err)
	}
	if len(m.Not) == 0 || bytes.Equal(m.Not, []byte("null")) {
		return nil, nil
	}
	x := &exemption{}
	if err := strictly(m.Not, x); err != nil {
		return nil, fmt.Errorf("match.not: %w", err)
	}
	for i, text := range x.Clients {
		if a, err := netip.ParseAddr(text); err == nil {
			x.Clients[i] = netip.PrefixFrom(a, a.BitLen()).String()
		} else if _, err := netip.ParsePrefix(text); err != nil {
			return nil, fmt.Errorf("match.not.clients: %w", err)
		}
	}
	return x, nil
}

var errNoClient = errors.New("the rule exempts clients, and a request tells its client by X-Forwarded-For only; send it")

// exempts reports whether the rule does not count a request. All parts must hold.
func (x *exemption) exempts(method string, u *url.URL, header http.Header) (bool, error) {
	host := strings.ToLower(u.Hostname())
	if h := header.Get("Host"); h != "" {
		host, _, _ = strings.Cut(strings.ToLower(h), ":")
	}
	path := u.Path
	if path == "" {
		path = "/"
	}
	if x.Hosts != nil && !slices.ContainsFunc(x.Hosts, func(want string) bool {
		rest, wild := strings.CutPrefix(strings.ToLower(want), "*")
		return host == rest || wild && strings.HasSuffix(host, rest)
	}) || x.Paths != nil && !slices.ContainsFunc(x.Paths, func(want string) bool {
		rest, wild := strings.CutSuffix(want, "*")
		return path == rest || wild && strings.HasPrefix(path, rest)
	}) || x.Methods != nil && !slices.Contains(x.Methods, strings.ToUpper(method)) {
		return false, nil
	}
	for name, value := range x.Headers {
		if header.Get(name) != value {
			return false, nil
		}
	}
	if x.Clients == nil {
		return true, nil
	}
	forwarded := header.Get("X-Forwarded-For")
	client, err := netip.ParseAddr(strings.TrimSpace(forwarded[strings.LastIndexByte(forwarded, ',')+1:]))
	if err != nil {
		return false, errNoClient
	}
	return slices.ContainsFunc(x.Clients, func(want string) bool { return netip.MustParsePrefix(want).Contains(client.Unmap()) }), nil
}

// counted returns the key by which a rule counts a request, and whether it counts it.
func (r *Root) counted(id, key string, q *request) (string, bool, error) {
	r.mu.Lock()
	d, x := r.declared[id], r.exempt[id]
	r.mu.Unlock()
	if d.client != (network{}) {
		key = d.client.key(key)
	}
	if x == nil {
		return key, true, nil
	}
	exempt, err := x.exempts(q.method, q.url, q.params.header)
	return key, !exempt, err
}
