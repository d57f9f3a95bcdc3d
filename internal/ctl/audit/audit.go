// Package audit has the commands that list and verify what was done.
package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/internal/ctl/command"
	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/kinds"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/pkg/region/consul"
)

const help = `Rules, shedder settings, behavior policies, the topology, drains, client networks, and acts
such as resets each have a history in each region. It is a chain: each entry has
a number and the hash of the entry before it, and names the Consul token that made the change
as well as --by.`

const verifyHelp = `Verifies the chain of each history in all regions of the fleet file, or in those of
--region, and names each entry that was removed, changed or inserted. Then the exit status
is 1. It also says if the newest change is not the one that made the active version active:
then a program other than regionctl wrote the pointer, for example one that was active
before; apply the document again if it is right. A regionctl that is killed leaves either
both or neither.

Anyone who can write to Consul can still cut off the newest entries with the head, or rewrite
the whole chain. Only a copy kept elsewhere reveals that: save the output of -o json
where no writer to Consul can change it, and pass it the next time as --since.

  regionctl audit verify -o json --since heads.json >next.json && mv next.json heads.json

The token and --by are what regionctl wrote. Another program with write access to the
history may claim any: only Consul's own audit log knows who used a token.`

func Command(p *command.Program) *cobra.Command {
	c := command.Group("audit", "show who did what, and verify that the record is unchanged", help)
	c.AddCommand(listCommand(p), verifyCommand(p))
	return c
}

func verifyCommand(p *command.Program) *cobra.Command {
	var names []string
	var since string
	c := command.New("verify", "find removed, changed or inserted entries", verifyHelp,
		`  regionctl audit verify
  regionctl audit verify -o json --since heads.json`,
		func(ctx context.Context, _ []string) error {
			list, err := Verify(ctx, p, names, since)
			return command.Show(p, list, err, writeAudits)
		})
	p.RegionFlag(c, &names)
	c.Flags().StringVar(&since, "since", "", "compare with the earlier output of -o json in this `FILE`")
	command.CompleteFiles(c, "since", "json")
	return c
}

// Audited is the history of one kind in one region.
type Audited struct {
	Region string `json:"region"`
	Kind   string `json:"kind"`
	*consul.Audit
}

// recorded returns the kinds that have a history.
func recorded() []*fleet.Kind {
	return []*fleet.Kind{kinds.Rules, kinds.Shedder, kinds.Policy, kinds.Topology, kinds.Drains, kinds.Clients, kinds.Acts}
}

// targetsOf are the regions with these names, for each of those kinds.
func targetsOf(p *command.Program, names []string) (targets []*fleet.Target, err error) {
	for _, k := range recorded() {
		more, err := p.Targets(k, names)
		if err != nil {
			return nil, err
		}
		targets = append(targets, more...)
	}
	return targets, nil
}

// Verify verifies all histories, and that they continue those in the file since; "": none. Its error
// counts the faults.
func Verify(ctx context.Context, p *command.Program, names []string, since string) ([]Audited, error) {
	earlier, err := readAudits(since)
	if err != nil {
		return nil, err
	}
	targets, err := targetsOf(p, names)
	if err != nil {
		return nil, err
	}
	answers := fleet.AskUnbounded(ctx, targets, verifyOne) // each page is bounded
	list, faults := []Audited{}, 0
	for _, a := range answers {
		if a.Err != nil {
			continue
		}
		found := Audited{a.Target.Name, a.Target.Kind.Name, a.Value}
		if i := slices.IndexFunc(earlier, func(e Audited) bool { return e.Region == found.Region && e.Kind == found.Kind }); i >= 0 {
			found.Since(earlier[i].Audit)
		}
		faults += len(found.Faults)
		list = append(list, found)
	}
	if faults > 0 {
		return list, term.Failed("the history has %s; see regionctl audit verify --help", term.Plural(faults, "fault"))
	}
	return list, command.Unanswered(answers)
}

// verifyOne also compares the history with the pointer. It reads the pointer last: whatever comes
// in the meantime is newer than the audited history, and no change that was put back.
func verifyOne(ctx context.Context, t *fleet.Target) (*consul.Audit, error) {
	a, err := t.Docs.Audit(ctx)
	if err != nil {
		return nil, err
	}
	brief, cancel := t.Bounded(ctx)
	defer cancel()
	now, err := fleet.LookAtPointer(brief, t)
	if err == nil && now.Pointer != nil {
		err = t.Docs.Active(brief, a, *now.Pointer)
	}
	return a, err
}

func readAudits(file string) (list []Audited, err error) {
	if file == "" {
		return nil, nil
	}
	data, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(data, &list)
	}
	if err != nil {
		return nil, term.Misused("--since: %w; it must be the output of regionctl audit verify -o json", err)
	}
	for _, a := range list {
		if a.Audit == nil || a.Region == "" || a.Kind == "" {
			return nil, term.Misused("--since: %s is not the output of regionctl audit verify -o json", file)
		}
	}
	return list, nil
}

func writeAudits(list []Audited, b *bytes.Buffer, s term.Style) {
	t := term.Table{}
	t.Row("REGION", "HISTORY", "ENTRIES", "HEAD", "RESULT")
	for _, a := range list {
		result := s.Green("good")
		if len(a.Faults) > 0 {
			result = s.Red(term.Plural(len(a.Faults), "fault"))
		}
		t.Row(a.Region, a.Kind, strconv.Itoa(a.Head.Number), term.OrDash(a.Head.Hash), result)
	}
	t.Print(b)
	for _, a := range list {
		for _, fault := range a.Faults {
			b.WriteString(strings.Join([]string{a.Region, a.Kind, term.Printable(fault)}, ": ") + "\n")
		}
	}
}
