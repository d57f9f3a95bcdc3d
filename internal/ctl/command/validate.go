package command

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/pkg/field"
)

// Checked begins what validate prints with -o json.
type Checked struct {
	File    string `json:"file"`
	Valid   bool   `json:"valid"`
	Version string `json:"version,omitempty"`
}

// About returns what validate says of a document in JSON, and otherwise what a valid document has,
// with notes on separate lines.
type About[T any] func(Checked, []term.Problem, *fleet.Document) (answer T, has string, notes []string)

// ValidateCommand returns the command that lists every fault of a document.
func ValidateCommand[T any](p *Program, k *fleet.Kind, short, help, examples string, about About[T]) *cobra.Command {
	c := New("validate FILE", short, help, examples, func(_ context.Context, args []string) error {
		answer, text, err := Validate(p, k, p.Input(args[0]), about)
		if text == "" {
			return err
		}
		return cmp.Or(p.Show(answer, func(b *bytes.Buffer, _ term.Style) { b.WriteString(text + "\n") }), err)
	})
	c.ValidArgsFunction = CompleteDocument
	return c
}

// Validate returns every fault of a document, also as text, and counts them in its error.
func Validate[T any](p *Program, k *fleet.Kind, in Input, about About[T]) (answer T, text string, err error) {
	d, faults, err := p.read(k, in)
	if err != nil {
		return answer, "", err
	}
	v := Checked{File: in.Name, Valid: faults == nil}
	if !v.Valid {
		answer, _, _ = about(v, term.Problems(faults), d)
		return answer, term.Clean(term.Faults(v.File, faults)), term.Misused("%s has %s; correct what is listed", v.File, term.Plural(field.All(faults).Count(), "problem"))
	}
	v.Version = d.Version()
	answer, has, notes := about(v, []term.Problem{}, d)
	good := fmt.Sprintf("%s is good: %s, version %s", term.Printable(v.File), has, v.Version)
	return answer, strings.Join(append([]string{good}, notes...), "\n"), nil
}
