package clients

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/internal/blocklist"
	"github.com/weir-edge/weir/internal/clientlist"
	"github.com/weir-edge/weir/internal/ctl/command"
	"github.com/weir-edge/weir/internal/ctl/kinds"
	"github.com/weir-edge/weir/internal/ctl/term"
)

const syncHelp = `Blocks the networks of a published list, such as a community's blocklist, and
follows it until SIGTERM or Ctrl-C: CIDR text, one address or network a line, with comments
after # or ;. It writes the list into the Consul of each region, where operators' blocks are,
so all nodes agree, it survives restarts, and requests wait for nothing extra.

clients list and show name list:NAME as the author. Only the list's own networks
are ever changed: an operator's or another list's decision about a network takes precedence, even
if it is an allow of a wider one. After it ends, also by unblock, the next round adds the network
again. regionctl clients unblock --list NAME removes the whole list.

While the URL does not answer, or its content cannot be right, regions keep what
they have, and the log and weir_list_failures_total say so. A whole list is refused:
  if a line is not a network, or a network is wider than an IPv4 /8 or an IPv6 /16
  if it is empty, has more than --max-networks, or is longer than --max-bytes
  if it has over a sixteenth of all addresses
  by a region that would lose over --max-loss of the list's networks at once; those that
  wider ones replace are not lost. --once --max-loss 1 accepts it; smaller losses, one after
  another, are accepted: watch weir_list_networks
Private, loopback, multicast and other networks that are not public are left out
(weir_list_private). A region that was unreachable gets the list in the next round, changed or not.

An unchanged list is not sent again if the server supports ETag or Last-Modified. After a
failure it is fetched again after a tenth of --every. A URL's password and query never
appear in messages.

It needs the token of an operator for weir/clients/. Its log goes to standard error: JSON, or
plain on a terminal. The metrics listener has /metrics and /healthz.

With --once it does this once, and exits with 0 if every region has the list, 3 if some do, and
1 if none does.`

// syncOptions are the flags of sync.
type syncOptions struct {
	from, name, reason, metrics string
	every, bound                time.Duration
	once                        bool
	networks, bytes             int
	loss                        float64
	regions                     []string
}

func syncCommand(p *command.Program) *cobra.Command {
	var o syncOptions
	c := command.New("sync", "block the networks of a remote list, and follow it", syncHelp,
		`  regionctl clients sync --name drop --from https://www.spamhaus.org/drop/drop.txt --every 12h
  regionctl clients sync --name drop --from drop.txt --once
  regionctl clients unblock --list drop`,
		func(ctx context.Context, _ []string) error { return syncLists(ctx, p, &o) })
	f := c.Flags()
	f.StringVar(&o.from, "from", "", "an http or https `URL`, or a file, required")
	f.StringVar(&o.name, "name", "", "the list's `NAME`, required; lower-case letters, digits and dashes")
	f.DurationVar(&o.every, "every", time.Hour, "how often to fetch it, 1m to 168h")
	f.BoolVar(&o.once, "once", false, "fetch it once, and exit")
	f.StringVarP(&o.reason, "message", "m", "", "`TEXT`, shown by list and explain (default: the source of the list)")
	f.DurationVar(&o.bound, "fetch-timeout", 30*time.Second, "how long one attempt to fetch it may take, 1s to 5m")
	f.IntVar(&o.networks, "max-networks", clientlist.Max/2, "how many networks it may have; the other half of a region's capacity stays for operators")
	f.IntVar(&o.bytes, "max-bytes", 16<<20, "how long it may be")
	f.Float64Var(&o.loss, "max-loss", 0.3, "the share of its networks that it may lose at once, 0 to 1")
	f.StringVar(&o.metrics, "metrics", "127.0.0.1:9154", "`ADDRESS:PORT` for /metrics and /healthz; empty: none")
	command.NoQuestion(f)
	p.RegionFlag(c, &o.regions)
	command.CompleteFiles(c, "from", "txt")
	return c
}

var listName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)

func checkListName(flag, name string) error {
	if !listName.MatchString(name) {
		return term.Misused("%s: must be 1 to 63 lower-case letters, digits and dashes, such as drop (got %.64q)", flag, name)
	}
	return nil
}

// check returns the source of the list.
func (o *syncOptions) check() (*blocklist.Source, error) {
	if o.from == "" {
		return nil, term.Misused("--from URL is missing")
	}
	if err := checkListName("--name", o.name); err != nil {
		return nil, err
	}
	for _, d := range []struct {
		flag             string
		is, least, most  time.Duration
		leastIs, mostsIs string
	}{{"--every", o.every, time.Minute, 7 * 24 * time.Hour, "1m", "168h"}, {"--fetch-timeout", o.bound, time.Second, 5 * time.Minute, "1s", "5m"}} {
		if d.is < d.least || d.is > d.most {
			return nil, term.Misused("%s: must be from %s to %s (got %s)", d.flag, d.leastIs, d.mostsIs, d.is)
		}
	}
	if o.networks < 1 || o.networks > clientlist.Max {
		return nil, term.Misused("--max-networks: must be from 1 to %d (got %d)", clientlist.Max, o.networks)
	}
	if o.bytes < 1 || o.bytes > 2*longestClients {
		return nil, term.Misused("--max-bytes: must be from 1 to %d (got %d)", 2*longestClients, o.bytes)
	}
	if !(o.loss >= 0 && o.loss <= 1) {
		return nil, term.Misused("--max-loss: must be from 0 to 1 (got %v)", o.loss)
	}
	if o.metrics != "" {
		if _, err := command.ParseListen(o.metrics); err != nil {
			return nil, term.Misused("--metrics %q: %w", o.metrics, err)
		}
	}
	source, err := blocklist.NewSource(o.from, o.bound, int64(o.bytes))
	if err != nil {
		return nil, term.Misused("--from: %w", err) // the value may contain a password
	}
	if o.reason == "" {
		o.reason = strings.ToValidUTF8(fmt.Sprintf("%.*s", clientlist.MaxReason/2, "list "+source.String()), "")
	}
	return source, command.CheckText("--message", o.reason, clientlist.MaxReason)
}

func syncLists(ctx context.Context, p *command.Program, o *syncOptions) error {
	source, err := o.check()
	if err != nil {
		return err
	}
	targets, err := p.Targets(kinds.Clients, o.regions)
	if err != nil {
		return err
	}
	c := &blocklist.Config{Name: o.name, Source: source, Reason: o.reason, Every: o.every, Most: o.networks, Loss: o.loss, Log: p.Log(), Now: p.Now}
	for _, t := range targets {
		c.Regions = append(c.Regions, blocklist.Region{Name: t.Name, Consul: t.Consul, Token: t.Identity})
	}
	s := blocklist.New(c)
	if o.once {
		return syncOnce(ctx, p, s)
	}
	if o.metrics != "" {
		stop, err := s.Serve(o.metrics)
		if err != nil {
			return term.Failed("--metrics: %w, or pass --metrics '' for none", err)
		}
		defer stop()
	}
	s.Run(ctx)
	return nil // a requested stop is not a failure
}

func syncOnce(ctx context.Context, p *command.Program, s *blocklist.Sync) error {
	list, err := s.Round(ctx)
	if err != nil {
		return term.Failed("nothing was changed: %w", err)
	}
	if err := p.Show(list, func(b *bytes.Buffer, s term.Style) { writeSynced(b, s, list) }); err != nil {
		return err
	}
	var wrong []string
	for _, o := range list {
		if o.Failure != nil {
			wrong = append(wrong, o.Region+": "+o.Error)
		}
	}
	switch text := strings.Join(wrong, "\n"); len(wrong) {
	case 0:
		return nil
	case len(list):
		return term.Failed("no region has the current list:\n%s", text)
	default:
		return &term.Failure{Status: term.StatusPartial, Err: errors.New("not every region has the current list:\n" + text)}
	}
}

func writeSynced(b *bytes.Buffer, s term.Style, list []blocklist.Outcome) {
	t := term.Table{}
	t.Row("REGION", "RESULT", "NETWORKS", "ADDED", "REMOVED", "DECIDED OTHERWISE")
	for _, o := range list {
		if o.Failure != nil {
			t.Row(o.Region, s.Red("failed"), "-", "-", "-", "-")
			continue
		}
		result := "unchanged"
		if o.Added+o.Removed > 0 {
			result = "published"
		}
		t.Row(o.Region, s.Green(result), strconv.Itoa(o.Has), strconv.Itoa(o.Added), strconv.Itoa(o.Removed), strconv.Itoa(o.Yielded))
	}
	t.Print(b)
}
