package access

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/weir-edge/weir/pkg/field"
)

// Proxy trusts the headers of an authenticating proxy. It must remove them from what its
// clients send.
type Proxy struct {
	// From are the networks of the proxy. Nobody else is answered.
	From []netip.Prefix `yaml:"from" required:"list the networks of the proxy, as [10.0.0.5/32]"`
	// Header names the person, GroupsHeader their groups, separated by commas.
	Header       string `yaml:"header" required:"name the header in which the proxy names the person, as X-Forwarded-User"`
	GroupsHeader string `yaml:"groups_header"`
}

// widest is how many addresses, as bits of a prefix, may be trusted at most.
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
			f.Add(field.Index("from", i), "is too wide: whoever is in it can claim to be anybody; name the proxy's own addresses (got %s)", n)
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

// given are headers that clients or this console give a meaning.
var given = []string{"Host", "Cookie", "Origin", "Referer", "User-Agent", "Content-Type", "Accept", "Connection", "X-Forwarded-For"}

func header(f *field.Errors, path, name string) {
	switch {
	case name == "": // it is missing, which is known
	case !httpguts.ValidHeaderFieldName(name) || strings.Contains(name, "_"):
		f.Add(path, "must be the name of a header, without underscores, which some proxies take for dashes (got %q)", name)
	case slices.Contains(given, http.CanonicalHeaderKey(name)):
		f.Add(path, "must be a header that only the proxy sets, such as X-Forwarded-User (got %q)", name)
	}
}

// admit refuses whoever is not the proxy.
func (p *Proxy) admit(r *http.Request) error {
	from := peer(r)
	if slices.ContainsFunc(p.From, func(n netip.Prefix) bool { return n.Contains(from) }) {
		return nil
	}
	return refusal(http.StatusForbidden, "", "only the proxy that knows who you are may ask this console, and %s is not in proxy.from; open the console's public address", from)
}

// read returns whom the proxy names.
func (p *Proxy) read(r *http.Request) (name string, groups []string, err error) {
	name, err = one(r, p.Header)
	if err != nil {
		return "", nil, err
	}
	if name == "" {
		return "", nil, refusal(http.StatusUnauthorized, ReasonLogin, "the proxy did not say who you are: %s is missing; log in at the proxy, by opening this page again", p.Header)
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

// one returns a header that comes once. Of two, one may be of a client that the proxy let
// through.
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
