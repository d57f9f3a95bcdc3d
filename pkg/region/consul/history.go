package consul

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/consul/api"

	"github.com/weir-edge/weir/pkg/field"
)

// mostOps is how many operations Consul accepts in one transaction.
const mostOps = 64

// historyKey begins with a fixed-length time, so that keys sort by time, and ends with the version
// or, for a version that was only tried, with the PoP.
func (d *Documents) historyKey(c *Change) string {
	name := c.AppliedAt.UTC().Format("2006-01-02T15:04:05.000000000Z") + "-" + c.Version
	if c.Canary != "" {
		name += "." + c.Canary
	}
	return d.key("history", name)
}

// Record adds a change to the history, and to its chain. Recording a change twice has no
// further effect.
func (d *Documents) Record(ctx context.Context, c Change) error {
	_, err := d.append(ctx, c)
	return err
}

func (d *Documents) checkChange(c *Change) error {
	if err := errors.Join(d.check(), c.validate()); err != nil {
		return err
	}
	if c.Replaced != "" && !isHex(c.Replaced, versionDigits) {
		return &field.Error{Path: "replaced", Msg: fmt.Sprintf("must be a version (got %q)", c.Replaced)}
	}
	return nil
}

// Recorded reports whether the history contains the change that wrote a pointer.
func (d *Documents) Recorded(ctx context.Context, p Pointer) (bool, error) {
	entry, err := d.entryOf(ctx, p)
	return entry != nil, err
}

func (d *Documents) entryOf(ctx context.Context, p Pointer) (*Entry, error) {
	if err := d.check(); err != nil {
		return nil, err
	}
	return d.consul.Get(ctx, d.historyKey(&Change{Pointer: p}))
}

// History returns at most the given number of changes, newest first; 0 means all. wrong has
// an error for each unreadable key among them; err means that reading failed.
func (d *Documents) History(ctx context.Context, most int) (changes []Change, wrong []error, err error) {
	wrong, err = d.EachPage(ctx, func(page []Change) bool {
		changes = append(changes, page...)
		return most == 0 || len(changes) < most
	})
	if most > 0 {
		changes = changes[:min(most, len(changes))]
	}
	return changes, wrong, err
}

// EachPage reads the history in pages, newest first, until do returns false. Its memory and
// queries do not depend on the length of the history. wrong has an error for each
// unreadable key among those read.
func (d *Documents) EachPage(ctx context.Context, do func([]Change) bool) (wrong []error, err error) {
	unnamed, err := d.EachEntry(ctx, func(page []Entry) bool {
		var changes []Change
		for _, e := range page {
			if c, err := parseChange(e.Value); err != nil {
				wrong = append(wrong, d.unreadableEntry(e.Key, err))
			} else {
				changes = append(changes, c)
			}
		}
		return do(changes)
	})
	return append(wrong, unnamed...), err
}

func (d *Documents) unreadableEntry(key string, err error) error {
	return d.consul.Unreadable(key, fmt.Errorf("%w; correct or delete the key", err))
}

// EachEntry is EachPage with the entries as they are stored. wrong has an error for each key
// that names no change.
func (d *Documents) EachEntry(ctx context.Context, do func([]Entry) bool) (wrong []error, err error) {
	var failure error
	err = d.historyKeys(ctx, func(keys []string) bool {
		for page := range slices.Chunk(keys, mostOps) {
			var entries []Entry
			if entries, failure = d.entries(ctx, page, &wrong); failure != nil || !do(entries) {
				return false
			}
		}
		return true
	})
	return wrong, errors.Join(err, failure)
}

// entries reads the given keys of the history.
func (d *Documents) entries(ctx context.Context, keys []string, wrong *[]error) (list []Entry, err error) {
	var ops []*api.KVTxnOp
	for _, key := range keys {
		switch err := d.consul.checkKey(key); {
		case key == d.key("history", ""): // the folder itself, which Consul's UI creates
		case err != nil:
			*wrong = append(*wrong, d.unreadableEntry(key, errors.New("is not the name of a change")))
		default:
			ops = append(ops, &api.KVTxnOp{Verb: api.KVGet, Key: key})
		}
	}
	if len(ops) == 0 {
		return nil, nil
	}
	pairs, err := d.transact(ctx, ops)
	for _, p := range pairs {
		list = append(list, Entry{Key: p.Key, Value: p.Value, ModifyIndex: p.ModifyIndex})
	}
	return list, err
}

// historyKeys calls do with the keys of the history, newest first, a month at a time, until
// it returns false. It asks Consul for years and months first, not for everything in them,
// by grouping keys such as 2026-03-01T10:00:00.000000000Z-0123456789ab at the next hyphen.
func (d *Documents) historyKeys(ctx context.Context, do func([]string) bool) error {
	if err := d.check(); err != nil {
		return err
	}
	_, err := d.walk(ctx, d.key("history", ""), 2, do)
	return err
}

func (d *Documents) walk(ctx context.Context, prefix string, levels int, do func([]string) bool) (more bool, err error) {
	if levels == 0 {
		keys, err := d.consul.keys(ctx, prefix, "")
		slices.Reverse(keys)
		return err == nil && do(keys), err
	}
	keys, err := d.consul.keys(ctx, prefix, "-")
	more = err == nil
	for _, key := range slices.Backward(keys) {
		if !more || err != nil {
			break
		}
		if strings.HasSuffix(key, "-") {
			more, err = d.walk(ctx, key, levels-1, do)
		} else {
			more = do([]string{key})
		}
	}
	return more, err
}

// Newest returns at most the given number of versions that became active last, and an
// index, 0 if there are fewer. Versions stored by that index but not returned are older.
func (d *Documents) Newest(ctx context.Context, most int) (versions map[string]bool, before uint64, err error) {
	versions = map[string]bool{}
	oldest := ""
	err = d.historyKeys(ctx, func(keys []string) bool {
		for _, key := range keys {
			if version := key[strings.LastIndexByte(key, '-')+1:]; isHex(version, versionDigits) && len(versions) < most {
				versions[version], oldest = true, key
			}
		}
		return len(versions) < most
	})
	if err != nil || len(versions) < most {
		return versions, 0, err
	}
	entry, err := d.consul.Get(ctx, oldest)
	if entry != nil {
		before = entry.ModifyIndex
	}
	return versions, before, err
}

// Versions returns the stored versions that begin with the given digits, in order.
func (d *Documents) Versions(ctx context.Context, digits string) ([]string, error) {
	if err := d.check(); err != nil {
		return nil, err
	}
	folder := d.versionKey("")
	keys, err := d.consul.keys(ctx, folder+digits, "")
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

// Stored is a stored version.
type Stored struct {
	Version string
	index   uint64
}

// StoredBefore returns those of the versions that are stored and were already at the given
// index.
func (d *Documents) StoredBefore(ctx context.Context, versions []string, before uint64) (old []Stored, err error) {
	what := "read " + d.versionKey("")
	for some := range slices.Chunk(versions, mostOps) {
		for len(some) > 0 {
			var ops []*api.KVTxnOp
			for _, version := range some {
				// Reads everything but the value, which may be long: no session holds these
				// keys.
				ops = append(ops, &api.KVTxnOp{Verb: api.KVCheckSession, Key: d.versionKey(version)})
			}
			entries, failed, err := d.consul.transact(ctx, what, ops...)
			if err != nil {
				return nil, err
			}
			var there []string // the others were removed meanwhile
			for i, version := range some {
				if failed == nil && entries[i].ModifyIndex <= before {
					old = append(old, Stored{version, entries[i].ModifyIndex})
				} else if failed != nil && !failed[i] {
					there = append(there, version)
				}
			}
			if len(there) == len(some) {
				return nil, d.consul.failure(ctx, what, errMeanwhile)
			}
			some = there
		}
	}
	return old, nil
}

// MostRemoved is how many versions Remove takes at once: the transaction also checks the
// lock and removes their signatures.
const MostRemoved = (mostOps - 1) / 2

// Remove deletes versions and their signatures while a lock is held. Its error is a
// *LockLostError if the lock is lost. Nothing may refer to the versions.
func (d *Documents) Remove(ctx context.Context, versions []Stored, f Fence) error {
	ops := []*api.KVTxnOp{d.consul.fenced(f)}
	for _, v := range versions {
		ops = append(ops, &api.KVTxnOp{Verb: api.KVDeleteCAS, Key: d.versionKey(v.Version), Index: v.index},
			&api.KVTxnOp{Verb: api.KVDelete, Key: d.signatureKey(v.Version)})
	}
	_, err := d.transact(ctx, ops)
	if now, index, unseen := d.consul.lock(ctx, f.What); errors.Is(err, errMeanwhile) && unseen == nil && index != f.Index {
		return lockLost(now)
	}
	return err
}

var errMeanwhile = errors.New("keys were changed in the meantime; try again")

// transact runs a transaction on these documents, which fails if others change them.
func (d *Documents) transact(ctx context.Context, ops []*api.KVTxnOp) ([]*api.KVPair, error) {
	what := "transaction in " + d.consul.Key(d.kind)
	results, failed, err := d.consul.transact(ctx, what, ops...)
	if failed != nil {
		err = d.consul.failure(ctx, what, errMeanwhile)
	}
	return results, err
}
