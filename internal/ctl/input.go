package ctl

import (
	"io"
	"os"

	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/term"
)

// readDocument reads a file, or standard input for -. Its error is a usage error: the file
// is missing, or it lists every problem.
func (p *program) readDocument(k *fleet.Kind, name string) (*fleet.Document, error) {
	data, err := p.readInput(k.Longest, name)
	if err != nil {
		return nil, err
	}
	name = inputName(name)
	d, err := fleet.ParseDocument(k, name, data)
	if err != nil {
		return nil, refuse(name, err)
	}
	p.warnOf(d)
	return d, nil
}

// warnOf warns of what is valid but cannot work.
func (p *program) warnOf(d *fleet.Document) {
	if says, ok := d.Body.(interface{ Warnings() []string }); ok {
		for _, w := range says.Warnings() {
			p.Warn("%s", w)
		}
	}
}

// inputName is a file's name for messages.
func inputName(name string) string {
	if name == "-" {
		return "standard input"
	}
	return name
}

// readInput reads a file, or standard input, up to one byte more than allowed, so that
// validation notices if it is too long.
func (p *program) readInput(longest int, name string) ([]byte, error) {
	in := p.In
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, term.Misused("%w", err)
		}
		defer file.Close() // only read
		in = file
	}
	data, err := io.ReadAll(io.LimitReader(in, int64(longest)+1))
	if err != nil {
		return nil, term.Misused("%s: %w", name, err)
	}
	return data, nil
}
