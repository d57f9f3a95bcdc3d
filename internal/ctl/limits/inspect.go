package limits

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"net/textproto"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/ctl/command"
	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/kinds"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/pkg/region/consul"
)

const inspectHelp = `Shows what a client, an API key or anything else that rules count by has left of every
rule that counts by it. Nothing is charged by asking.

A KEY is an address, which means the client and the networks that rules count it by, or
NAME=VALUE:

  client=203.0.113.7     host=api.example.com    path=/login       method=POST    tier=pro
  header:X-Api-Key=abc   cookie:session=abc      query:user=abc

Several KEYs describe one request more closely: with a client and a path, the output has
the rules that count by both, and those that count by either alone. Rules that count by one
of the KEYs and by something else are listed with the KEYs they lack.

You need not reveal a secret: header:NAME, cookie:NAME and query:NAME also take the hash that
the counter's key has instead of the value, ~ and the first 32 hex digits of its SHA-256:

  regionctl limits inspect "header:X-Api-Key=~$(printf %s "$KEY" | sha256sum | head -c 32)"

The rules are those of the active document. If a rule matches on more than its key (a host,
a path, a method …), regionctl makes up a request that fits.

That document is in Consul, so this needs a fleet file. Where rules come from a file, ask the
node itself about one request, at its admin address:

  curl 'http://127.0.0.1:8081/v1/explain?client=203.0.113.7&path=/login'`

func inspectCommand(p *command.Program) *cobra.Command {
	var names []string
	var node, rule string
	c := command.New("inspect KEY…", "show what a client or another key has left", inspectHelp,
		`  regionctl limits inspect 203.0.113.7
  regionctl limits inspect client=203.0.113.7 path=/login
  regionctl limits inspect header:X-Api-Key=abc --region eu-west
  regionctl limits inspect 203.0.113.7 -o json | jq '.[].rules[] | select(.allowed | not)'`,
		func(ctx context.Context, args []string) error {
			list, err := Inspect(ctx, p, names, node, rule, args)
			return command.ShowEach(p, list, err, (*Inspected).write)
		})
	p.RegionFlag(c, &names)
	nodeFlag(p, c, &names, &node)
	c.Flags().StringVar(&rule, "rule", "", "only the rule of this `ID`")
	_ = c.RegisterFlagCompletionFunc("rule", p.CompleteRules(&names)) // the flag is known
	c.ValidArgsFunction = cobra.NoFileCompletions
	return c
}

// keys are the requested values, by the name of the key part.
type keys map[string]string

func parseKeys(args []string) (keys, error) {
	k := keys{}
	for _, arg := range args {
		name, value, named := strings.Cut(arg, "=")
		if !named {
			name, value = "client", arg
		}
		if name == "client" {
			name = "client_ip"
		}
		kind, sub, hasSub := strings.Cut(name, ":")
		switch {
		case value == "":
			return nil, term.Misused("KEY %q: has no value; write NAME=VALUE", arg)
		case kind == "header" && sub != "":
			name = "header:" + textproto.CanonicalMIMEHeaderKey(sub)
		case (kind == "cookie" || kind == "query") && sub != "":
		case !hasSub && slices.Contains([]string{"client_ip", "host", "path", "method", "tier"}, name):
		default:
			return nil, term.Misused("KEY %q: must be an address, or client, host, path, method, tier, header:NAME, cookie:NAME or query:NAME with =VALUE", arg)
		}
		if name == "client_ip" {
			if _, err := netip.ParseAddr(value); err != nil {
				return nil, term.Misused("KEY %q: must be an IP address, or NAME=VALUE", arg)
			}
		}
		if name == "path" && !strings.HasPrefix(value, "/") {
			return nil, term.Misused("KEY %q: must begin with /", arg)
		}
		if _, twice := k[name]; twice {
			return nil, term.Misused("KEY %q: %s is given twice; ask for one at a time", arg, name)
		}
		k[name] = value
	}
	return k, nil
}

// Inspected is the answer of one region.
type Inspected struct {
	Region  string                  `json:"region"`
	Node    string                  `json:"node,omitempty"`
	Version string                  `json:"rules_version,omitempty"`
	Rules   []adminapi.RuleDecision `json:"rules"`
	// Lacking are rules that count by one of the keys and by something not given, or that
	// exempt it.
	Lacking []unanswerable `json:"lacking"`
	// Silent counts the edges that did not report what they hold of leased limits.
	Silent int `json:"silent,omitempty"`
	// Omitted counts rules that were skipped to keep the answer short.
	Omitted int    `json:"omitted,omitempty"`
	Error   string `json:"error,omitempty"`
}

// maxLookups bounds how many requests are explained for one inspection.
const maxLookups = 200

// Inspect asks an edge of each region, or the one of this ID, what keys have left, of all rules or of
// this one.
func Inspect(ctx context.Context, p *command.Program, names []string, node, rule string, args []string) ([]*Inspected, error) {
	k, err := parseKeys(args)
	if err != nil {
		return nil, err
	}
	targets, err := targetsWith(ctx, p, names, node)
	if err != nil {
		return nil, err
	}
	return command.AskRegions(ctx, targets, func(ctx context.Context, t *fleet.Target) (*Inspected, error) {
		return inspectRegion(ctx, t, node, rule, k)
	}, func(region, why string) *Inspected {
		return &Inspected{Region: region, Rules: []adminapi.RuleDecision{}, Lacking: []unanswerable{}, Error: why}
	})
}

func inspectRegion(ctx context.Context, t *fleet.Target, node, rule string, k keys) (*Inspected, error) {
	brief, cancel := t.Bounded(ctx)
	defer cancel()
	d, err := fleet.LookActive(brief, t, "; regionctl limits explain asks an edge about the rules it has")
	if err != nil {
		return nil, err
	}
	book := kinds.RulesOf(d)
	if _, known := book.Set.Rule(rule); rule != "" && !known {
		return nil, fmt.Errorf("no rule %q in version %s", rule, d.Version())
	}
	nodes, err := command.Candidates(brief, t, node)
	if err != nil {
		return nil, err
	}
	lookups, lacking := k.lookups(book)
	r := &Inspected{Region: t.Name, Rules: []adminapi.RuleDecision{}, Lacking: append([]unanswerable{}, lacking...)}
	if rule != "" {
		lookups = fleet.Filter(lookups, func(q lookup) bool { return q.rule == rule })
		r.Lacking = fleet.Filter(r.Lacking, func(u unanswerable) bool { return u.Rule == rule })
	}
	cache := map[string]*adminapi.Explanation{} // many rules fit the same request
	for _, q := range lookups {
		id := q.query.Encode()
		e, cached := cache[id]
		if !cached {
			if len(cache) == maxLookups {
				r.Omitted++
				continue
			}
			var n consul.Node
			e, n, err = command.AskOne(ctx, nodes, func(ctx context.Context, n consul.Node) (*adminapi.Explanation, error) {
				return t.Admin.Explain(ctx, n, q.query)
			})
			if err != nil {
				return nil, err
			}
			cache[id], r.Node, r.Version = e, n.ID, e.RulesVersion
			if node == "" {
				r.Silent = max(r.Silent, addHeld(ctx, t, nodes, n, e, q.query))
			}
		}
		for _, found := range e.Rules {
			if found.Rule == q.rule {
				r.Rules = append(r.Rules, found)
			}
		}
	}
	return r, nil
}

func (r *Inspected) write(b *bytes.Buffer, s term.Style) {
	if r.Error != "" {
		return
	}
	fmt.Fprintf(b, "%s", s.Bold(r.Region))
	if r.Node != "" {
		fmt.Fprintf(b, " (edge %s, rules %s)", term.Printable(r.Node), term.OrDash(r.Version))
	}
	b.WriteString(":\n")
	if len(r.Rules) == 0 {
		b.WriteString("  no rule counts by that\n")
	} else {
		writeRules(b, s, r.Rules)
	}
	for _, rule := range r.Rules {
		if rule.Leased {
			fmt.Fprintf(b, "  %s is leased: edges hold %d that LEFT does not contain", term.Printable(rule.Rule), rule.Held)
			if len(rule.Holders) > 0 {
				b.WriteString(" (" + heldBy(rule.Holders) + ")")
			}
			b.WriteString("\n")
		}
	}
	writeDelays(b, r.Rules)
	if r.Silent > 0 {
		fmt.Fprintf(b, "  … and %s that did not answer\n", term.Plural(r.Silent, "edge"))
	}
	if r.Omitted > 0 {
		fmt.Fprintf(b, "  … and %s; choose one with --rule\n", term.Plural(r.Omitted, "more rule"))
	}
	for _, u := range r.Lacking {
		if u.Exempts {
			fmt.Fprintf(b, "  %s does not count it: match.not exempts it\n", term.Printable(u.Rule))
			continue
		}
		fmt.Fprintf(b, "  %s also counts by %s; give that too\n", term.Printable(u.Rule), term.Printable(u.Lacks))
	}
}
