package ctl

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/pkg/region"
)

const showHelp = `Prints a rule document as it was applied, byte by byte: the one in force, or VERSION,
of which four digits are enough if no other begins with them. On a terminal, what that
would obey is shown as a question mark.

If the regions have different versions in force, --region must say which is meant.
With -o json the document comes with the pointer that names it.`

func (p *program) showCommand() *cobra.Command {
	var names []string
	c := command("show [VERSION]", "print the document in force, or another version", showHelp,
		`  regionctl rules show > rules.yaml
  regionctl rules show --region us-east
  diff <(regionctl rules show 3f2a) <(regionctl rules show 77aa)`,
		func(ctx context.Context, args []string) error {
			return p.showDocument(ctx, rulesKind, names, strings.Join(args, ""))
		})
	p.regionFlag(c, &names)
	c.ValidArgsFunction = p.completeVersion(rulesKind, &names)
	return c
}

// shown is what show prints with -o json.
type shown struct {
	Region   string         `json:"region"`
	Pointer  region.Pointer `json:"pointer"`
	Document string         `json:"document"`
}

func (p *program) showDocument(ctx context.Context, k *kind, names []string, version string) error {
	targets, closeAll, err := p.targetsOf(k, names)
	if err != nil {
		return err
	}
	defer closeAll()
	answers := ask(ctx, p, targets, recall)
	away, err := failures(answers)
	if len(away) == len(targets) {
		return err
	}
	if err != nil {
		p.warn("no answer from %s: %v", strings.Join(away, ", "), err)
	}
	var pointer *region.Pointer
	if version != "" {
		pointer, err = p.recollect(ctx, k, answers, version)
	} else {
		pointer, err = k.inForce(answers)
	}
	if err != nil {
		return misused("%w", err)
	}
	data, from, err := p.load(ctx, answers, *pointer)
	if err != nil {
		return err
	}
	if p.wantsJSON() {
		return p.writeJSON(shown{from.name, *pointer, string(data)})
	}
	if p.outLive {
		data = []byte(clean(string(data)))
	}
	_, err = p.out.Write(data)
	return err
}

// inForce is the one version that all regions have in force.
func (k *kind) inForce(answers []answer[memory]) (*region.Pointer, error) {
	var list []string
	var pointer *region.Pointer
	for _, a := range answers {
		if a.err != nil || a.value.version() == "" {
			continue
		}
		pointer = a.value.pointer
		list = append(list, pointer.Version)
	}
	switch {
	case pointer == nil:
		return nil, fmt.Errorf("no %s are in force; regionctl %s %s publishes them", k.what, k.name, k.put)
	case len(distinct(list)) > 1:
		return nil, fmt.Errorf("the regions have different versions in force, %s; choose one, or a region with --region", strings.Join(distinct(list), ", "))
	}
	return pointer, nil
}
