package command

import (
	"io"
	"os"

	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/term"
)

// Input is what a document or a log is read from.
type Input struct {
	Name string    // for messages
	From io.Reader // nil: the file of this name
}

// Input returns the file of this name, or standard input for -.
func (p *Program) Input(name string) Input {
	if name == "-" {
		return Input{"standard input", p.In}
	}
	return Input{Name: name}
}

// ReadDocument reads a document. Its error is a usage error: the file is missing, or it lists
// every problem.
func (p *Program) ReadDocument(k *fleet.Kind, in Input) (*fleet.Document, error) {
	d, faults, err := p.read(k, in)
	switch {
	case err != nil:
		return nil, err
	case faults != nil:
		return nil, Refuse(in.Name, faults)
	}
	p.WarnOf(d)
	return d, nil
}

// read reads a document, and checks it.
func (p *Program) read(k *fleet.Kind, in Input) (d *fleet.Document, faults, err error) {
	data, err := in.Read(k.Longest)
	if err != nil {
		return nil, nil, err
	}
	if d, faults = fleet.ParseDocument(k, in.Name, data); faults != nil {
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

// Open opens it to be read, and returns its size, 0 if it has none.
func (in Input) Open() (from io.ReadCloser, size int64, err error) {
	if in.From != nil {
		return io.NopCloser(in.From), 0, nil
	}
	file, err := os.Open(in.Name)
	if err != nil {
		return nil, 0, term.Misused("%w", err)
	}
	if info, err := file.Stat(); err == nil && info.Mode().IsRegular() {
		size = info.Size()
	}
	return file, size, nil
}

// Read reads all of it, up to one byte more than allowed, so that validation notices if it is too
// long.
func (in Input) Read(longest int) ([]byte, error) {
	from, _, err := in.Open()
	if err != nil {
		return nil, err
	}
	defer from.Close() // only read
	data, err := io.ReadAll(io.LimitReader(from, int64(longest)+1))
	if err != nil {
		return nil, term.Misused("%s: %w", in.Name, err)
	}
	return data, nil
}
