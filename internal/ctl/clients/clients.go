// Package clients has the commands that list, block and allow clients, and that find those whom rules
// refuse most.
package clients

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weir-edge/weir/internal/clientlist"
	"github.com/weir-edge/weir/internal/ctl/command"
	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/kinds"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/pkg/region/consul"
)

const help = `Clients that are blocked or allowed manually: single addresses or whole networks, each with
who decided it, why, and until when. All edges of all regions that follow Consul apply this
as soon as Consul delivers it, and keep it across restarts.

A blocked client gets 403 before any rule. An allowed one is exempt from the behavior policy
and from blocks of wider networks: the narrowest network decides. Rules and the load shedder
apply to it as before.

A region holds up to 100,000 networks, in its Consul.`

const blockHelp = `Answers 403 to all clients in these networks, on all edges of all regions, and waits until
they apply it. Without --for it lasts until regionctl clients unblock.

An address is one IPv4 or IPv6 address. Most IPv6 clients can choose any address of their
/64; block that. Networks wider than an IPv4 /8 or an IPv6 /16 need --force.

Blocking a network again replaces the reason and the end. A region with an unreachable Consul
is skipped (status 3); run the same command again to reach it.

Exits with 0 if every edge applies it, and with 3 if a region could not be written, or an edge
does not follow the networks, or has not received them within --wait.`

const allowHelp = `Exempts all clients in these networks from blocks of wider networks and from the behavior
policy. Rules and the load shedder apply to them as before.

In all other respects it is like regionctl clients block.`

const showHelp = `Shows all listed networks that contain an address or a network. The first, narrowest one
decides. regionctl limits explain asks the edges themselves.`

const listHelp = `Lists all networks that are blocked or allowed, with who, why, since and until when. The last
column names the regions that have an entry if not all do; run the command that made it
again to update the others.`

// Options are the flags of changes.
type Options struct {
	reason, by string
	lasts      time.Duration
	force      bool
	wait       time.Duration
	Regions    []string
}

func Command(p *command.Program) *cobra.Command {
	c := command.Group("clients", "block or allow clients manually", help)
	command.Stage(c, "Look first:", topCommand(p), showCommand(p), listCommand(p), recentCommand(p), exportCommand(p))
	command.Stage(c, "Change:",
		decideCommand(p, clientlist.Block, blockHelp, `  regionctl clients block 203.0.113.7 --for 2h --message "scans /login, CASE-12"
  regionctl clients block 198.51.100.0/24 2001:db8:7::/48 --message "scraper of AS64500"`),
		decideCommand(p, clientlist.Allow, allowHelp, `  regionctl clients allow 203.0.113.40/30 --message "our monitoring"`),
		unblockCommand(p), importCommand(p), syncCommand(p),
	)
	return c
}

func (o *Options) changeFlags(f *pflag.FlagSet) {
	f.DurationVar(&o.wait, "wait", 10*time.Second, "how long to wait at most for the edges; 0 does not wait")
	command.ByFlag(f, &o.by)
	command.NoQuestion(f)
}

const longestDecision = 10 * 365 * 24 * time.Hour

// Flags binds all fields but Regions to flags.
func (o *Options) Flags(f *pflag.FlagSet) {
	o.changeFlags(f)
	f.StringVarP(&o.reason, "message", "m", "", "`TEXT`: why, required; shown by list and explain")
	command.LifetimeFlag(f, &o.lasts, longestDecision, "how long, such as 2h (default: until it is removed)")
	f.BoolVar(&o.force, "force", false, "also networks wider than an IPv4 /8 or an IPv6 /16")
}

func decideCommand(p *command.Program, action clientlist.Action, help, examples string) *cobra.Command {
	var o Options
	short := map[clientlist.Action]string{clientlist.Block: "answer 403 to networks", clientlist.Allow: "exempt networks from blocks and from the behavior policy"}
	c := command.New(string(action)+" NETWORK…", short[action], help, examples, func(ctx context.Context, args []string) error {
		list, err := Decide(ctx, p, action, args, &o)
		return command.Show(p, list, err, writeChanged)
	})
	p.RegionFlag(c, &o.Regions)
	o.Flags(c.Flags())
	return c
}

// Decide blocks or allows networks.
func Decide(ctx context.Context, p *command.Program, action clientlist.Action, networks []string, o *Options) ([]*Changed, error) {
	list, err := parseNetworks(networks, o.force)
	if err != nil {
		return nil, err
	}
	return decide(ctx, p, action, list, "", false, false, o)
}

// parseNetworks reports every fault of the arguments.
func parseNetworks(args []string, force bool) (list []netip.Prefix, err error) {
	var wrong []string
	for _, arg := range args {
		n, err := clientlist.Parse(arg)
		switch {
		case err != nil:
			wrong = append(wrong, err.Error())
		case clientlist.Wide(n) && !force:
			wrong = append(wrong, fmt.Sprintf("%s covers a large part of all clients; pass --force if that is intended", n))
		default:
			list = append(list, n)
		}
	}
	if len(wrong) > 0 {
		return nil, term.Misused("nothing was changed:\n%s", strings.Join(wrong, "\n"))
	}
	return distinctNetworks(list), nil
}

func distinctNetworks(list []netip.Prefix) []netip.Prefix {
	slices.SortFunc(list, clientlist.Compare)
	return slices.Compact(list)
}

// decision builds the decision from the flags.
func decision(p *command.Program, o *Options, action clientlist.Action) (*clientlist.Decision, error) {
	if o.reason == "" {
		return nil, term.Misused("--message TEXT is missing; it tells other operators why, even a year from now")
	}
	if err := command.CheckText("--message", o.reason, clientlist.MaxReason); err != nil {
		return nil, err
	}
	if o.wait < 0 {
		return nil, term.Misused("--wait must be 0 or above")
	}
	who, err := p.Whoami(o.by)
	d := &clientlist.Decision{Action: action, By: who, Reason: o.reason}
	if err == nil && d.List() != "" {
		err = term.Misused("--by %s: only regionctl clients sync decides as a list; name a person", who)
	}
	return d, err
}

// decide blocks or allows networks. With replace, it removes networks with the same
// decision and reason that are not in the list.
func decide(ctx context.Context, p *command.Program, action clientlist.Action, list []netip.Prefix, from string, replace, overwrite bool, o *Options) ([]*Changed, error) {
	d, err := decision(p, o, action)
	if err != nil {
		return nil, err
	}
	for _, n := range list {
		if n.Addr().Is6() && n.Bits() > 64 && from == "" {
			p.Say("%s: most clients can use any address of %s", n, netip.PrefixFrom(n.Addr(), 64).Masked())
		}
	}
	return change(ctx, p, o, func(at time.Time, held *clientlist.List) *clientlist.Edits {
		d := *d
		d.Since = at
		message := fmt.Sprintf("%s %s", d.Action, networkNames(list))
		if o.lasts > 0 {
			d.Until = at.Add(o.lasts)
			message += " until " + term.Stamp(d.Until)
		}
		if from != "" {
			message += " from " + from
		}
		e := &clientlist.Edits{By: d.By, Message: message + ": " + d.Reason}
		same := func(was *clientlist.Entry) bool {
			return was.List() == "" && was.Action == d.Action && was.Reason == d.Reason
		}
		e.Keep = func(was *clientlist.Entry, next *clientlist.Decision) bool {
			if next == nil {
				return !same(was) // someone decided since held was read
			}
			return from != "" && !overwrite && was.List() == "" && !same(was)
		}
		if from != "" && !overwrite {
			sayKept(p, at, held, list, func(was *clientlist.Entry) bool { return e.Keep(was, &d) })
		}
		for _, n := range list {
			e.List = append(e.List, clientlist.Edit{Network: n, Decision: &d})
		}
		if replace {
			for _, was := range held.Entries() {
				if _, stays := slices.BinarySearchFunc(list, was.Network, clientlist.Compare); !stays && same(was) {
					e.List = append(e.List, clientlist.Edit{Network: was.Network})
				}
			}
		}
		return e
	})
}

// sayKept names listed networks whose existing decisions an import leaves alone.
func sayKept(p *command.Program, at time.Time, held *clientlist.List, list []netip.Prefix, keep func(*clientlist.Entry) bool) {
	var kept []*clientlist.Entry
	for _, was := range held.Entries() {
		if _, listed := slices.BinarySearchFunc(list, was.Network, clientlist.Compare); listed && !was.Expired(at) && keep(was) {
			kept = append(kept, was)
		}
	}
	if len(kept) > 0 {
		one := kept[0]
		p.Say("left alone, because decided for another reason: %s, such as %s (%s by %s: %s); --overwrite decides again",
			term.Plural(len(kept), "network"), one.Network, one.Action, term.Printable(one.By), term.Printable(one.Reason))
	}
}

// networkNames names a few networks.
func networkNames(list []netip.Prefix) string {
	if len(list) > 5 {
		return fmt.Sprintf("%d networks", len(list))
	}
	names := make([]string, len(list))
	for i, n := range list {
		names[i] = n.String()
	}
	return strings.Join(names, ", ")
}

// Entry is an entry of a client list, with the regions that have it.
type Entry struct {
	*clientlist.Entry
	Regions []string `json:"regions"`
	partly  bool     // some regions that answered do not have it
}

// lists reads the networks of all regions.
func lists(ctx context.Context, p *command.Program, names []string) ([]fleet.Answer[*clientlist.List], error) {
	targets, err := p.Targets(kinds.Clients, names)
	return readLists(ctx, targets), err
}

func readLists(ctx context.Context, targets []*fleet.Target) []fleet.Answer[*clientlist.List] {
	return fleet.AskUnbounded(ctx, targets, func(ctx context.Context, t *fleet.Target) (*clientlist.List, error) {
		l, err := clientlist.Read(ctx, t.Consul)
		if errors.Is(err, consul.ErrGone) {
			err = fmt.Errorf("%w; regionctl undo clients --region %s gives the region what it had", err, t.Name)
		}
		return l, err
	})
}

// join merges the lists of regions: unexpired entries, in order.
func join(answers []fleet.Answer[*clientlist.List], keep func(*clientlist.Table) []*clientlist.Entry) (all []*Entry) {
	type key struct {
		network netip.Prefix
		clientlist.Decision
	}
	all = []*Entry{} // none is an empty list in JSON, too
	found, regions := map[key]*Entry{}, 0
	for _, a := range answers {
		if a.Err != nil {
			continue
		}
		regions++
		for _, e := range keep(clientlist.NewTable(a.Value.Version(), a.Value.Entries(), a.Target.Consul.Now())) {
			k := key{e.Network, e.Decision}
			if found[k] == nil {
				found[k] = &Entry{Entry: e}
				all = append(all, found[k])
			}
			found[k].Regions = append(found[k].Regions, a.Target.Name)
		}
	}
	for _, l := range all {
		l.partly = len(l.Regions) < regions
	}
	slices.SortStableFunc(all, func(a, b *Entry) int { return clientlist.Compare(a.Network, b.Network) })
	return all
}

func listCommand(p *command.Program) *cobra.Command {
	var names []string
	c := command.New("list", "list all networks that are blocked or allowed", listHelp, `  regionctl clients list
  regionctl clients list -o json`,
		func(ctx context.Context, _ []string) error {
			all, err := List(ctx, p, names)
			return command.Show(p, all, err, func(all []*Entry, b *bytes.Buffer, s term.Style) {
				writeEntries(b, s, all, command.None("no network is blocked or allowed", err))
			})
		})
	p.RegionFlag(c, &names)
	return c
}

// List returns all networks that are blocked or allowed.
func List(ctx context.Context, p *command.Program, names []string) ([]*Entry, error) {
	answers, err := lists(ctx, p, names)
	if err != nil {
		return nil, err
	}
	return join(answers, (*clientlist.Table).All), command.Unanswered(answers)
}

func showCommand(p *command.Program) *cobra.Command {
	var names []string
	c := command.New("show NETWORK", "show what is decided about an address", showHelp, `  regionctl clients show 203.0.113.7`,
		func(ctx context.Context, args []string) error {
			all, n, err := Covering(ctx, p, names, args[0])
			return command.Show(p, all, err, func(all []*Entry, b *bytes.Buffer, s term.Style) {
				writeEntries(b, s, all, command.None(n.String()+" is neither blocked nor allowed", err))
			})
		})
	p.RegionFlag(c, &names)
	return c
}

// Covering returns the listed networks that contain this one, narrowest first.
func Covering(ctx context.Context, p *command.Program, names []string, network string) (all []*Entry, n netip.Prefix, err error) {
	if n, err = clientlist.Parse(network); err != nil {
		return nil, n, term.Misused("%w", err)
	}
	answers, err := lists(ctx, p, names)
	if err != nil {
		return nil, n, err
	}
	all = join(answers, func(t *clientlist.Table) []*clientlist.Entry { return t.Covering(n) })
	slices.SortStableFunc(all, func(a, b *Entry) int { return cmp.Compare(b.Network.Bits(), a.Network.Bits()) })
	return all, n, command.Unanswered(answers)
}

func writeEntries(b *bytes.Buffer, s term.Style, all []*Entry, none string) {
	if len(all) == 0 {
		b.WriteString(none)
		return
	}
	t := term.Table{}
	t.Row("NETWORK", "ACTION", "UNTIL", "SINCE", "BY", "REASON", "ONLY IN")
	for _, l := range all {
		action, only := s.Red(string(l.Action)), ""
		if l.Action == clientlist.Allow {
			action = s.Green(string(l.Action))
		}
		if l.partly {
			only = s.Yellow(strings.Join(l.Regions, ", "))
		}
		t.Row(l.Network.String(), action, term.UntilRemoved(l.Until), term.Stamp(l.Since), term.Printable(l.By), term.Printable(l.Reason), only)
	}
	t.Print(b)
}
