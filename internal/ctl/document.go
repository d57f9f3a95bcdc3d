package ctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/rules"
	"github.com/weir-edge/weir/pkg/region"
)

// document is a rule document that is good.
type document struct {
	name  string // the file's, for messages; empty for one that Consul had
	bytes []byte
	set   *rules.Set
	rules []rules.Rule // as written, by the index of set
}

func (d *document) version() string { return d.set.Version() }

// label says which one it is.
func (d *document) label() string {
	if d.name == "" {
		return "back to " + d.version()
	}
	return d.name + " is " + d.version()
}

// parseDocument returns rules.Errors for a bad document.
func parseDocument(name string, data []byte) (*document, error) {
	set, err := rules.Load(data)
	if err != nil {
		return nil, err
	}
	written, err := rules.Parse(data)
	if err != nil {
		return nil, err
	}
	return &document{name, data, set, written.Rules}, nil
}

// readDocument reads a file, or standard input for -. Its error is usage: either
// there is no such file, or it lists every problem.
func (p *program) readDocument(name string) (*document, error) {
	data, err := p.readInput(name)
	if err != nil {
		return nil, err
	}
	name = inputName(name)
	d, err := parseDocument(name, data)
	if err != nil {
		found := problems(err)
		list := make([]string, len(found))
		for i, e := range found {
			list[i] = "\n  " + e.String()
		}
		return nil, misused("%s has %s:%s", name, plural(len(found), "problem"), strings.Join(list, ""))
	}
	return d, nil
}

// inputName is a file's name for messages.
func inputName(name string) string {
	if name == "-" {
		return "standard input"
	}
	return name
}

func (p *program) readInput(name string) ([]byte, error) {
	in := p.in
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, misused("%w", err)
		}
		defer file.Close() // only read
		in = file
	}
	// One byte more than allowed, so that validation sees that it is too long.
	data, err := io.ReadAll(io.LimitReader(in, rules.MaxBytes+1))
	if err != nil {
		return nil, misused("%s: %w", name, err)
	}
	return data, nil
}

// problem is one fault of a document.
type problem struct {
	Path    string `json:"path"`
	Message string `json:"message"`
}

func (e problem) String() string { return e.Path + ": " + e.Message }

func problems(err error) []problem {
	var list rules.Errors
	if !errors.As(err, &list) {
		return []problem{{"document", err.Error()}}
	}
	out := make([]problem, len(list))
	for i, e := range list {
		out[i] = problem{"document", e.Error()}
		var field limiter.FieldError
		if errors.As(e, &field) {
			out[i] = problem{field.Field, field.Msg}
		}
	}
	return out
}

// published is what a region has in force.
type published struct {
	pointer *region.Pointer // nil: nothing, or it cannot be read
	index   uint64          // for compare-and-set
	running *document       // nil: nothing, or it cannot be read
	broken  error           // why it cannot be read, though Consul answers
}

// version is the one in force, "" if none is.
func (s *published) version() string {
	if s.pointer == nil {
		return ""
	}
	return s.pointer.Version
}

// look reads what a region has in force. Damage in what is stored is no error here:
// a new document repairs it.
func look(ctx context.Context, t *target) (*published, error) {
	s, err := lookAtPointer(ctx, t)
	if err != nil || s.pointer == nil {
		return s, err
	}
	data, err := t.rules.Load(ctx, *s.pointer)
	if errors.Is(err, region.ErrMissing) || errors.Is(err, region.ErrCorrupt) {
		s.broken = err
		return s, nil
	} else if err != nil {
		return nil, err
	}
	if s.running, err = parseDocument("", data); err != nil {
		s.broken = fmt.Errorf("version %s: this regionctl would refuse it: %w", s.version(), err)
	}
	return s, nil
}

func lookAtPointer(ctx context.Context, t *target) (*published, error) {
	pointer, index, err := t.rules.Current(ctx)
	switch {
	case err != nil && index == 0:
		return nil, err
	case err != nil:
		return &published{index: index, broken: err}, nil
	}
	return &published{pointer: pointer, index: index}, nil
}

const validateHelp = `Says what is wrong with a rule document, all of it: each fault with the path of its
field, and what to do about it. Nothing is sent anywhere, so this needs no fleet file
and suits an editor, a commit hook or CI. FILE may be - for standard input.

The edges check the same things. A document that passes here is refused by none.

Exits with 0 if the document is good and with 2 if it is not.`

func (p *program) validateCommand() *cobra.Command {
	c := command("validate FILE", "say what is wrong with a document", validateHelp,
		`  regionctl rules validate rules.yaml
  git show HEAD:rules.yaml | regionctl rules validate -
  regionctl rules validate rules.yaml -o json | jq -r '.errors[].path'`,
		func(_ context.Context, args []string) error { return p.validate(args[0]) })
	c.ValidArgsFunction = completeDocument
	return c
}

// validation is what validate prints with -o json.
type validation struct {
	File    string    `json:"file"`
	Valid   bool      `json:"valid"`
	Version string    `json:"version,omitempty"`
	Rules   int       `json:"rules"`
	Errors  []problem `json:"errors"`
}

func (p *program) validate(name string) error {
	data, err := p.readInput(name)
	if err != nil {
		return err
	}
	name = inputName(name)
	v := validation{File: name, Errors: []problem{}}
	d, err := parseDocument(name, data)
	if err == nil {
		v.Valid, v.Version, v.Rules = true, d.version(), len(d.rules)
	} else {
		v.Errors = problems(err)
	}
	if p.wantsJSON() {
		err = p.writeJSON(v)
	} else if v.Valid {
		_, err = fmt.Fprintf(p.out, "%s is good: %s, version %s\n", printable(name), plural(v.Rules, "rule"), v.Version)
	} else {
		var text strings.Builder
		for _, e := range v.Errors {
			fmt.Fprintf(&text, "%s: %s\n", name, e)
		}
		_, err = io.WriteString(p.out, clean(text.String()))
	}
	if err == nil && !v.Valid {
		err = misused("%s has %s; correct what is listed", name, plural(len(v.Errors), "problem"))
	}
	return err
}
