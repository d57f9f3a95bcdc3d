package rules

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/ctl/command"
	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/kinds"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/rules"
)

const validateHelp = `Reports the faults of a rule document, each with the path of its field and what to do about
it, and warns of rules that cannot work. Nothing is sent anywhere, so this needs no fleet
file and suits an editor, a commit hook or CI. FILE may be - for standard input.

Edges of the same release check the same things: none refuses a document that passes here.
Nor does Consul, whose values are at most 524,288 bytes: long documents are compressed.

Exits with 0 if the document is valid and with 2 if it is not.`

func validateCommand(p *command.Program) *cobra.Command {
	var apart apartness
	c := command.ValidateCommand(p, kinds.Rules, "report what is wrong with a document", validateHelp,
		`  regionctl rules validate rules.yaml
  git show HEAD:rules.yaml | regionctl rules validate -
  regionctl rules validate rules.yaml -o json | jq -r '.errors[].path'`,
		about(p, &apart))
	apart.flags(c)
	c.PreRunE = func(*cobra.Command, []string) error { return apart.check() }
	return c
}

// Validate returns every fault of a document of rules.
func Validate(p *command.Program, in command.Input) (*Validation, error) {
	v, _, err := command.Validate(p, kinds.Rules, in, about(p, &usualApartness))
	return v, err
}

func about(p *command.Program, apart *apartness) command.About[*Validation] {
	return func(c command.Checked, errors []term.Problem, d *fleet.Document) (*Validation, string, []string) {
		v := &Validation{Checked: c, Errors: errors}
		if !c.Valid {
			return v, "", nil
		}
		p.WarnOf(d)
		b := kinds.RulesOf(d)
		v.Rules, v.Warnings = len(b.Written), b.Warnings()
		v.Global = bounds(b, *apart)
		for c := range b.Set.Variants() {
			if c.Limit.Reported { // with the default store.timeout
				v.Overshoot = append(v.Overshoot, overshoot{titleOf(c), c.Limit.Overshoot(limiter.BoundDemand, limiter.UsualReportDelay, 0)})
			}
			if c.UnderLoad != nil {
				v.UnderLoad = append(v.UnderLoad, loadRange{titleOf(c), c.UnderLoad.From, c.Limit.Limit, c.Limit.Floor().Limit})
			}
		}
		return v, term.Plural(v.Rules, "rule"), v.notes()
	}
}

// Validation is what validate prints with -o json.
type Validation struct {
	command.Checked
	Rules  int            `json:"rules"`
	Errors []term.Problem `json:"errors"`
	// Warnings lists rules that cannot work as they are.
	Warnings []string `json:"warnings,omitempty"`
	// Overshoot says by what fraction reported rules may be exceeded at ten times the
	// limit.
	Overshoot []overshoot `json:"overshoot,omitempty"`
	// Global says how many units beyond their limits global rules may let pass.
	Global []globalBounds `json:"global,omitempty"`
	// UnderLoad says how far limits that follow load fall.
	UnderLoad []loadRange `json:"under_load,omitempty"`
}

type loadRange struct {
	Rule   string  `json:"rule"`
	From   float64 `json:"from"`
	Full   int64   `json:"full"`
	Lowest int64   `json:"lowest"`
}

// titleOf names a rule, or its experiment.
func titleOf(c *rules.Compiled) string {
	if c.IsVariant() {
		return c.ID + " (" + adminapi.VariantExperiment + ")"
	}
	return c.ID
}

type overshoot struct {
	Rule  string  `json:"rule"`
	Ratio float64 `json:"ratio"`
}

// notes say what to know about the rules.
func (v *Validation) notes() (list []string) {
	for _, o := range v.Overshoot {
		list = append(list, fmt.Sprintf("rule %s is reported: at ten times its limit up to %s more may pass, plus two requests per node", term.Printable(o.Rule), term.Percent(o.Ratio)))
	}
	for _, g := range v.Global {
		list = append(list, g.note())
	}
	for _, l := range v.UnderLoad {
		list = append(list, fmt.Sprintf("rule %s follows load: above a utilization of %v its limit falls from %d to %d", term.Printable(l.Rule), l.From, l.Full, l.Lowest))
	}
	return list
}
