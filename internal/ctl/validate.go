package ctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/shedder"
)

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
	data, err := p.readInput(rulesKind, name)
	if err != nil {
		return err
	}
	name = inputName(name)
	v := validation{File: name, Errors: []problem{}}
	d, err := parseDocument(rulesKind, name, data)
	if err == nil {
		v.Valid, v.Version, v.Rules = true, d.version(), len(d.book().rules)
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

// problem is one fault of a document.
type problem struct {
	Path    string `json:"path"`
	Message string `json:"message"`
}

func (e problem) String() string { return e.Path + ": " + e.Message }

func problems(err error) (list []problem) {
	var ofRule limiter.FieldError
	var ofShedder *shedder.FieldError
	joined, many := err.(interface{ Unwrap() []error })
	switch {
	case many:
		for _, e := range joined.Unwrap() {
			list = append(list, problems(e)...)
		}
		return list
	case errors.As(err, &ofRule):
		return []problem{{ofRule.Field, ofRule.Msg}}
	case errors.As(err, &ofShedder):
		return []problem{{ofShedder.Field, ofShedder.Msg}}
	}
	return []problem{{"document", err.Error()}}
}
