package ctl

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/internal/policy"
	"github.com/weir-edge/weir/pkg/field"
)

const policyHelp = `Behavior policies: which conduct of a client adds to its score, what a score means, and
what happens then. An edge reads its policy from the file that policy.file names in its
configuration, and again within seconds when that file changes.`

const policyExampleHelp = `Prints the shipped policy with an explanation of each field, ready to use. It is in shadow
mode: clients are judged and reported, and nothing else happens to them.`

const policyValidateHelp = `Reports every fault of a policy, with the path of its field and what to do about it. Nothing
is sent anywhere. FILE may be - for standard input.

Edges of the same release check the same things: none refuses a policy that passes here.

Exits with 0 if the policy is good and with 2 if it is not.`

func (p *program) policyCommand() *cobra.Command {
	c := group("policy", "write and check behavior policies", policyHelp)
	validate := command("validate FILE", "say what is wrong with a policy", policyValidateHelp,
		`  regionctl policy validate policy.yaml
  regionctl policy example | regionctl policy validate -`,
		func(_ context.Context, args []string) error { return p.validatePolicy(args[0]) })
	validate.ValidArgsFunction = completeDocument
	c.AddCommand(validate, command("example", "print the shipped policy", policyExampleHelp, `  regionctl policy example > policy.yaml`,
		func(context.Context, []string) error {
			if p.WantsJSON() {
				return term.Misused("the example explains itself in YAML; leave out -o json")
			}
			_, err := io.WriteString(p.Out, policy.Example)
			return err
		}))
	return c
}

// policyValidation is what policy validate prints with -o json.
type policyValidation struct {
	File    string    `json:"file"`
	Valid   bool      `json:"valid"`
	Version string    `json:"version,omitempty"`
	Mode    string    `json:"mode,omitempty"`
	Errors  []problem `json:"errors"`
}

func (p *program) validatePolicy(name string) error {
	data, err := p.readInput(policy.MaxBytes, name)
	if err != nil {
		return err
	}
	name = inputName(name)
	v := policyValidation{File: name, Errors: []problem{}}
	made, err := policy.Parse(data)
	if err == nil {
		v.Valid, v.Version, v.Mode = true, made.Version, policy.Enforce
		if made.Shadow {
			v.Mode = policy.Shadow
		}
	} else {
		v.Errors = problems(err)
	}
	switch {
	case p.WantsJSON():
		err = p.WriteJSON(v)
	case v.Valid:
		_, err = fmt.Fprintf(p.Out, "%s is good: %s, mode %s, version %s\n", term.Printable(name), term.Plural(len(made.Effects), "tier"), v.Mode, v.Version)
	default:
		_, err = io.WriteString(p.Out, term.Clean(field.All(err).In(name).Error()+"\n"))
	}
	if err == nil && !v.Valid {
		err = term.Misused("%s has %s; correct what is listed", name, term.Plural(len(v.Errors), "problem"))
	}
	return err
}
