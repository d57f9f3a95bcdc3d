package shedder

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/internal/ctl/change"
	"github.com/weir-edge/weir/internal/ctl/command"
	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/hour"
	"github.com/weir-edge/weir/internal/ctl/kinds"
	"github.com/weir-edge/weir/internal/ctl/status"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/internal/ctl/versions"
	"github.com/weir-edge/weir/pkg/region/consul"
)

const showHelp = `Prints the active settings of the shedder, under a comment that says where, since when, by
whom, and until when if they are temporary; once for all regions that have the same. Each
document that it prints can be passed to regionctl shedder set.

With VERSION, of which four digits are enough if no other begins with them, it prints
that document as it was applied, byte by byte.

--live asks every registered edge what it runs, and how its shedder stands: the level
for each upstream group (0 sheds nothing; each whole step sheds one class more, the last
one first), the utilization and which signal it comes from, what was shed of each class
since the edge started (with --prometheus: in the last hour, whichever edges restarted), and
what candidates would have shed. It exits with status 3 unless all edges run the active
settings.`

func showCommand(p *command.Program) *cobra.Command {
	var names []string
	var live bool
	c := command.New("show [VERSION]", "print the active settings, or what the shedders do", showHelp,
		`  regionctl shedder show > shedder.yaml
  regionctl shedder show --live
  regionctl shedder show --live --prometheus http://prometheus.example.com:9090
  regionctl shedder show --live -o json | jq '.regions[].nodes[].upstreams[] | select(.level > 0)'
  diff <(regionctl shedder show 3f2a) <(regionctl shedder show 77aa)`,
		func(ctx context.Context, args []string) error {
			switch {
			case live && len(args) > 0:
				return term.Misused("--live shows what the edges run, so VERSION %q has no meaning", args[0])
			case p.Prometheus != "" && !live:
				return term.Misused("--prometheus is for the counts of --live; add it")
			case live:
				if err := hour.Check(p.Prometheus); err != nil {
					return err
				}
				v, err := Live(ctx, p, names)
				if v != nil && p.Prometheus != "" {
					var failed error
					if v.Hour, failed = LastHour(ctx, p, names); failed != nil {
						return failed
					}
				}
				return command.Show(p, v, err, (*Standing).write)
			case len(args) > 0:
				return versions.ShowDocument(ctx, p, kinds.Shedder, names, args[0], false)
			}
			list, err := Active(ctx, p, names)
			return command.Show(p, list, err, writeSettings)
		})
	p.RegionFlag(c, &names)
	c.Flags().BoolVar(&live, "live", false, "ask the edges what they run and shed")
	hour.Flag(p, c)
	c.ValidArgsFunction = p.CompleteVersion(kinds.Shedder, &names)
	return c
}

// ActiveSettings describes, with -o json, the regions with the same active settings.
type ActiveSettings struct {
	Regions []string `json:"regions"`
	// Pointers are those of the regions that have one.
	Pointers map[string]*consul.Pointer `json:"pointers"`
	// InForce is the document that the pointers make active now; without it, edges use
	// their configuration.
	InForce  *consul.Named `json:"in_force"`
	Document string        `json:"document,omitempty"`
	Error    string        `json:"error,omitempty"`

	at time.Time // by the region's clock
}

// Active returns the active settings, once for all regions that have the same.
func Active(ctx context.Context, p *command.Program, names []string) ([]*ActiveSettings, error) {
	targets, err := p.Targets(kinds.Shedder, names)
	if err != nil {
		return nil, err
	}
	answers := fleet.Ask(ctx, targets, fleet.Look)
	list := []*ActiveSettings{}
	byID := map[string]*ActiveSettings{}
	readable := false
	for _, a := range answers {
		if a.Err != nil {
			continue
		}
		s := a.Value
		id := fmt.Sprint(versions.Alike(a.Target.Name, &s), s.Returns())
		if same := byID[id]; same != nil {
			same.add(a.Target.Name, s.Pointer)
			continue
		}
		entry := &ActiveSettings{Pointers: map[string]*consul.Pointer{}, InForce: s.Active, at: s.At}
		entry.add(a.Target.Name, s.Pointer)
		if s.Damage != nil {
			entry.Error = s.Damage.Error()
		} else if s.State == fleet.Active {
			entry.Document, readable = string(s.Document.Bytes), true
		}
		byID[id], list = entry, append(list, entry)
	}
	err = command.Unanswered(answers)
	if err == nil && !readable {
		err = term.Misused("no %s are active, so edges use their configuration; regionctl shedder set publishes settings, and show --live asks the edges", kinds.Shedder.What)
	}
	return list, err
}

func (e *ActiveSettings) add(region string, p *consul.Pointer) {
	if e.Regions = append(e.Regions, region); p != nil {
		e.Pointers[region] = p
	}
}

func writeSettings(list []*ActiveSettings, b *bytes.Buffer, s term.Style) {
	for i, entry := range list {
		if i > 0 {
			b.WriteString("---\n")
		}
		entry.write(b, s)
	}
}

// heading begins the comment lines that show writes above a document. They are removed from
// documents made from such output, so that they do not accumulate.
const heading = "#: "

func withoutHeading(document string) string {
	for strings.HasPrefix(document, heading) {
		_, document, _ = strings.Cut(document, "\n")
	}
	return document
}

// write writes a document with a comment, which is itself a valid document.
func (e *ActiveSettings) write(b *bytes.Buffer, s term.Style) {
	g := versions.Group{Regions: e.Regions, Running: e.Pointers, Unreadable: e.Error, At: e.at, Step: &versions.Step{Next: &fleet.Document{Kind: kinds.Shedder}}}
	fmt.Fprintf(b, heading+"%s\n", g.Runs(s))
	if p := e.Pointers[e.Regions[0]]; p != nil && p.ExpiresAt != nil && !p.Expired(e.at) {
		fmt.Fprintf(b, heading+"and then %s\n", change.Follows(p.Successor))
	}
	if e.Error != "" {
		fmt.Fprintf(b, heading+"%s\n", strings.ReplaceAll(term.Clean(e.Error), "\n", "\n"+heading))
	}
	if text := withoutHeading(e.Document); text != "" {
		b.WriteString(strings.TrimSuffix(term.Clean(text), "\n") + "\n")
	}
}

// Standing is what show --live prints with -o json.
type Standing struct {
	status.Convergence
	Hour *Hour `json:"last_hour,omitempty"` // with --prometheus
}

// Live returns what the edges run and shed.
func Live(ctx context.Context, p *command.Program, names []string) (*Standing, error) {
	s, err := status.Look(ctx, p, kinds.Shedder, names)
	if s == nil {
		return nil, err
	}
	if err == nil && !s.Converged {
		err = term.Partial("not all edges run the active settings, or there are none")
	}
	return &Standing{Convergence: *s}, err
}
