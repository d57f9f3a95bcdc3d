package clients

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/internal/clientlist"
	"github.com/weir-edge/weir/internal/ctl/command"
	"github.com/weir-edge/weir/internal/ctl/term"
)

const unblockHelp = `Removes networks from the list, whether they are blocked or allowed. A network that is not
listed is not an error; the output says which listed networks cover it.

With --list it removes all networks that regionctl clients sync keeps for a remote list. Stop
that sync first. To let in one client that a remote list blocks, regionctl clients allow it.`

func unblockCommand(p *command.Program) *cobra.Command {
	var o Options
	var list string
	c := command.New("unblock [NETWORK…]", "remove networks from the list", unblockHelp, `  regionctl clients unblock 203.0.113.7
  regionctl clients unblock --list drop`,
		func(ctx context.Context, args []string) error {
			unblock := func() ([]*Changed, error) { return Unblock(ctx, p, args, &o) }
			switch {
			case list != "" && len(args) > 0:
				return term.Misused("--list %s: removes the networks of the list; name no others", list)
			case list != "":
				unblock = func() ([]*Changed, error) { return unblockList(ctx, p, list, &o) }
			case len(args) == 0:
				return term.Misused("NETWORK is missing; name networks, or --list NAME")
			}
			changed, err := unblock()
			return command.Show(p, changed, err, writeChanged)
		})
	c.Aliases = []string{"remove"}
	c.Flags().StringVar(&list, "list", "", "all networks of the remote list `NAME`")
	p.RegionFlag(c, &o.Regions)
	o.changeFlags(c.Flags())
	command.MessageFlag(c.Flags(), &o.reason)
	return c
}

// remover checks the flags, and returns who removes networks.
func (o *Options) remover(p *command.Program) (string, error) {
	if err := command.CheckText("--message", o.reason, clientlist.MaxReason); err != nil {
		return "", err
	}
	return p.Whoami(o.by)
}

// Unblock removes networks from the list.
func Unblock(ctx context.Context, p *command.Program, networks []string, o *Options) ([]*Changed, error) {
	list, err := parseNetworks(networks, true)
	if err != nil {
		return nil, err
	}
	who, err := o.remover(p)
	if err != nil {
		return nil, err
	}
	removed, covered, remote := map[netip.Prefix]bool{}, map[netip.Prefix]*clientlist.Entry{}, map[netip.Prefix]string{}
	changed, err := change(ctx, p, o, func(at time.Time, held *clientlist.List) *clientlist.Edits {
		e := &clientlist.Edits{By: who, Message: "remove " + networkNames(list) + term.Reason(o.reason)}
		t := clientlist.NewTable("", held.Entries(), at)
		for _, n := range list {
			for _, c := range t.Covering(n) {
				if c.Network == n {
					removed[n], remote[n] = true, c.List()
				}
				if c.Network != n && covered[n] == nil {
					covered[n] = c
				}
			}
			e.List = append(e.List, clientlist.Edit{Network: n})
		}
		return e
	})
	for _, n := range list {
		if c := covered[n]; c != nil {
			p.Warn("%s is still in %s, which is listed: %s, by %s: %s", n, c.Network, c.Action, c.By, c.Reason)
		} else if !removed[n] {
			p.Warn("%s is not listed", n)
		}
		if name := remote[n]; name != "" {
			p.Warn("%s belongs to the list %s, and regionctl clients sync would add it again; to let it in, allow it", n, name)
		}
	}
	return changed, err
}

// unblockList removes the regions' networks of a remote list.
func unblockList(ctx context.Context, p *command.Program, name string, o *Options) ([]*Changed, error) {
	if err := checkListName("--list", name); err != nil {
		return nil, err
	}
	who, err := o.remover(p)
	if err != nil {
		return nil, err
	}
	found := 0
	changed, err := change(ctx, p, o, func(_ time.Time, held *clientlist.List) *clientlist.Edits {
		e := &clientlist.Edits{By: who, Keep: func(was *clientlist.Entry, _ *clientlist.Decision) bool { return was.List() != name }}
		for _, was := range held.Entries() {
			if was.List() == name {
				e.List = append(e.List, clientlist.Edit{Network: was.Network})
			}
		}
		found += len(e.List)
		e.Message = fmt.Sprintf("remove the list %s: %s", name, term.Plural(len(e.List), "network")) + term.Reason(o.reason)
		return e
	})
	if found == 0 {
		p.Warn("no network belongs to the list %s", name)
	}
	return changed, err
}
