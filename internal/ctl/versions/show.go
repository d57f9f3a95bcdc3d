package versions

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/internal/ctl/command"
	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/pkg/region/consul"
)

const showHelp = `Prints a document as it was applied, byte by byte: the active one, or VERSION,
of which four digits are enough if no other begins with them. A terminal gets question
marks in place of control characters.

If the regions have different active versions, --region must choose one.
`

func ShowCommand(p *command.Program, k *fleet.Kind) *cobra.Command {
	var names []string
	var signatures bool
	asJSON := "With -o json the document comes with the pointer that names it."
	if k.Shown != nil {
		asJSON = "With -o json it prints what the document says, with defaults left out."
	}
	c := command.New("show [VERSION]", "print the active document, or another version", showHelp+asJSON,
		strings.ReplaceAll(`  regionctl rules show > rules.yaml
  regionctl rules show --region us-east
  diff <(regionctl rules show 3f2a) <(regionctl rules show 77aa)`, "rules", k.Name),
		func(ctx context.Context, args []string) error {
			return ShowDocument(ctx, p, k, names, strings.Join(args, ""), signatures)
		})
	p.RegionFlag(c, &names)
	c.Flags().BoolVar(&signatures, "signatures", false, "print its signatures instead")
	c.ValidArgsFunction = p.CompleteVersion(k, &names)
	return c
}

// Shown is what show prints with -o json.
type Shown struct {
	Region   string         `json:"region"`
	Pointer  consul.Pointer `json:"pointer"`
	Document string         `json:"document"`

	from *fleet.Target
}

// Fetch returns the active document, or another version.
func Fetch(ctx context.Context, p *command.Program, k *fleet.Kind, names []string, version string) (*Shown, error) {
	answers, err := askPointers(ctx, p, k, names)
	if err != nil {
		return nil, err
	}
	pointer, err := named(ctx, k, answers, version)
	if err != nil {
		return nil, err
	}
	data, from, err := loadVersion(ctx, answers, *pointer)
	if err != nil {
		return nil, err
	}
	return &Shown{from.Name, pointerOf(from, answers, pointer), string(data), from}, nil
}

// pointerOf returns the region's own pointer to a version. If it has none, only the version is known.
func pointerOf(from *fleet.Target, answers []fleet.Answer[History], to *consul.Pointer) consul.Pointer {
	for i := range answers {
		for _, p := range answers[i].Value.known() {
			if answers[i].Target == from && p.Version == to.Version {
				return p
			}
		}
	}
	return consul.Pointer{Version: to.Version, SHA256: to.SHA256, AppliedAt: time.Unix(0, 0).UTC()}
}

// Parse returns what the document says.
func (v *Shown) Parse() (*fleet.Document, error) {
	d, err := fleet.ParseDocument(v.from.Kind, "", []byte(v.Document))
	if err != nil {
		err = term.Failed("%s: version %s: %w", v.Region, v.Pointer.Version, err)
	}
	return d, err
}

// ShowDocument prints a version, or its signatures.
func ShowDocument(ctx context.Context, p *command.Program, k *fleet.Kind, names []string, version string, signatures bool) error {
	v, err := Fetch(ctx, p, k, names, version)
	if err != nil {
		return err
	}
	if signatures {
		list, err := v.from.Docs.Signatures(ctx, v.Pointer.Version)
		if err == nil && len(list) == 0 {
			err = fmt.Errorf("%s: version %s is not signed; apply it with --sign KEYFILE", v.Region, v.Pointer.Version)
		}
		if err != nil {
			return err
		}
		return p.WriteJSON(list)
	}
	if p.WantsJSON() && k.Shown != nil {
		d, err := v.Parse()
		if err != nil {
			return err
		}
		return p.WriteJSON(k.Shown(d.Body))
	}
	return p.Show(v, func(b *bytes.Buffer, _ term.Style) {
		text := v.Document
		if p.OutLive {
			text = term.Clean(text)
		}
		b.WriteString(text)
	})
}

// askPointers asks all regions what is active. It fails if no region answers.
func askPointers(ctx context.Context, p *command.Program, k *fleet.Kind, names []string) ([]fleet.Answer[History], error) {
	targets, err := p.Targets(k, names)
	if err != nil {
		return nil, err
	}
	answers := fleet.Ask(ctx, targets, ReadPointer)
	away, err := fleet.Failures(answers)
	if len(away) == len(targets) {
		return nil, err
	}
	if err != nil {
		p.Warn("no answer from %s: %v", strings.Join(away, ", "), err)
	}
	return answers, nil
}

// named returns the one version that begins with these digits or, without any, the active
// one.
func named(ctx context.Context, k *fleet.Kind, answers []fleet.Answer[History], digits string) (pointer *consul.Pointer, err error) {
	if digits != "" {
		pointer, err = FindVersion(ctx, k, answers, digits)
	} else {
		pointer, err = active(k, answers)
	}
	if err != nil && !errors.Is(err, consul.ErrCorrupt) {
		err = term.Misused("%w", err)
	}
	return pointer, err
}

// active returns the one version that is active in all regions.
func active(k *fleet.Kind, answers []fleet.Answer[History]) (*consul.Pointer, error) {
	var list []string
	var pointer *consul.Pointer
	for _, a := range answers {
		if a.Err != nil || a.Value.Version() == "" {
			continue
		}
		pointer = a.Value.Pointer
		list = append(list, pointer.Version)
	}
	switch {
	case pointer == nil:
		return nil, fmt.Errorf("no %s %s active; publish with regionctl %s %s", k.What, k.Are, k.Name, k.Put)
	case len(term.Distinct(list)) > 1:
		return nil, fmt.Errorf("the regions have different active versions, %s; choose one, or a region with --region", strings.Join(term.Distinct(list), ", "))
	}
	return pointer, nil
}

// ActiveDocument returns the document that is active in all regions that answer. If none does,
// the error calls it what and says remedy.
func ActiveDocument(ctx context.Context, p *command.Program, k *fleet.Kind, names []string, what, remedy string) (*fleet.Document, error) {
	targets, err := p.Targets(k, names)
	if err != nil {
		return nil, err
	}
	answers := fleet.Ask(ctx, targets, ReadPointer)
	if away, err := fleet.Failures(answers); len(away) == len(answers) {
		return nil, term.Failed("the active %s cannot be read:\n%w\n%s", what, err, remedy)
	}
	pointer, err := active(k, answers)
	if err != nil {
		return nil, term.Misused("%w", err)
	}
	return FetchVersion(ctx, answers, *pointer)
}
