package nginx

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/weir-edge/weir/pkg/limiter/rules"
)

// counted is what a zone counts, in the terms of rules.
type counted struct {
	key     []string
	missing string
	match   rules.Conditions
	not     rules.Conditions
	differs []string // how it differs from the zone
}

// count translates the key of a zone. An error says why it cannot be translated.
func (c *config) count(z *zone) (*counted, error) {
	out := &counted{key: []string{}}
	key := z.key
	if len(key) == 1 && key[0].variable {
		if v := c.variables[key[0].text]; v != nil {
			var err error
			if key, err = c.guard(v, out); err != nil {
				return nil, err
			}
		}
	}
	optional := 0
	for _, s := range key {
		if !s.variable {
			continue // the same for all requests
		}
		part, err := out.part(s.text)
		if err != nil {
			return nil, err
		}
		if part == "" || slices.Contains(out.key, part) {
			continue
		}
		if strings.Contains(part, ":") {
			optional++
		}
		out.key = append(out.key, part)
	}
	if optional > 0 && len(key) > 1 {
		out.missing = "limit" // nginx skips a request only if all parts are empty
		if optional == len(key) {
			out.differs = append(out.differs, "requests that have no part of the key are counted together; nginx does not count them")
		}
	}
	return out, nil
}

// part returns the key part for a variable, or "" if the variable never varies.
func (o *counted) part(name string) (string, error) {
	switch name {
	case "binary_remote_addr", "remote_addr":
		return "client_ip/128", nil // nginx distinguishes all addresses of an IPv6 network
	case "host", "http_host":
		return "host", nil
	case "server_name":
		o.differs = append(o.differs, "$server_name: each host that a client names is counted separately, not all names of a server together")
		return "host", nil
	case "request_method":
		return "method", nil
	case "uri", "document_uri":
		return "path", nil
	case "request_uri":
		o.differs = append(o.differs, "$request_uri: the path is counted without the query")
		return "path", nil
	case "scheme", "server_addr", "server_port", "server_protocol", "hostname":
		o.differs = append(o.differs, "$"+name+": is left out of the key")
		return "", nil
	}
	for prefix, kind := range map[string]string{"http_": "header:", "cookie_": "cookie:", "arg_": "query:"} {
		if rest, ok := strings.CutPrefix(name, prefix); ok && rest != "" {
			if kind == "header:" {
				rest = http.CanonicalHeaderKey(strings.ReplaceAll(rest, "_", "-"))
			}
			return kind + rest, nil
		}
	}
	return "", fmt.Errorf("rules cannot count by $%s", name)
}

// guard translates a key that a map or geo makes empty for some requests, which nginx then
// does not count. For all others it must be the same expression, which guard returns.
func (c *config) guard(v *variable, out *counted) (expression, error) {
	source, cases, standard := v, v.cases, v.standard
	// geo $outside { default 1; 10.0.0.0/8 0; } map $outside $key { 0 ""; 1 $binary_remote_addr; }
	if len(v.source) == 1 && !v.geo {
		if inner := c.variables[v.source[0].text]; inner != nil {
			if !inner.geo {
				return nil, fmt.Errorf("the map of $%s reads another map", v.name)
			}
			source, cases = inner, nil
			standard = v.of(inner.standard.String())
			for _, one := range inner.cases {
				one.result = v.of(one.result.String())
				cases = append(cases, one)
			}
		}
	}
	var key expression
	see := func(e expression) error {
		if len(e) > 0 && len(key) > 0 && e.String() != key.String() {
			return fmt.Errorf("$%s has several keys: %s and %s", v.name, key, e)
		}
		if len(e) > 0 {
			key = e
		}
		return nil
	}
	if err := see(standard); err != nil {
		return nil, err
	}
	side := &out.not // the cases that differ from the default
	if len(standard) == 0 {
		side = &out.match
	}
	for i, one := range cases {
		if err := see(one.result); err != nil {
			return nil, err
		}
		if source.geo {
			for _, other := range cases[:i] {
				if other.network.Overlaps(one.network) && (len(other.result) == 0) != (len(one.result) == 0) {
					return nil, fmt.Errorf("$%s counts a part of a network that it does not count (%s, %s)", v.name, other.network, one.network)
				}
			}
		}
		if (len(one.result) == 0) == (len(standard) == 0) {
			continue
		}
		if err := condition(source, one, side); err != nil {
			return nil, err
		}
	}
	if len(key) == 0 || len(standard) == 0 && side.Empty() {
		return nil, fmt.Errorf("$%s is always empty, so nginx counts nothing", v.name)
	}
	return key, nil
}

// condition adds a case's requests to conditions.
func condition(v *variable, one variant, to *rules.Conditions) error {
	if v.geo {
		to.Clients = append(to.Clients, one.network.String())
		return nil
	}
	name := ""
	if len(v.source) == 1 && v.source[0].variable {
		name = v.source[0].text
	}
	header, isHeader := strings.CutPrefix(name, "http_")
	switch {
	case one.regexp != nil:
		return fmt.Errorf("$%s depends on a regular expression", v.name)
	case name == "request_method":
		to.Methods = append(to.Methods, strings.ToUpper(one.value))
	case name == "remote_addr":
		p, err := network(one.value)
		if err != nil {
			return fmt.Errorf("$%s: %q is not an address", v.name, one.value)
		}
		to.Clients = append(to.Clients, p.String())
	case name == "host", name == "http_host":
		to.Hosts = append(to.Hosts, one.value)
	case isHeader && to.Headers == nil && one.value != "":
		to.Headers = map[string]string{http.CanonicalHeaderKey(strings.ReplaceAll(header, "_", "-")): one.value}
	default:
		return fmt.Errorf("$%s cannot be kept: rules do not match by %s = %q", v.name, v.source, one.value)
	}
	return nil
}

// turn replaces exempt client networks by the networks of all others, where the rule needs
// its exemption for the place.
func (o *counted) turn() bool {
	if o.not.Hosts != nil || o.not.Methods != nil || o.not.Headers != nil || o.match.Clients != nil {
		return false
	}
	list := []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
	for _, text := range o.not.Clients {
		out, err := netip.ParsePrefix(text)
		if err != nil {
			return false
		}
		var next []netip.Prefix
		for _, p := range list {
			next = append(next, without(p, out)...)
		}
		list = next
	}
	for _, p := range list {
		o.match.Clients = append(o.match.Clients, p.String())
	}
	o.not.Clients = nil
	return len(list) > 0
}

// without returns the networks of p that are not in out.
func without(p, out netip.Prefix) []netip.Prefix {
	switch {
	case !p.Overlaps(out):
		return []netip.Prefix{p}
	case p.Bits() >= out.Bits():
		return nil
	}
	low := netip.PrefixFrom(p.Addr(), p.Bits()+1)
	bytes := p.Addr().AsSlice()
	bytes[p.Bits()/8] |= 0x80 >> (p.Bits() % 8)
	a, _ := netip.AddrFromSlice(bytes)
	return append(without(low, out), without(netip.PrefixFrom(a, p.Bits()+1), out)...)
}
