package ctl

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/pkg/region"
)

const showSettingsHelp = `Prints the settings of the shedder that are in force, under a comment that says where,
since when, by whom, and until when if that is for a time; once for all regions that
have the same. What it prints for one version is a document for regionctl shedder set.

With VERSION, of which four digits are enough if no other begins with them, it prints
that document as it was put in force, byte by byte.

--live asks every registered edge what it runs, and how its shedder stands: the level
for each upstream group (0 sheds nothing; each whole step sheds one class more, the last
one first), the utilization and which signal it comes from, what was shed of each class
since the edge started, and what candidates would have shed. It ends with status 3
unless all edges run what is in force.`

func (p *program) showSettingsCommand() *cobra.Command {
	var names []string
	var live bool
	c := command("show [VERSION]", "print the settings in force, or what the shedders do", showSettingsHelp,
		`  regionctl shedder show > shedder.yaml
  regionctl shedder show --live
  regionctl shedder show --live -o json | jq '.regions[].nodes[].upstreams[] | select(.level > 0)'
  diff <(regionctl shedder show 3f2a) <(regionctl shedder show 77aa)`,
		func(ctx context.Context, args []string) error {
			switch {
			case live && len(args) > 0:
				return misused("--live shows what the edges run, so VERSION %q has no meaning", args[0])
			case live:
				return p.showLive(ctx, names)
			case len(args) > 0:
				return p.showDocument(ctx, shedderKind, names, args[0])
			}
			return p.showSettings(ctx, names)
		})
	p.regionFlag(c, &names)
	c.Flags().BoolVar(&live, "live", false, "ask the edges what they run and shed")
	c.ValidArgsFunction = p.completeVersion(shedderKind, &names)
	return c
}

// settingsInForce are the regions that have the same in force, with -o json.
type settingsInForce struct {
	Regions []string        `json:"regions"`
	Pointer *region.Pointer `json:"pointer"`
	// InForce is what the pointer means now; without it, edges have what their
	// configuration says.
	InForce  *region.Named `json:"in_force"`
	Document string        `json:"document,omitempty"`
	Error    string        `json:"error,omitempty"`
}

func (p *program) showSettings(ctx context.Context, names []string) error {
	targets, closeAll, err := p.targetsOf(shedderKind, names)
	if err != nil {
		return err
	}
	defer closeAll()
	answers := ask(ctx, p, targets, look)
	list := []*settingsInForce{}
	place := map[string]*settingsInForce{}
	readable := false
	for _, a := range answers {
		if a.err != nil {
			continue
		}
		s := a.value
		id := fmt.Sprint(s.version(), s.pointer != nil, s.until(), s.returns())
		if s.broken != nil {
			id = "broken " + a.target.name
		}
		if same := place[id]; same != nil {
			same.Regions = append(same.Regions, a.target.name)
			continue
		}
		entry := &settingsInForce{Regions: []string{a.target.name}, Pointer: s.pointer, InForce: s.inForce}
		if s.broken != nil {
			entry.Error = s.broken.Error()
		} else if s.running != nil {
			entry.Document, readable = string(s.running.bytes), true
		}
		place[id], list = entry, append(list, entry)
	}
	if err := p.show(list, func(b *bytes.Buffer, s style) {
		for i, entry := range list {
			if i > 0 {
				b.WriteString("---\n")
			}
			entry.write(b, s)
		}
	}); err != nil {
		return err
	}
	if err := unanswered(answers); err != nil {
		return err
	}
	if !readable {
		return misused("no %s are in force, so edges have what their configuration says; regionctl shedder set publishes them, and show --live asks the edges", shedderKind.what)
	}
	return nil
}

// write makes a document with a comment, which is one, too.
func (e *settingsInForce) write(b *bytes.Buffer, s style) {
	g := diffGroup{Regions: e.Regions, Running: e.Pointer, Unreadable: e.Error, aim: &aim{next: &document{kind: shedderKind}}}
	fmt.Fprintf(b, "# %s\n", g.runs(s))
	if p := e.Pointer; p != nil && p.ExpiresAt != nil && !p.Expired(time.Now()) {
		fmt.Fprintf(b, "# and then %s\n", follows(p.Then))
	}
	if e.Error != "" {
		fmt.Fprintf(b, "# %s\n", strings.ReplaceAll(clean(e.Error), "\n", "\n# "))
	}
	if text := e.Document; text != "" {
		b.WriteString(strings.TrimSuffix(clean(text), "\n") + "\n")
	}
}

// follows says what is in force after something temporary.
func follows(then *region.Named) string {
	if then == nil {
		return "what the configuration of the edges says"
	}
	return then.Version + " again"
}

func (p *program) showLive(ctx context.Context, names []string) error {
	targets, closeAll, err := p.targetsOf(shedderKind, names)
	if err != nil {
		return err
	}
	defer closeAll()
	s, err := p.showAll(ctx, targets, (*fleetStatus).writeLive)
	if err == nil && !s.Converged {
		err = partial("not all edges run what is in force, or there are none")
	}
	return err
}
