package audit

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/internal/ctl/command"
	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/kinds"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/internal/ctl/versions"
)

const listHelp = `Lists all changes of every kind, newest first: rules, shedder settings,
behavior policies, topologies, drains and client networks, and acts that leave no document
behind, such as resets of counters. A change made in several regions at once is one line. A
region with ? does not answer: the change may have been made there, too.

regionctl audit verify checks whether the histories are intact.`

func listCommand(p *command.Program) *cobra.Command {
	var names []string
	var most int
	c := command.New("list", "show who did what, when and why", listHelp,
		`  regionctl audit list
  regionctl audit list -n 0 -o json | jq -r '.[] | select(.applied_by == "ana@desk") | .message'`,
		func(ctx context.Context, _ []string) error {
			list, regions, err := List(ctx, p, names, most)
			return command.Show(p, list, err, func(list []Entry, b *bytes.Buffer, _ term.Style) { writeDone(b, list, regions, err) })
		})
	p.RegionFlag(c, &names)
	versions.LinesFlag(c.Flags(), &most)
	return c
}

// Entry is one change of a kind.
type Entry struct {
	Kind string `json:"kind"`
	versions.HistoryEntry
}

// List returns the newest changes of so many regions.
func List(ctx context.Context, p *command.Program, names []string, most int) (list []Entry, regions versions.Asked, unread error) {
	if most < 0 {
		return nil, regions, term.Misused("--lines %d: must be 0 or above", most)
	}
	targets, err := targetsOf(p, names)
	if err != nil {
		return nil, regions, err
	}
	list = []Entry{}
	answers := versions.ReadChanges(ctx, p, targets, most) // of all kinds at once: a region that hangs costs one timeout
	for _, k := range recorded() {
		of := fleet.Filter(answers, func(a fleet.Answer[versions.History]) bool { return a.Target.Kind == k })
		regions = versions.AskedFor(of)
		for _, c := range versions.MergeHistories(of) {
			list = append(list, Entry{k.Name, c})
		}
		unread = cmp.Or(unread, command.Unanswered(of)) // the same region fails to answer for every kind
	}
	slices.SortStableFunc(list, func(a, b Entry) int { return b.AppliedAt.Compare(a.AppliedAt) })
	if most > 0 {
		list = list[:min(most, len(list))]
	}
	return list, regions, unread
}

func writeDone(b *bytes.Buffer, list []Entry, regions versions.Asked, err error) {
	if len(list) == 0 {
		b.WriteString(command.None("no changes yet", err))
		return
	}
	t := term.Table{}
	t.Row("WHEN", "WHAT", "BY", "REGIONS", "MESSAGE")
	for _, c := range list {
		what := strings.TrimSpace(c.Kind + " " + c.Version)
		if c.Kind == kinds.Acts.Name {
			what = "-" // the message says it
		}
		t.Row(term.Stamp(c.AppliedAt), what, term.Printable(c.AppliedBy), regions.Where(&c.HistoryEntry), c.Why())
	}
	t.Print(b)
}
