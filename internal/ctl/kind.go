package ctl

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/weir-edge/weir/pkg/region"
)

// kind is what lives in Consul as versions of a document: the rules, or the settings
// of the shedder. What changes documents and shows them works on any kind.
type kind struct {
	name string // of the documents in Consul, and of the commands
	what string // in a sentence
	// put is the command that puts one in force, did that it has.
	put, did string
	look     string // the command that shows which edges run what
	watch    string // the same, while they come
	path     string // where an edge says what it runs
	query    url.Values
	longest  int // bytes of a document
	// canaries: a site may follow another one.
	canaries bool
	// temporary: one may be in force for a time. Where none is, the edges have what
	// their configuration says.
	temporary  bool
	parse      func(data []byte) (body, error)
	registered func(region.Node) (version, refused string)
}

// body is what a document says.
type body interface {
	// compare tells what changes when this replaces running, which may be nil.
	compare(running body) changes
}

// changes are the difference between two documents of a kind.
type changes interface {
	// write shows at most so many of them; 0 is all.
	write(b *bytes.Buffer, s style, most int)
}

// document is a document that is good.
type document struct {
	body
	kind  *kind
	name  string // the file's, for messages; empty for one that Consul had
	made  bool   // by what name says, from the one in force
	bytes []byte
}

func (d *document) pointer(by string, at time.Time) region.Pointer {
	return region.NewPointer(d.bytes, by, at)
}

func (d *document) version() string { return d.pointer("", time.Time{}).Version }

// label says which one it is.
func (d *document) label() string {
	switch {
	case d.name == "":
		return "back to " + d.version()
	case d.made:
		return d.name + " makes it " + d.version()
	}
	return d.name + " is " + d.version()
}

// parseDocument lists every fault of a bad document in its error.
func parseDocument(k *kind, name string, data []byte) (*document, error) {
	says, err := k.parse(data)
	if err != nil {
		return nil, err
	}
	return &document{body: says, kind: k, name: name, bytes: data}, nil
}

// readDocument reads a file, or standard input for -. Its error is usage: either
// there is no such file, or it lists every problem.
func (p *program) readDocument(k *kind, name string) (*document, error) {
	data, err := p.readInput(k, name)
	if err != nil {
		return nil, err
	}
	name = inputName(name)
	d, err := parseDocument(k, name, data)
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

func (p *program) readInput(k *kind, name string) ([]byte, error) {
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
	data, err := io.ReadAll(io.LimitReader(in, int64(k.longest)+1))
	if err != nil {
		return nil, misused("%s: %w", name, err)
	}
	return data, nil
}

// published is what a region has in force.
type published struct {
	pointer *region.Pointer // nil: nothing, or it cannot be read
	index   uint64          // for compare-and-set
	inForce *region.Named   // nil: nothing, or it cannot be read
	running *document       // nil: nothing, or it cannot be read
	broken  error           // why it cannot be read, though Consul answers
}

// version is the one in force, "" if none is.
func (s *published) version() string {
	if s.inForce == nil {
		return ""
	}
	return s.inForce.Version
}

// returns is what is in force when nothing temporary is; nil: what the configuration
// of the edges says.
func (s *published) returns() *region.Named {
	if s.pointer != nil && s.pointer.ExpiresAt != nil {
		return s.pointer.Then
	}
	return s.inForce
}

// until is when what is in force ends by itself, nil if it does not.
func (s *published) until() *time.Time {
	if s.pointer == nil || s.pointer.Expired(time.Now()) {
		return nil
	}
	return s.pointer.ExpiresAt
}

// look reads what a region has in force. Damage in what is stored is no error here:
// a new document repairs it.
func look(ctx context.Context, t *target) (*published, error) {
	s, err := lookAtPointer(ctx, t)
	if err != nil || s.inForce == nil {
		return s, err
	}
	s.running, err = t.load(ctx, *s.inForce)
	var damage *damaged
	if errors.As(err, &damage) {
		s.broken = err
	} else if err != nil {
		return nil, err
	}
	return s, nil
}

func lookAtPointer(ctx context.Context, t *target) (*published, error) {
	pointer, index, err := t.docs.Current(ctx)
	switch {
	case err != nil && index == 0:
		return nil, err
	case err != nil:
		return &published{index: index, broken: err}, nil
	}
	s := &published{pointer: pointer, index: index}
	if pointer != nil {
		s.inForce = pointer.InForce(time.Now())
	}
	return s, nil
}

// damaged is a document that is missing, or is not what it should be.
type damaged struct{ err error }

func (e *damaged) Error() string { return e.err.Error() }
func (e *damaged) Unwrap() error { return e.err }

// load returns a version of a region.
func (t *target) load(ctx context.Context, n region.Named) (*document, error) {
	data, err := t.docs.LoadNamed(ctx, n)
	switch {
	case errors.Is(err, region.ErrMissing), errors.Is(err, region.ErrCorrupt):
		return nil, &damaged{err}
	case err != nil:
		return nil, err
	}
	d, err := parseDocument(t.kind, "", data)
	if err != nil {
		return nil, &damaged{fmt.Errorf("version %s: this regionctl would refuse it: %w", n.Version, err)}
	}
	return d, nil
}
