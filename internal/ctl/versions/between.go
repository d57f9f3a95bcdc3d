package versions

import (
	"bytes"
	"context"
	"fmt"

	"github.com/weir-edge/weir/internal/ctl/command"
	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/kinds"
	"github.com/weir-edge/weir/internal/ctl/term"
)

// VersionsReport is what diff prints with -o json for two versions.
type VersionsReport struct {
	From       string        `json:"from"`
	To         string        `json:"to"`
	Identical  bool          `json:"same"` // to the last byte
	Difference kinds.Changes `json:"difference,omitempty"`
}

// Compare compares a document, or without one the version to, with the version from.
func Compare(ctx context.Context, p *command.Program, k *fleet.Kind, names []string, from, to string, in *command.Input) (*VersionsReport, error) {
	answers, err := askPointers(ctx, p, k, names)
	if err != nil {
		return nil, err
	}
	version := func(digits string) (*fleet.Document, error) {
		pointer, err := named(ctx, k, answers, digits)
		if err != nil {
			return nil, err
		}
		return FetchVersion(ctx, answers, *pointer)
	}
	var before any
	r := &VersionsReport{From: NoVersion}
	if from != NoVersion {
		d, err := version(from)
		if err != nil {
			return nil, err
		}
		before, r.From = d.Body, d.Version()
	}
	var after *fleet.Document
	if in != nil {
		after, err = p.ReadDocument(k, *in)
	} else {
		after, err = version(to)
	}
	if err != nil {
		return nil, err
	}
	r.To = after.Version()
	if r.Identical = r.From == r.To; !r.Identical {
		r.Difference = after.Body.(kinds.Comparer).Compare(before)
	}
	return r, nil
}

func (r *VersionsReport) write(b *bytes.Buffer, s term.Style) {
	fmt.Fprintf(b, "from %s to %s\n", s.Bold(r.From), s.Bold(r.To))
	if r.Identical {
		b.WriteString("  no difference\n")
		return
	}
	r.Difference.Write(b, s, 0)
}
