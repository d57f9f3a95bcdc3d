// Package policy holds the commands that write, check, test and publish behavior policies.
package policy

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/internal/ctl/change"
	"github.com/weir-edge/weir/internal/ctl/command"
	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/kinds"
	"github.com/weir-edge/weir/internal/ctl/status"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/internal/ctl/unfinished"
	"github.com/weir-edge/weir/internal/ctl/versions"
	"github.com/weir-edge/weir/internal/policy"
)

const help = `Behavior policies define which behavior of a client adds to its score, what a score means, and
what happens then.

They are stored in Consul like the rules: each region keeps the newest versions, and one pointer
to the active one, which the edges with policy.source consul follow within a second. An
edge with policy.source file reads its own file, and rereads it within seconds of a change.
Where nothing is published, clients are not evaluated.`

const exampleHelp = `Prints the default policy with an explanation of each field, ready to use. It is in shadow
mode: clients are evaluated and reported, and nothing else happens to them.`

const validateHelp = `Reports every fault of a policy, with the path of its field and what to do about it. Nothing
is sent anywhere. FILE may be - for standard input.

Edges of the same release check the same things: none refuses a policy that passes here.

Exits with 0 if the policy is valid and with 2 if it is not.`

const diffHelp = `Shows what would change if FILE were applied: which fields get which new value. Policies
are compared by what they mean, so comments and defaults that are written out make no
difference; where nothing is published yet, the comparison is with the default policy.

Regions that run the same version are shown together. Nothing is changed.

Exits with 0 whether there is a difference or not; with --exit-code, as with git, 1
says that there is one.`

const statusHelp = `Shows for every region which policy is active, since when and by whom, and what is on trial;
and for every registered edge what it runs, where that came from, and what it refused and
why. A region has converged when it has edges and all of them run what they should: an edge
that follows no policy does not. The columns are those of regionctl rules status.

--watch looks again every two seconds until it is interrupted; --watch=10s every ten.
With -o json each look is one line.

Exits with 0 if all regions have converged and with 3 if not.`

func Command(p *command.Program) *cobra.Command {
	k := kinds.Policy
	c := command.Group("policy", "write and publish behavior policies", help)
	command.Stage(c, "Look first:", exampleCommand(p), validateCommand(p), testCommand(p), versions.DiffCommand(p, k, diffHelp))
	command.Stage(c, "Change:", change.ApplyCommand(p, k))
	command.Stage(c, "Look after:", status.Command(p, k, statusHelp), unfinished.Command(p, k), versions.HistoryCommand(p, k), versions.ShowCommand(p, k))
	return c
}

func exampleCommand(p *command.Program) *cobra.Command {
	return command.New("example", "print the default policy", exampleHelp, `  regionctl policy example > policy.yaml`,
		func(context.Context, []string) error {
			if p.WantsJSON() {
				return term.Misused("the example explains itself in YAML; leave out -o json")
			}
			_, err := io.WriteString(p.Out, policy.Example)
			return err
		})
}

// validation is what policy validate prints with -o json.
type validation struct {
	command.Checked
	Mode   string         `json:"mode,omitempty"`
	Errors []term.Problem `json:"errors"`
}

func validateCommand(p *command.Program) *cobra.Command {
	return command.ValidateCommand(p, kinds.Policy, "report what is wrong with a policy", validateHelp,
		`  regionctl policy validate policy.yaml
  regionctl policy example | regionctl policy validate -`,
		func(c command.Checked, errors []term.Problem, d *fleet.Document) (any, string, []string) {
			v := validation{Checked: c, Errors: errors}
			if !c.Valid {
				return v, "", nil
			}
			made := d.Body.(*kinds.PolicyBook).Made
			if v.Mode = policy.Enforce; made.Shadow {
				v.Mode = policy.Shadow
			}
			return v, fmt.Sprintf("%s, mode %s", term.Plural(len(made.Effects), "tier"), v.Mode), nil
		})
}
