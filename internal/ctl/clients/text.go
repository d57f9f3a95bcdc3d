package clients

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/internal/clientlist"
	"github.com/weir-edge/weir/internal/ctl/command"
	"github.com/weir-edge/weir/internal/ctl/term"
)

const importHelp = `Blocks all networks of a file, or with --allow exempts them: one address or network in CIDR
notation per line, with comments after #. FILE may be - for standard input. An error names its
line, and then nothing is changed.

Networks decided for another reason, or the other way, are left alone and named; with
--overwrite they are decided again. Only networks are read: from a file that export wrote, who
decided, why and until when are lost.

--replace makes the list of a reason match the file: networks that are listed with
the same reason, and are not in the file, are removed. regionctl clients sync follows a
list with a URL.`

const exportHelp = `Prints all blocked networks as text that regionctl clients import reads, each with a comment;
with --allow the allowed ones. Networks of remote lists are left out, because regionctl
clients sync publishes them again; --list NAME prints those of one.`

// longestClients is the size limit of a file of networks: Max lines, with comments.
const longestClients = 32 << 20

func importCommand(p *command.Program) *cobra.Command {
	var o Options
	var allow, replace, overwrite bool
	c := command.New("import FILE", "block or allow all networks of a file", importHelp,
		`  regionctl clients import drop.txt --message "drop list" --for 24h
  regionctl clients import offices.txt --allow --message "our offices"`,
		func(ctx context.Context, args []string) error {
			in := p.Input(args[0])
			data, err := in.Read(longestClients)
			if err != nil {
				return err
			}
			list, err := readNetworks(in.Name, data, o.force)
			if err != nil {
				return err
			}
			action := clientlist.Block
			if allow {
				action = clientlist.Allow
			}
			changed, err := decide(ctx, p, action, list, in.Name, replace, overwrite, &o)
			return command.Show(p, changed, err, writeChanged)
		})
	p.RegionFlag(c, &o.Regions)
	o.Flags(c.Flags())
	c.Flags().BoolVar(&allow, "allow", false, "exempt them instead of blocking them")
	c.Flags().BoolVar(&replace, "replace", false, "remove those with the same reason that are not in the file")
	c.Flags().BoolVar(&overwrite, "overwrite", false, "also decide those that were decided for another reason")
	return c
}

// readNetworks reads CIDR text. Its error lists the first faults, by line.
func readNetworks(name string, data []byte, force bool) (list []netip.Prefix, err error) {
	if len(data) > longestClients {
		return nil, term.Misused("%s is longer than %d bytes", name, longestClients)
	}
	const mostFaults = 10
	var wrong []string
	for n := 1; len(data) > 0; n++ {
		var line []byte
		line, data, _ = bytes.Cut(data, []byte("\n"))
		text, _, _ := strings.Cut(string(line), "#")
		text, _, _ = strings.Cut(text, ";") // some lists comment this way
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		found, err := clientlist.Parse(text)
		if err == nil && clientlist.Wide(found) && !force {
			err = fmt.Errorf("%s covers a large part of all clients; pass --force if that is intended", found)
		}
		if err != nil {
			if wrong = append(wrong, fmt.Sprintf("%s:%d: %s", name, n, term.Printable(err.Error()))); len(wrong) == mostFaults {
				break
			}
			continue
		}
		list = append(list, found)
	}
	if len(wrong) > 0 {
		return nil, term.Misused("nothing was changed:\n%s", strings.Join(wrong, "\n"))
	}
	if list = distinctNetworks(list); len(list) == 0 {
		return nil, term.Misused("%s contains no network", name)
	}
	if len(list) > clientlist.Max {
		return nil, term.Misused("%s has %d networks; a region holds at most %d", name, len(list), clientlist.Max)
	}
	return list, nil
}

func exportCommand(p *command.Program) *cobra.Command {
	var names []string
	var allowed bool
	var list string
	c := command.New("export", "print all blocked networks as text", exportHelp, `  regionctl clients export > blocked.txt
  regionctl clients export --allow --region eu-west`,
		func(ctx context.Context, _ []string) error {
			if p.WantsJSON() {
				return term.Misused("an export is text; regionctl clients list -o json has all fields")
			}
			answers, err := lists(ctx, p, names)
			if err != nil {
				return err
			}
			want := clientlist.Block
			if allowed {
				want = clientlist.Allow
			}
			var b bytes.Buffer
			left := map[string]int{} // left out, by list
			for _, l := range join(answers, (*clientlist.Table).All) {
				if l.List() != list {
					if l.List() != "" && l.Action == want {
						left[l.List()]++
					}
					continue
				}
				if l.Action == want {
					fmt.Fprintf(&b, "%s # %s, until %s: %s\n", l.Network, term.Printable(l.By), term.UntilRemoved(l.Until), term.Printable(l.Reason))
				}
			}
			if _, err := io.Copy(p.Out, &b); err != nil {
				return err
			}
			for _, name := range slices.Sorted(maps.Keys(left)) {
				if list == "" {
					p.Say("left out: %s of the remote list %s; --list %s prints them", term.Plural(left[name], "network"), name, name)
				}
			}
			return command.Unanswered(answers)
		})
	p.RegionFlag(c, &names)
	c.Flags().BoolVar(&allowed, "allow", false, "the allowed networks")
	c.Flags().StringVar(&list, "list", "", "the networks of the remote list `NAME`")
	return c
}
