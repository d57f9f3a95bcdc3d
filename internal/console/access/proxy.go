package access

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/weir-edge/weir/pkg/field"
)

// Proxy trusts the headers of an authenticating proxy, which must remove them from its clients'
// requests.
type Proxy struct {
	// From lists the proxy's networks. Requests from elsewhere are refused.
	From []netip.Prefix `yaml:"from" required:"list the networks of the proxy, as [10.0.0.5/32]"`
	// Header names the person, GroupsHeader their comma-separated groups.
	Header       string `yaml:"header" required:"name the header in which the proxy names the person, as X-Forwarded-User"`
	GroupsHeader string `yaml:"groups_header"`
}

// The shortest prefixes that may be trusted, in bits.
const (
	widest4 = 8
	widest6 = 32
)

func (p *Proxy) validate(f *field.Errors) {
	if len(p.From) == 0 {
		f.Add("from", "must name at least one network of the proxy")
	}
	for i, n := range p.From {
		if n.Masked() != n {
			f.Add(field.Index("from", i), "must be the first address of its network; write %s (got %s)", n.Masked(), n)
		} else if n.Bits() < widest4 || n.Addr().Is6() && n.Bits() < widest6 {
			f.Add(field.Index("from", i), "is too wide: every address in it can claim any name; name the proxy's own addresses (got %s)", n)
		}
	}
	header(f, "header", p.Header)
	if p.GroupsHeader != "" {
		header(f, "groups_header", p.GroupsHeader)
		if http.CanonicalHeaderKey(p.Header) == http.CanonicalHeaderKey(p.GroupsHeader) {
			f.Add("groups_header", "must differ from header (got %q)", p.GroupsHeader)
		}
	}
}

// given lists headers that clients or this console define.
var given = []string{"Host", "Cookie", "Origin", "Referer", "User-Agent", "Content-Type", "Accept", "Connection", "X-Forwarded-For"}

func header(f *field.Errors, path, name string) {
	switch {
	case name == "": // reported elsewhere
	case !httpguts.ValidHeaderFieldName(name) || strings.Contains(name, "_"):
		f.Add(path, "must be the name of a header, without underscores, which some proxies take for dashes (got %q)", name)
	case slices.Contains(given, http.CanonicalHeaderKey(name)):
		f.Add(path, "must be a header that only the proxy sets, such as X-Forwarded-User (got %q)", name)
	}
}

// admit refuses every caller but the proxy.
func (p *Proxy) admit(r *http.Request) error {
	from := peer(r)
	if slices.ContainsFunc(p.From, func(n netip.Prefix) bool { return n.Contains(from) }) {
		return nil
	}
	return refusal(http.StatusForbidden, "", "this console accepts only requests of its proxy, and %s is not in proxy.from; open the console's public address", from)
}

// read returns the person and groups that the proxy names.
func (p *Proxy) read(r *http.Request) (name string, groups []string, err error) {
	name, err = one(r, p.Header)
	if err != nil {
		return "", nil, err
	}
	if name == "" {
		return "", nil, refusal(http.StatusUnauthorized, ReasonLogin, "the proxy did not identify you: %s is missing; reload this page to log in at the proxy", p.Header)
	}
	if err := checkName(name); err != nil {
		return "", nil, refusal(http.StatusForbidden, "", "%s: %v", p.Header, err)
	}
	if p.GroupsHeader == "" {
		return name, nil, nil
	}
	text, err := one(r, p.GroupsHeader)
	if err != nil {
		return "", nil, err
	}
	for group := range strings.SplitSeq(text, ",") {
		if group = strings.TrimSpace(group); group != "" {
			groups = append(groups, group)
		}
	}
	return name, groups, nil
}

// one returns a header that must occur once: a second may be the client's own, which the proxy
// passed on.
func one(r *http.Request, name string) (string, error) {
	switch list := r.Header.Values(name); len(list) {
	case 0:
		return "", nil
	case 1:
		return strings.TrimSpace(list[0]), nil
	default:
		return "", refusal(http.StatusForbidden, "", "%s comes %d times; the proxy must remove what its clients send", name, len(list))
	}
}
