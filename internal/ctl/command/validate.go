package command

import (
	"context"
	"fmt"
	"io"
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

// ValidateCommand returns the command that lists every fault of a document. about returns what it
// prints with -o json, and otherwise what a valid document has, with notes on separate lines.
func ValidateCommand(p *Program, k *fleet.Kind, short, help, examples string, about func(Checked, []term.Problem, *fleet.Document) (answer any, has string, notes []string)) *cobra.Command {
	c := New("validate FILE", short, help, examples, func(_ context.Context, args []string) error {
		d, faults, err := p.read(k, args[0])
		if err != nil {
			return err
		}
		v := Checked{File: InputName(args[0]), Valid: faults == nil}
		if v.Valid {
			v.Version = d.Version()
		}
		answer, has, notes := about(v, append([]term.Problem{}, term.Problems(faults)...), d)
		switch {
		case p.WantsJSON():
			err = p.WriteJSON(answer)
		case v.Valid:
			good := fmt.Sprintf("%s is good: %s, version %s", term.Printable(v.File), has, v.Version)
			_, err = io.WriteString(p.Out, strings.Join(append([]string{good}, notes...), "\n")+"\n")
		default:
			_, err = io.WriteString(p.Out, term.Clean(term.Faults(v.File, faults)+"\n"))
		}
		if err == nil && faults != nil {
			err = term.Misused("%s has %s; correct what is listed", v.File, term.Plural(len(field.All(faults)), "problem"))
		}
		return err
	})
	c.ValidArgsFunction = CompleteDocument
	return c
}
