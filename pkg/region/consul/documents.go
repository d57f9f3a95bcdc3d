package consul

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/weir-edge/weir/pkg/field"
)

// Errors of Load, for errors.Is.
var (
	ErrMissing = errors.New("the version is missing")
	ErrCorrupt = errors.New("the stored document is corrupt")
)

// Documents are the versions of one kind of document ("rules", "shedder") in one
// datacenter, and the pointer to the active one. A version never changes; the pointer
// changes by compare-and-set.
type Documents struct {
	consul    *Client
	kind      string
	temporary bool // the active one may expire
	fence     Fence
	end       *End // of the history; nil: unknown
}

// Documents returns the documents of one kind. Every call fails if kind is not a valid
// name (see CheckName).
func (c *Client) Documents(kind string) *Documents { return &Documents{consul: c, kind: kind} }

// Temporary returns the same documents but allows the active one to expire. Use it only
// for kinds that have a default: without one, nodes would eventually have no document.
func (d *Documents) Temporary() *Documents {
	copied := *d
	copied.temporary = true
	return &copied
}

// Fenced returns the same documents, but lets Activate and SetCanary write only while a lock is
// held. Without the lock, their error is a *LockLostError.
func (d *Documents) Fenced(f Fence) *Documents {
	copied := *d
	copied.fence = f
	return &copied
}

// ContinuingFrom returns the same documents, but lets Activate continue the history after an end
// that was already read, which saves a round trip. Nil means that it is unknown.
func (d *Documents) ContinuingFrom(end *End) *Documents {
	copied := *d
	copied.end = end
	return &copied
}

// CurrentKey returns the key of the pointer to the active document.
func (d *Documents) CurrentKey() string { return d.key("current") }

// CanaryKey returns the key of the pointer that only the edges of one PoP follow.
func (d *Documents) CanaryKey(pop string) string { return d.key("canary", pop) }

func (d *Documents) versionKey(version string) string { return d.key("versions", version) }

func (d *Documents) key(parts ...string) string {
	return d.consul.Key(append([]string{d.kind}, parts...)...)
}

// check refuses to build a key from an invalid name.
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

// Current returns the pointer to the active document and the index to pass to Activate;
// nil and 0 if there is none.
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
		return nil, entry.ModifyIndex, d.consul.Unreadable(key, err)
	}
	return &p, entry.ModifyIndex, nil
}

// Unreadable names the key with the invalid data. Consul accepts any bytes as a key;
// unclean ones are quoted, because a terminal would interpret them.
func (c *Client) Unreadable(key string, err error) error {
	if !cleanPath(key) {
		key = strconv.Quote(key)
	}
	return fmt.Errorf("%s: %s: %w", c.name, key, err)
}

// Load returns the document that p names, decompressed and checked against its SHA-256.
// It returns ErrMissing if that version does not exist, and ErrCorrupt if other bytes are
// stored under it.
func (d *Documents) Load(ctx context.Context, p Pointer) ([]byte, error) {
	if err := errors.Join(d.check(), p.validate()); err != nil {
		return nil, err
	}
	return d.LoadNamed(ctx, Named{p.Version, p.SHA256})
}

// LoadNamed is Load for a document without its own pointer, such as the one that follows
// a temporary document.
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
		return nil, d.consul.Unreadable(key, fmt.Errorf("%w; apply the document again", ErrMissing))
	}
	document, err := Decode(entry.Value)
	if err != nil {
		return nil, d.consul.Unreadable(key, fmt.Errorf("%w: %w; delete the key and apply the document again", ErrCorrupt, err))
	}
	if got := NewPointer(document, "", time.Time{}).SHA256; got != p.SHA256 {
		return nil, d.consul.Unreadable(key, fmt.Errorf("%w: the pointer names sha256 %s, the stored bytes have %s; delete the key and apply the document again", ErrCorrupt, p.SHA256, got))
	}
	return document, nil
}

// Put stores a document and returns its version. Storing the same document again
// changes nothing; other bytes under its version are an error, since a version never
// changes.
func (d *Documents) Put(ctx context.Context, document []byte) (version string, err error) {
	if err := d.check(); err != nil {
		return "", err
	}
	if len(document) == 0 {
		return "", errors.New("document is empty")
	}
	stored, err := Encode(document)
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
		// Another client stored it in the meantime.
		if present, _, err = d.consul.get(ctx, key, query{}, answerTimeout); err != nil {
			return "", err
		}
		if present == nil {
			return "", d.consul.Unreadable(key, fmt.Errorf("%w: it was deleted right after it was stored; apply the document again", ErrMissing))
		}
	}
	if there, err := Decode(present.Value); err != nil || !bytes.Equal(there, document) {
		return "", d.consul.Unreadable(key, fmt.Errorf("%w: it does not hold the document of that version; delete the key and apply the document again", ErrCorrupt))
	}
	return version, nil
}

// Activate activates the document that a change names, and records the change, if the pointer has
// not changed since Current returned index; 0 requires that there is none yet. It returns false
// if the pointer has changed. Only for Temporary documents may it expire.
//
// After a failure it checks whether the pointer was written anyway: the answer may be
// lost after a successful write.
func (d *Documents) Activate(ctx context.Context, c Change, index uint64) (bool, error) {
	if err := errors.Join(d.check(), c.validate()); err != nil {
		return false, err
	}
	if c.ExpiresAt != nil && !d.temporary {
		return false, &field.Error{Path: "expires_at", Msg: "is for canaries; leave it out"}
	}
	value, err := json.Marshal(c.Pointer)
	if err != nil {
		return false, err
	}
	return settled(d.append(ctx, c, &api.KVTxnOp{Verb: api.KVCAS, Key: d.CurrentKey(), Value: value, Index: index}))
}

// settled adds to the error of a write that it may still take effect, if that is so.
func settled(done bool, err error) (bool, error) {
	var lost *LockLostError
	if err == nil || refused(err) || errors.As(err, &lost) {
		return done, err
	}
	return false, fmt.Errorf("%w; it may still take effect; check before you try again", err)
}

// SetCanary makes the edges of one PoP follow p, which must expire, if their pointer has
// not changed since Canary returned index; 0 requires that there is none yet. It returns
// false if it has changed, and handles failures like Activate.
func (d *Documents) SetCanary(ctx context.Context, pop string, p Pointer, index uint64) (bool, error) {
	if err := errors.Join(d.check(pop), p.validate()); err != nil {
		return false, err
	}
	if p.Successor != nil {
		return false, &field.Error{Path: "then", Msg: "is not for canaries, which the current document follows; leave it out"}
	}
	if p.ExpiresAt == nil {
		return false, &field.Error{Path: "expires_at", Msg: "must be set, so that a forgotten canary ends"}
	}
	value, err := json.Marshal(p)
	if err != nil {
		return false, err
	}
	return settled(d.consul.CompareAndSwapFenced(ctx, d.fence, d.CanaryKey(pop), value, index))
}

// Canary returns the canary that the edges of one PoP follow, or nil, and the index to
// pass to SetCanary, DeleteCanary and WithdrawCanary; the index is valid even if the content is
// unreadable. The canary may have expired.
func (d *Documents) Canary(ctx context.Context, pop string) (*Pointer, uint64, error) {
	if err := d.check(pop); err != nil {
		return nil, 0, err
	}
	return d.pointer(ctx, d.CanaryKey(pop))
}

// DeleteCanary makes the edges of one PoP follow the current pointer again, if their
// canary has not changed since Canary returned index. It returns false if the canary was
// replaced, and true if it is already gone.
func (d *Documents) DeleteCanary(ctx context.Context, pop string, index uint64) (bool, error) {
	if err := d.check(pop); err != nil {
		return false, err
	}
	return d.consul.removeCAS(ctx, d.CanaryKey(pop), index)
}

// WithdrawCanary is DeleteCanary for a canary that was not promoted: it records that the change
// ended it. It returns false if the canary is already gone.
func (d *Documents) WithdrawCanary(ctx context.Context, c Change, index uint64) (bool, error) {
	if err := d.check(c.Canary); err != nil {
		return false, err
	}
	key := d.CanaryKey(c.Canary)
	return d.append(ctx, c, &api.KVTxnOp{Verb: api.KVCheckIndex, Key: key, Index: index}, &api.KVTxnOp{Verb: api.KVDelete, Key: key})
}

// Canaries returns all canaries by PoP, including expired ones. wrong has an error for
// each unreadable key; err means that listing failed.
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

// each calls read for every key in a folder of these documents. wrong collects the
// errors of read.
func (d *Documents) each(ctx context.Context, folder string, read func(name string, value []byte) error) (wrong []error, err error) {
	if err := d.check(); err != nil {
		return nil, err
	}
	prefix := d.key(folder) + "/"
	entries, err := d.consul.List(ctx, prefix)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		name := strings.TrimPrefix(e.Key, prefix)
		if name == "" {
			continue // the folder itself, which Consul's UI creates
		}
		if err := read(name, e.Value); err != nil {
			wrong = append(wrong, d.consul.Unreadable(e.Key, fmt.Errorf("%w; correct or delete the key", err)))
		}
	}
	return wrong, nil
}
