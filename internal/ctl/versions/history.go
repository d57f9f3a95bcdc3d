package versions

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weir-edge/weir/internal/ctl/command"
	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/report"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/pkg/region/consul"
)

const historyHelp = `Shows who applied which version, when, instead of which, and why; the newest first.
A change of several regions at once is one line. * marks the active version. A canary that was
not promoted is a line, too: who ended it, and why. A region with ? does not answer: the
change may have been made there, too.

regionctl rules show prints any version that Consul still has, and regionctl undo
rules --to VERSION restores it. Each change prunes all but the newest 200 (see
regionctl prune --help); the history itself stays complete.`

const historyExamples = `  regionctl rules history
  regionctl rules history --region eu-west -n 0
  regionctl rules history -o json | jq -r '.[] | select(.applied_by == "ana") | .version'`

func HistoryCommand(p *command.Program, k *fleet.Kind) *cobra.Command {
	var names []string
	var most int
	c := command.New("history", "show who changed what, when and why", k.Reworded(historyHelp), k.Reworded(historyExamples),
		func(ctx context.Context, _ []string) error {
			v, err := ListChanges(ctx, p, k, names, most)
			return command.Show(p, v.List, err, func(_ []HistoryEntry, b *bytes.Buffer, s term.Style) { v.write(k, b, s, err) })
		})
	p.RegionFlag(c, &names)
	LinesFlag(c.Flags(), &most)
	return c
}

// HistoryEntry is one change, in all regions that it was made in.
type HistoryEntry struct {
	consul.Change
	Regions []string `json:"regions"`
	// Versions are those of the regions, if they differ.
	Versions []string `json:"versions,omitempty"`
	// Current are those of the regions in which it is active.
	Current []string `json:"current"`
}

// Why says why the change was made, and what was unusual about it.
func (e *HistoryEntry) Why() string {
	why := e.Message
	for _, note := range [][2]string{{"canary passed on ", e.Tried}, {"broke the lock of ", e.BrokeLockOf}, {"forced: ", e.Forced}, {"not reached: ", strings.Join(e.Unreached, ", ")}} {
		if note[1] != "" {
			why += " (" + note[0] + note[1] + ")"
		}
	}
	return term.Printable(strings.TrimSpace(why))
}

// ReadChanges reads more than that many of the newest changes of each region; 0: all.
func ReadChanges(ctx context.Context, p *command.Program, targets []*fleet.Target, most int) []fleet.Answer[History] {
	ask := fleet.Ask[History]
	if most == 0 {
		ask = fleet.AskUnbounded[History] // however many pages that takes; each is bounded
	}
	answers := ask(ctx, targets, ReadHistory(func(h *History) bool { return most > 0 && len(h.Changes) > most }))
	for _, a := range answers {
		if a.Value.Wrong != nil {
			p.Warn("%s: %v", a.Target.Name, a.Value.Wrong)
		}
	}
	return answers
}

// MergeHistories joins the histories of regions, newest change first. A change among the newest of
// all is also among the newest in each of its regions.
func MergeHistories(answers []fleet.Answer[History]) []HistoryEntry {
	merged := []HistoryEntry{}
	type id struct {
		version, by, replaced string
		at                    int64
	}
	index := map[id]int{}
	for _, a := range answers {
		current := slices.IndexFunc(a.Value.Changes, a.Value.isCurrent)
		for n, c := range a.Value.Changes {
			of := id{c.Version, c.AppliedBy, c.Replaced, c.AppliedAt.UnixNano()}
			if a.Target.Kind.Back != nil { // where the rest differs, so do the versions of one change
				of.version, of.replaced = c.Message, ""
			}
			i, known := index[of]
			if !known {
				i = len(merged)
				index[of] = i
				merged = append(merged, HistoryEntry{Change: c, Regions: []string{}, Current: []string{}})
			}
			if m := &merged[i]; m.Version != c.Version {
				if m.Version != "" {
					m.Versions = []string{m.Version}
				}
				m.Versions = append(m.Versions, c.Version)
				m.Version, m.SHA256, m.Replaced = "", "", ""
			}
			merged[i].Regions = append(merged[i].Regions, a.Target.Name)
			if n == current {
				merged[i].Current = append(merged[i].Current, a.Target.Name)
			}
		}
	}
	slices.SortStableFunc(merged, func(a, b HistoryEntry) int {
		return cmp.Or(b.AppliedAt.Compare(a.AppliedAt), cmp.Compare(a.Version, b.Version))
	})
	return merged
}

// LinesFlag adds --lines.
func LinesFlag(f *pflag.FlagSet, most *int) {
	f.IntVarP(most, "lines", "n", 20, "how many changes to show; 0 shows all")
}

// Changes are the newest changes of one kind.
type Changes struct {
	List    []HistoryEntry
	more    bool // there are older ones
	regions Asked
}

// Asked are the regions that were asked for their changes.
type Asked struct {
	all  int
	away []string
}

// AskedFor returns the regions of these answers.
func AskedFor(answers []fleet.Answer[History]) Asked {
	away, _ := fleet.Failures(answers)
	return Asked{len(answers), away}
}

// Where lists the regions of a change. Those that do not answer, and were reached, may have it, too.
func (a *Asked) Where(e *HistoryEntry) string {
	if len(e.Regions) == a.all && a.all > 1 {
		return "all"
	}
	list := slices.Clone(e.Regions)
	for _, name := range a.away {
		if !slices.Contains(e.Unreached, name) {
			list = append(list, name+"?")
		}
	}
	return strings.Join(list, ", ")
}

// ListChanges returns the newest changes, or all if most is 0.
func ListChanges(ctx context.Context, p *command.Program, k *fleet.Kind, names []string, most int) (v Changes, err error) {
	targets, err := p.Targets(k, names)
	if err != nil {
		return v, err
	}
	answers := ReadChanges(ctx, p, targets, most)
	v = Changes{List: MergeHistories(answers), regions: AskedFor(answers)}
	if v.more = most > 0 && len(v.List) > most; v.more {
		v.List = v.List[:most]
	}
	return v, command.Unanswered(answers)
}

func (v *Changes) write(k *fleet.Kind, b *bytes.Buffer, s term.Style, err error) {
	if len(v.List) == 0 {
		b.WriteString(command.None("no changes yet", err))
		return
	}
	t := term.Table{}
	row := func(mark, at, by, version, replaced, until, where, message string) {
		cells := []string{mark, at, by, version, replaced, until, where, message}
		if !k.Temporary {
			cells = slices.Delete(cells, 5, 6)
		}
		t.Row(cells...)
	}
	row("", "WHEN", "BY", "VERSION", "REPLACED", "UNTIL", "REGIONS", "MESSAGE")
	for _, c := range v.List {
		mark, where := " ", v.regions.Where(&c)
		if len(c.Current) > 0 {
			mark = s.Green("*")
		}
		ends := "-"
		if c.ExpiresAt != nil {
			ends = report.Until(&c.Pointer)
		}
		row(mark, term.Stamp(c.AppliedAt), term.Printable(c.AppliedBy), c.Version, term.OrDash(c.Replaced), ends, where, c.Why())
	}
	t.Print(b)
	if v.more {
		b.WriteString("… and more before; -n 0 shows all\n")
	}
}
