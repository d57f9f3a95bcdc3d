package fleet

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/weir-edge/weir/pkg/region/consul"
)

// Kind is what lives in Consul as versions of a document: the rules, the settings of the
// shedder, or behavior policies. What changes documents and shows them works on any kind.
type Kind struct {
	Name    string            // of the documents in Consul, and of the commands
	Path    string            // where an edge says what it runs
	Answer  func() NodeAnswer // what it says there
	Query   url.Values
	Longest int // bytes of a document
	// Canaries: a site may follow another one.
	Canaries bool
	// Temporary: one may be active temporarily. Where none is, the edges have what
	// their configuration says.
	Temporary  bool
	Parse      func(data []byte) (any, error)
	Registered func(consul.Node) (version, refused string)
	// Reads returns the newest schema of such documents that a node reads, 0 if it follows
	// none; Remedy says what to do about one that reads too old a schema.
	Reads  func(consul.Node) int
	Remedy string
}

// Document is a document that is good.
type Document struct {
	Body  any // what it says, as Kind.Parse returned it
	Kind  *Kind
	Name  string // the file's, for messages; empty for one that Consul had
	Made  bool   // by what name says, from the active one
	Bytes []byte
}

func (d *Document) Pointer(by string, at time.Time) consul.Pointer {
	return consul.NewPointer(d.Bytes, by, at)
}

func (d *Document) Version() string { return d.Pointer("", time.Time{}).Version }

// ParseDocument lists every fault of a bad document in its error.
func ParseDocument(k *Kind, name string, data []byte) (*Document, error) {
	says, err := k.Parse(data)
	if err != nil {
		return nil, err
	}
	return &Document{Body: says, Kind: k, Name: name, Bytes: data}, nil
}

// Current is what a region's pointer makes its edges run.
type Current struct {
	State    State
	At       time.Time       // when it was read, by the region's clock
	Index    uint64          // for compare-and-set
	Pointer  *consul.Pointer // while Active or Ended
	Active   *consul.Named   // while Active: the document that the pointer named when it was read
	Document *Document       // while Active: the same, if it was loaded without Damage
	Damage   error           // why the pointer, or the active document, cannot be read, though Consul answers
}

// State is what a region's pointer says.
type State int

// The states.
const (
	Unpublished State = iota // there is no pointer
	Unreadable               // there is one, and Damage says what is wrong with it
	Active                   // it names a document
	Ended                    // what it names has expired, and nothing follows: edges have what their configuration says
)

// Version is that of the active document, "" if there is none.
func (c *Current) Version() string {
	if c.State != Active {
		return ""
	}
	return c.Active.Version
}

// Returns is what is active when nothing temporary is; nil: what the configuration of
// the edges says.
func (c *Current) Returns() *consul.Named {
	if c.Pointer != nil && c.Pointer.ExpiresAt != nil {
		return c.Pointer.Then
	}
	return c.Active
}

// Until is when the document that was active when it was read expires, nil if it does not.
func (c *Current) Until() *time.Time {
	if c.Pointer == nil || c.Pointer.Expired(c.At) {
		return nil
	}
	return c.Pointer.ExpiresAt
}

// Look reads what a region has, with its document. Damage to what is stored is not an
// error here: a new document repairs it.
func Look(ctx context.Context, t *Target) (Current, error) {
	c, err := LookAtPointer(ctx, t)
	if err != nil {
		return c, err
	}
	err = c.load(ctx, t)
	return c, err
}

// load reads the active document.
func (c *Current) load(ctx context.Context, t *Target) (err error) {
	if c.State != Active {
		return nil
	}
	c.Document, err = t.Load(ctx, *c.Active)
	var damage *damaged
	if errors.As(err, &damage) {
		c.Damage = err
		return nil
	}
	return err
}

func LookAtPointer(ctx context.Context, t *Target) (Current, error) {
	pointer, index, err := t.Docs.Current(ctx)
	if err != nil && index == 0 {
		return Current{}, err
	}
	c := Current{At: t.Consul.Now(), Index: index, Pointer: pointer, Damage: err}
	switch {
	case err != nil:
		c.State = Unreadable
	case pointer != nil:
		c.State = Ended
		if c.Active = pointer.InForce(c.At); c.Active != nil {
			c.State = Active
		}
	}
	return c, nil
}

// damaged is a document that is missing, or is not what it should be.
type damaged struct{ err error }

func (e *damaged) Error() string { return e.err.Error() }
func (e *damaged) Unwrap() error { return e.err }

// Load returns a version of a region.
func (t *Target) Load(ctx context.Context, n consul.Named) (*Document, error) {
	data, err := t.Docs.LoadNamed(ctx, n)
	switch {
	case errors.Is(err, consul.ErrMissing), errors.Is(err, consul.ErrCorrupt):
		return nil, &damaged{err}
	case err != nil:
		return nil, err
	}
	d, err := ParseDocument(t.Kind, "", data)
	if err != nil {
		return nil, &damaged{fmt.Errorf("version %s: this regionctl would refuse it: %w", n.Version, err)}
	}
	return d, nil
}

// Stored names a version that no pointer names: what is stored says what its SHA-256 is.
func (t *Target) Stored(ctx context.Context, version string) (*consul.Pointer, error) {
	key := t.Consul.Key(t.Kind.Name, "versions", version)
	ctx, cancel := t.Bounded(ctx)
	defer cancel()
	e, err := t.Consul.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	if e == nil {
		return nil, fmt.Errorf("%s: %w", key, consul.ErrMissing)
	}
	data, err := consul.Decode(e.Value)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	named := consul.NewPointer(data, "", time.Unix(0, 0)) // when is not known, and a pointer must have a time
	if named.Version != version {
		return nil, fmt.Errorf("%s: %w; delete the key and apply the document again", key, consul.ErrCorrupt)
	}
	return &named, nil
}
