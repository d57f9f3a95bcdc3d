package command

import (
	"io"
	"os"

	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/term"
)

// ReadDocument reads a file, or standard input for -. Its error is a usage error: the file
// is missing, or it lists every problem.
func (p *Program) ReadDocument(k *fleet.Kind, name string) (*fleet.Document, error) {
	d, faults, err := p.read(k, name)
	switch {
	case err != nil:
		return nil, err
	case faults != nil:
		return nil, Refuse(InputName(name), faults)
	}
	p.WarnOf(d)
	return d, nil
}

// read reads a document, and checks it.
func (p *Program) read(k *fleet.Kind, name string) (d *fleet.Document, faults, err error) {
	data, err := p.ReadInput(k.Longest, name)
	if err != nil {
		return nil, nil, err
	}
	if d, faults = fleet.ParseDocument(k, InputName(name), data); faults != nil {
		return nil, faults, nil
	}
	if says, ok := d.Body.(interface{ Fits([]string) error }); ok {
		known, err := p.KnownRegions()
		if err != nil {
			return nil, nil, err
		}
		faults = says.Fits(known)
	}
	return d, faults, nil
}

// WarnOf warns of what is valid but cannot work.
func (p *Program) WarnOf(d *fleet.Document) {
	if says, ok := d.Body.(interface{ Warnings() []string }); ok {
		for _, w := range says.Warnings() {
			p.Warn("%s", w)
		}
	}
}

// InputName is a file's name for messages.
func InputName(name string) string {
	if name == "-" {
		return "standard input"
	}
	return name
}

// ReadInput reads a file, or standard input, up to one byte more than allowed, so that
// validation notices if it is too long.
func (p *Program) ReadInput(longest int, name string) ([]byte, error) {
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
