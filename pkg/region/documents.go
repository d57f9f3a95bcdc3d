package region

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// What Load returns beside other failures; match them with errors.Is.
var (
	ErrMissing = errors.New("the version is missing")
	ErrCorrupt = errors.New("the stored document is corrupt")
)

// permanentKind are documents that are in force until the next: a service whose rules
// end by themselves would one day run without any.
const permanentKind = "rules"

// Documents are the versions of one kind of document ("rules", "shedder") in one
// datacenter, and which of them is in force. Versions never change; one pointer
// does, by compare-and-set.
type Documents struct {
	consul *Consul
	kind   string
}

// Documents returns the documents of one kind. A kind that is no name (see
// CheckName) makes every call fail.
func (c *Consul) Documents(kind string) *Documents { return &Documents{consul: c, kind: kind} }

// CurrentKey is the key of the pointer to the document in force.
func (d *Documents) CurrentKey() string { return d.key("current") }

// CanaryKey is the key of the pointer that only the edges of one PoP follow.
func (d *Documents) CanaryKey(pop string) string { return d.key("canary", pop) }

func (d *Documents) versionKey(version string) string { return d.key("versions", version) }

// historyKey begins with a time of fixed length, so that keys sort by time.
func (d *Documents) historyKey(c Change) string {
	return d.key("history", c.AppliedAt.UTC().Format("2006-01-02T15:04:05.000000000Z")+"-"+c.Version)
}

func (d *Documents) key(parts ...string) string {
	return d.consul.Key(append([]string{d.kind}, parts...)...)
}

// check refuses to build a key from what is no name.
func (d *Documents) check(pops ...string) error {
	if err := CheckName(d.kind); err != nil {
		return fmt.Errorf("kind of document: %w", err)
	}
	for _, pop := range pops {
		if err := CheckName(pop); err != nil {
			return fmt.Errorf("pop: %w", err)
		}
	}
	return nil
}

// Current returns the pointer to the document in force and the index to give to
// Point; nil and 0 when there is none.
func (d *Documents) Current(ctx context.Context) (*Pointer, uint64, error) {
	return d.pointer(ctx, d.CurrentKey())
}

func (d *Documents) pointer(ctx context.Context, key string) (*Pointer, uint64, error) {
	if err := d.check(); err != nil {
		return nil, 0, err
	}
	entry, _, err := d.consul.get(ctx, key, query{}, answerTimeout)
	if err != nil || entry == nil {
		return nil, 0, err
	}
	p, err := ParsePointer(entry.Value)
	if err != nil {
		return nil, entry.ModifyIndex, d.consul.unreadable(key, err)
	}
	return &p, entry.ModifyIndex, nil
}

// unreadable says which key holds nonsense. Consul takes any bytes for a key; one
// that is not clean is quoted, for a terminal would obey them.
func (c *Consul) unreadable(key string, err error) error {
	if !cleanPath(key) {
		key = strconv.Quote(key)
	}
	return fmt.Errorf("%s: %s: %w", c.name, key, err)
}

// Load returns the document that p names, decompressed and checked against its
// SHA-256. It fails with ErrMissing when there is no such version, and with
// ErrCorrupt when other bytes are stored under it.
func (d *Documents) Load(ctx context.Context, p Pointer) ([]byte, error) {
	if err := errors.Join(d.check(), p.validate()); err != nil {
		return nil, err
	}
	return d.LoadNamed(ctx, Named{p.Version, p.SHA256})
}

// LoadNamed is Load for a document that no pointer of its own names, as that which
// follows a temporary one.
func (d *Documents) LoadNamed(ctx context.Context, p Named) ([]byte, error) {
	if err := errors.Join(d.check(), p.validate("")); err != nil {
		return nil, err
	}
	key := d.versionKey(p.Version)
	entry, _, err := d.consul.get(ctx, key, query{}, answerTimeout)
	if err != nil {
		return nil, err
	}
	if entry == nil {
		return nil, d.consul.unreadable(key, fmt.Errorf("%w; apply the document again", ErrMissing))
	}
	document, err := Decode(entry.Value)
	if err != nil {
		return nil, d.consul.unreadable(key, fmt.Errorf("%w: %w; delete the key and apply the document again", ErrCorrupt, err))
	}
	if got := NewPointer(document, "", time.Time{}).SHA256; got != p.SHA256 {
		return nil, d.consul.unreadable(key, fmt.Errorf("%w: the pointer names sha256 %s, the stored bytes have %s; delete the key and apply the document again", ErrCorrupt, p.SHA256, got))
	}
	return document, nil
}

// Put stores a document under its version, which it returns. Storing a document
// that is there already changes nothing; other bytes under its version are an
// error, since a version never changes.
func (d *Documents) Put(ctx context.Context, document []byte) (version string, err error) {
	if err := d.check(); err != nil {
		return "", err
	}
	if len(document) == 0 {
		return "", errors.New("document is empty")
	}
	stored, err := encode(document)
	if err != nil {
		return "", err
	}
	version = NewPointer(document, "", time.Time{}).Version
	key := d.versionKey(version)
	present, _, err := d.consul.get(ctx, key, query{}, answerTimeout)
	if err != nil {
		return "", err
	}
	if present == nil {
		done, err := d.consul.cas(ctx, key, stored, 0)
		if err != nil {
			return "", err
		}
		if done {
			return version, nil
		}
		// Someone else stored it in between.
		if present, _, err = d.consul.get(ctx, key, query{}, answerTimeout); err != nil {
			return "", err
		}
		if present == nil {
			return "", d.consul.unreadable(key, fmt.Errorf("%w: it was deleted at once after it was stored; apply the document again", ErrMissing))
		}
	}
	if there, err := Decode(present.Value); err != nil || !bytes.Equal(there, document) {
		return "", d.consul.unreadable(key, fmt.Errorf("%w: it does not hold the document of that version; delete the key and apply the document again", ErrCorrupt))
	}
	return version, nil
}

// Versions returns the versions that are stored, in order.
func (d *Documents) Versions(ctx context.Context) ([]string, error) {
	if err := d.check(); err != nil {
		return nil, err
	}
	folder := d.versionKey("")
	keys, err := d.consul.keys(ctx, folder)
	if err != nil {
		return nil, err
	}
	versions := []string{}
	for _, key := range keys {
		if version := strings.TrimPrefix(key, folder); isHex(version, versionDigits) {
			versions = append(versions, version)
		}
	}
	return versions, nil
}

// Point puts the document that p names in force, if the pointer has not changed
// since Current returned index; 0 means that there must be none yet. It returns
// false when someone else was faster. Except for rules, p may say when that ends.
//
// After a failure it looks whether the pointer was written all the same: an
// answer may be lost where the write was not.
func (d *Documents) Point(ctx context.Context, p Pointer, index uint64) (bool, error) {
	if err := errors.Join(d.check(), p.validate()); err != nil {
		return false, err
	}
	if p.ExpiresAt != nil && d.kind == permanentKind {
		return false, &FieldError{"expires_at", "is for canaries; leave it out"}
	}
	return d.swap(ctx, d.CurrentKey(), p, index)
}

func (d *Documents) swap(ctx context.Context, key string, p Pointer, index uint64) (bool, error) {
	value, err := json.Marshal(p)
	if err != nil {
		return false, err
	}
	done, err := d.consul.swap(ctx, key, value, index)
	var status *StatusError
	if err == nil || errors.As(err, &status) && status.Code < 500 {
		return done, err
	}
	return false, fmt.Errorf("%w; it may still take effect, look before trying again", err)
}

// SetCanary has the edges of one PoP follow p, which must say when that ends, if
// their pointer has not changed since Canary returned index; 0 means that there
// must be none yet. It returns false when someone else was faster, and looks after
// a failure as Point does.
func (d *Documents) SetCanary(ctx context.Context, pop string, p Pointer, index uint64) (bool, error) {
	if err := errors.Join(d.check(pop), p.validate()); err != nil {
		return false, err
	}
	if p.Then != nil {
		return false, &FieldError{"then", "is not for canaries, after which the current document is in force; leave it out"}
	}
	if p.ExpiresAt == nil {
		return false, &FieldError{"expires_at", "must be set: a canary that is forgotten must end"}
	}
	return d.swap(ctx, d.CanaryKey(pop), p, index)
}

// Canary returns what the edges of one PoP follow, or nil if nothing of their own,
// and the index to give to SetCanary and DeleteCanary, also beside an error about
// what stands there. It may have expired.
func (d *Documents) Canary(ctx context.Context, pop string) (*Pointer, uint64, error) {
	if err := d.check(pop); err != nil {
		return nil, 0, err
	}
	return d.pointer(ctx, d.CanaryKey(pop))
}

// DeleteCanary has the edges of one PoP follow the current pointer again, if theirs
// has not changed since Canary returned index. It returns false when someone else
// has put another in its place; that there is none any more is what was wanted.
func (d *Documents) DeleteCanary(ctx context.Context, pop string, index uint64) (bool, error) {
	if err := d.check(pop); err != nil {
		return false, err
	}
	return d.consul.removeCAS(ctx, d.CanaryKey(pop), index)
}

// EndCanary has the edges of one PoP follow the current pointer again, whatever
// they follow now. That there is no canary is no error.
func (d *Documents) EndCanary(ctx context.Context, pop string) error {
	if err := d.check(pop); err != nil {
		return err
	}
	return d.consul.remove(ctx, d.CanaryKey(pop))
}

// Canaries returns all canaries by PoP, also expired ones. wrong names the keys
// that hold something else; err says that nothing could be listed.
func (d *Documents) Canaries(ctx context.Context) (canaries map[string]Pointer, wrong []error, err error) {
	canaries = map[string]Pointer{}
	wrong, err = d.each(ctx, "canary", func(name string, value []byte) error {
		p, err := ParsePointer(value)
		if err == nil {
			err = CheckName(name)
		}
		if err == nil {
			canaries[name] = p
		}
		return err
	})
	return canaries, wrong, err
}

// Record adds a change to the history. Recording a change twice is the same as
// once.
func (d *Documents) Record(ctx context.Context, c Change) error {
	if err := errors.Join(d.check(), c.validate()); err != nil {
		return err
	}
	if c.Replaced != "" && !isHex(c.Replaced, versionDigits) {
		return &FieldError{"replaced", fmt.Sprintf("must be a version (got %q)", c.Replaced)}
	}
	value, err := json.Marshal(c)
	if err != nil {
		return err
	}
	return d.consul.put(ctx, d.historyKey(c), value)
}

// History returns all changes, newest first. wrong names the keys that hold
// something else; err says that nothing could be listed.
func (d *Documents) History(ctx context.Context) (changes []Change, wrong []error, err error) {
	wrong, err = d.each(ctx, "history", func(_ string, value []byte) error {
		c, err := parseChange(value)
		if err == nil {
			changes = append(changes, c)
		}
		return err
	})
	slices.SortStableFunc(changes, func(a, b Change) int {
		return cmp.Or(b.AppliedAt.Compare(a.AppliedAt), cmp.Compare(b.Version, a.Version))
	})
	return changes, wrong, err
}

// each reads all keys in a folder of these documents. wrong is what read says of
// some of them.
func (d *Documents) each(ctx context.Context, folder string, read func(name string, value []byte) error) (wrong []error, err error) {
	if err := d.check(); err != nil {
		return nil, err
	}
	prefix := d.key(folder) + "/"
	entries, err := d.consul.list(ctx, prefix)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		name := strings.TrimPrefix(e.Key, prefix)
		if name == "" {
			continue // the folder itself, which Consul's own pages create
		}
		if err := read(name, e.Value); err != nil {
			wrong = append(wrong, d.consul.unreadable(e.Key, fmt.Errorf("%w; correct or delete the key", err)))
		}
	}
	return wrong, nil
}
