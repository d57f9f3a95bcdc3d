package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/weir-edge/weir/pkg/region/consul"
)

// Kind is a kind of document whose versions are stored in Consul: rules, shedder settings,
// behavior policies, or topologies. The code that changes and shows documents works on any kind.
type Kind struct {
	Name    string            // of the documents in Consul, and of the commands
	Path    string            // where an edge says what it runs; "": no edge runs it
	Answer  func() NodeAnswer // what it says there
	Query   url.Values
	Longest int // bytes of a document
	// Canaries: a site may follow a different version.
	Canaries bool
	// Shown returns what show prints with -o json; nil: the text and its pointer.
	Shown func(body any) any
	// Temporary: a document may be active temporarily. Where none is active, the edges use
	// their configuration.
	Temporary bool
	Parse     func(data []byte) (any, error)
	// Back returns the document by which a region that has is gets back what was before; nil: that
	// same document.
	Back       func(is, before *Document, now time.Time) *Document
	Registered func(consul.Node) (version, refused string)
	// Schema is that of such documents. Reads returns the newest that a node reads, 0 if it
	// follows none; Remedy says what to do about one that follows none. A nil Reads: no node refuses
	// such documents.
	Schema int
	Reads  func(consul.Node) int
	Remedy string
	// What is its name in a sentence, and Are the verb. Put is the command that applies one, and
	// Did its past participle. Look and Watch show which edges run what, once and while they come.
	What, Are, Put, Did, Look, Watch string
	// Words are pairs, as of strings.NewReplacer: what help says about rules, and about this kind.
	Words []string
}

// Reworded turns help about rules into help about this kind.
func (k *Kind) Reworded(text string) string {
	words := append([]string{"regionctl rules", "regionctl " + k.Name, "rules.yaml", k.Name + ".yaml"}, k.Words...)
	return strings.NewReplacer(words...).Replace(text)
}

// AtEdges reports whether edges run such documents.
func (k *Kind) AtEdges() bool { return k.Path != "" }

// Document is a valid document.
type Document struct {
	Body  any // its content, as Kind.Parse returned it
	Kind  *Kind
	Name  string // of the file, for messages; empty if it came from Consul
	Made  bool   // derived from the active document; name says how
	Bytes []byte
}

func (d *Document) Pointer(by string, at time.Time) consul.Pointer {
	return consul.NewPointer(d.Bytes, by, at)
}

func (d *Document) Version() string { return d.Pointer("", time.Time{}).Version }

// ParseDocument lists every fault of a bad document in its error. One that did not come from
// Consul must fit there.
func ParseDocument(k *Kind, name string, data []byte) (*Document, error) {
	says, err := k.Parse(data)
	if err == nil && name != "" {
		_, err = consul.Encode(data)
	}
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
	Damage   error           // why the pointer, or the active document, cannot be read, although Consul answers
}

// State is what a region's pointer says.
type State int

// The states.
const (
	Unpublished State = iota // there is no pointer
	Unreadable               // there is one, and Damage says what is wrong with it
	Active                   // it names a document
	Ended                    // what it names has expired, and nothing follows: edges use their configuration
)

// Version returns the version of the active document, or "" if there is none.
func (c *Current) Version() string {
	if c.State != Active {
		return ""
	}
	return c.Active.Version
}

// Returns returns what is active when nothing temporary is; nil means the edges'
// configuration.
func (c *Current) Returns() *consul.Named {
	if c.Pointer != nil && c.Pointer.ExpiresAt != nil {
		return c.Pointer.Successor
	}
	return c.Active
}

// Until returns when the document that was active when read expires, or nil.
func (c *Current) Until() *time.Time {
	if c.Pointer == nil || c.Pointer.Expired(c.At) {
		return nil
	}
	return c.Pointer.ExpiresAt
}

// Look reads a region's state and document. Damaged stored data is not an error here: a new
// document repairs it.
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

// LookActive returns the document that is active in a region, which must be undamaged. hint
// follows the error where none is.
func LookActive(ctx context.Context, t *Target, hint string) (*Document, error) {
	c, err := Look(ctx, t)
	if err = cmp.Or(err, c.Damage); err == nil && c.State != Active {
		err = fmt.Errorf("no %s %s published there%s", t.Kind.What, t.Kind.Are, hint)
	}
	return c.Document, err
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
		if c.Active = pointer.ActiveAt(c.At); c.Active != nil {
			c.State = Active
		}
	}
	return c, nil
}

// damaged is an error for a missing or damaged document.
type damaged struct{ err error }

func (e *damaged) Error() string { return e.err.Error() }
func (e *damaged) Unwrap() error { return e.err }

// Load returns a version stored in a region.
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

// Stored returns a pointer to a version that no pointer names, with the SHA-256 of what is
// stored.
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
	named := consul.NewPointer(data, "", time.Unix(0, 0)) // its time is unknown, but a pointer must have one
	if named.Version != version {
		return nil, fmt.Errorf("%s: %w; delete the key and apply the document again", key, consul.ErrCorrupt)
	}
	return &named, nil
}
