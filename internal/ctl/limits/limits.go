// Package limits holds the commands that say what a client has left and why, and that reset it.
package limits

import (
	"cmp"
	"net/netip"
	"net/url"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weir-edge/weir/internal/ctl/command"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/pkg/limiter/rules"
)

const help = `Show what the edges count, and reset it.

The edges of a region share their counters, so one of them is asked for each region.
Only reset goes to all of them, because each edge also remembers its own refusals.

Edges are asked at the admin address that they registered in Consul. If they require a
token, name a file with it as admin_token_file in the fleet file. The token is sent only to
addresses in admin_networks of the fleet file; over plain HTTP only to this host itself,
unless --insecure-admin allows more. Edges with listen.admin_tls are verified by
admin_tls.ca_file of the fleet file. An edge that listens at 127.0.0.1 can be asked only
on its own host; answers of other edges are refused.`

func Command(p *command.Program) *cobra.Command {
	c := command.Group("limits", "ask the edges what they count, or reset it", help)
	c.AddCommand(explainCommand(p), inspectCommand(p), globalCommand(p), resetCommand(p))
	return c
}

// Request is a request as flags describe it.
type Request struct {
	client, method, host, path, tier string
	rule                             string // to reset
	by, message                      string
	yes                              bool
	headers, cookies                 []string

	// For a call to Envoy's rate limit service, instead of all others.
	domain  string
	entries []string
}

// Flags binds the fields to flags.
func (d *Request) Flags(f *pflag.FlagSet) {
	f.StringVar(&d.client, "client", "", "the client's `ADDRESS`")
	f.StringVar(&d.method, "method", "GET", "the request's `METHOD`")
	f.StringVar(&d.host, "host", "", "the `HOST` asked for")
	f.StringVar(&d.path, "path", "/", "the `PATH`, with its query if rules count by that")
	f.StringArrayVar(&d.headers, "header", nil, "a header, as `NAME:VALUE`, or NAME:~HASH as counters have it; repeat it for several")
	f.StringArrayVar(&d.cookies, "cookie", nil, "a cookie, as `NAME=VALUE`; repeat it for several")
	f.StringVar(&d.tier, "tier", "", "the client's `TIER`")
	f.StringVar(&d.domain, "domain", "", "the `DOMAIN` of a call of Envoy's rate limit service, instead of a request")
	f.StringArrayVar(&d.entries, "entry", nil, "an entry of its descriptor, as `KEY=VALUE`; repeat it for several, in order")
}

// query returns d in the form that edges read, or an error if edges would reject it.
func (d *Request) query() (url.Values, error) {
	if d.domain != "" || len(d.entries) > 0 {
		return d.call()
	}
	if d.client == "" {
		return nil, term.Misused("--client is missing; give an address, as in --client 203.0.113.7")
	}
	if _, err := netip.ParseAddr(d.client); err != nil {
		return nil, term.Misused("--client %q: must be an IP address", d.client)
	}
	if !strings.HasPrefix(d.path, "/") {
		return nil, term.Misused("--path %q: must begin with /", d.path)
	}
	q := url.Values{"client": {d.client}, "method": {d.method}, "path": {d.path}}
	for name, value := range map[string]string{"host": d.host, "tier": d.tier} {
		if value != "" {
			q.Set(name, value)
		}
	}
	for _, part := range []struct {
		kind, separator string
		given           []string
	}{{"header", ":", d.headers}, {"cookie", "=", d.cookies}} {
		for _, given := range part.given {
			switch name, value, ok := strings.Cut(given, part.separator); {
			case !ok || name == "":
				return nil, term.Misused("--%s %q: must be NAME%sVALUE", part.kind, given, part.separator)
			case rules.IsHash(value):
				q.Add("hash", part.kind+":"+name+":"+value[1:])
			default:
				q.Add(part.kind, given)
			}
		}
	}
	return q, nil
}

// subject names the owner of the counter.
func (d *Request) subject() string { return cmp.Or(d.client, strings.Join(d.entries, ", ")) }

// recorded returns the subject for the history, which many people read: values of
// descriptors may be secret.
func (d *Request) recorded() string {
	if d.client != "" {
		return d.client
	}
	names := make([]string, len(d.entries))
	for i, e := range d.entries {
		names[i], _, _ = strings.Cut(e, "=")
	}
	return "a call with " + strings.Join(names, ", ")
}

// call is query for a call.
func (d *Request) call() (url.Values, error) {
	switch {
	case d.client != "" || d.host != "" || d.tier != "" || len(d.headers)+len(d.cookies) > 0:
		return nil, term.Misused("--domain and --entry describe a call, the other flags a request; pass one or the other")
	case d.domain == "":
		return nil, term.Misused("--domain is missing; pass that of Envoy's rate limit filter")
	case len(d.entries) == 0:
		return nil, term.Misused("--entry is missing; pass the descriptor's entries, as in --entry user=bob")
	}
	for _, e := range d.entries {
		if key, _, ok := strings.Cut(e, "="); !ok || key == "" {
			return nil, term.Misused("--entry %q: must be KEY=VALUE", e)
		}
	}
	return url.Values{"domain": {d.domain}, "entry": d.entries}, nil
}
