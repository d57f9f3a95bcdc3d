package consul

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/hashicorp/consul/api"
)

// Link ties a history entry to the one before it. Removing, changing or inserting an entry
// would require rewriting every later one.
type Link struct {
	// Number counts the entries of the chain, from 1.
	Number int `json:"number"`
	// Before is the hash of the entry with the number before, empty for the first.
	Before string `json:"before,omitempty"`
}

// Head is the number and the hash of the newest entry of the chain.
type Head struct {
	Number int    `json:"number"`
	Hash   string `json:"hash"`
}

// record is a Change as stored.
type record struct {
	Change
	Link *Link `json:"link,omitempty"`
}

// hashEntry covers the key too, which names the time and the version.
func hashEntry(key string, value []byte) string {
	h := sha256.New()
	fmt.Fprintf(h, "weir history 1\n%q\n", key) // never fails
	h.Write(value)
	return hex.EncodeToString(h.Sum(nil))
}

// entryName returns the key of an entry without its folder, so that a chain may move to
// another prefix with its history.
func (d *Documents) entryName(key string) string { return key[len(d.key("history"))+1:] }

func (d *Documents) headKey() string { return d.key("head") }

// End is where the chain ended when it was read.
type End struct {
	head  Head
	index uint64
}

// ErrGone is an error of Gone.
var ErrGone = errors.New("the pointer is gone, although changes were recorded")

// Gone returns an error if there were documents. Where Current found no pointer before, it is lost if
// there is still none; otherwise the first change came in the meantime.
func (d *Documents) Gone(ctx context.Context) error {
	head, err := d.newestLink(ctx)
	if err == nil && head.Number > 0 {
		err = d.consul.Unreadable(d.CurrentKey(), ErrGone)
	}
	return err
}

// End reads where the chain ends now, for ContinuingFrom.
func (d *Documents) End(ctx context.Context) (End, error) {
	if err := d.check(); err != nil {
		return End{}, err
	}
	head, index, err := d.head(ctx)
	if err == nil && head.Number == 0 { // nothing is linked yet, or the head was lost
		head, err = d.newestLink(ctx)
	}
	return End{head, index}, err
}

// head returns the head of the chain and the index to replace it. Its number is 0 if none
// can be read.
func (d *Documents) head(ctx context.Context) (h Head, index uint64, err error) {
	entry, _, err := d.consul.get(ctx, d.headKey(), query{consistent: true}, answerTimeout)
	if err != nil || entry == nil {
		return h, 0, err
	}
	if json.Unmarshal(entry.Value, &h) != nil || h.Number < 1 || h.Number > mostNumber || !isHex(h.Hash, sha256Digits) {
		return Head{}, entry.ModifyIndex, nil
	}
	return h, entry.ModifyIndex, nil
}

// mostNumber is above any number of a chain: one entry a second for 30,000 years.
const mostNumber = 1 << 40

// mostRaces is how often others may be faster before Record gives up.
const mostRaces = 16

// append adds a change to the history and its chain, together with what the change writes: all
// or nothing. done is false if others have changed what it writes; if the lock was lost, the
// error is a *LockLostError.
func (d *Documents) append(ctx context.Context, c Change, writes ...*api.KVTxnOp) (done bool, err error) {
	if err := d.checkChange(&c); err != nil {
		return false, err
	}
	key, alone, fenced := d.historyKey(&c), len(writes) == 0, 0
	what := "write " + key
	if !alone {
		what = "write " + writes[0].Key
	}
	if d.fence != (Fence{}) {
		writes, fenced = slices.Concat([]*api.KVTxnOp{d.consul.fenced(d.fence)}, writes), 1
	}
	end := d.end
	for range mostRaces {
		if end == nil {
			now, err := d.End(ctx)
			if err != nil {
				return false, err
			}
			end = &now
		}
		value, err := json.Marshal(record{c, &Link{Number: end.head.Number + 1, Before: end.head.Hash}})
		if err != nil {
			return false, err
		}
		next, err := json.Marshal(Head{end.head.Number + 1, hashEntry(d.entryName(key), value)})
		if err != nil {
			return false, err
		}
		_, failed, err := d.consul.transact(ctx, what, slices.Concat(writes, []*api.KVTxnOp{
			{Verb: api.KVCAS, Key: key, Value: value}, {Verb: api.KVCAS, Key: d.headKey(), Value: next, Index: end.index},
		})...)
		if err == nil && failed == nil || refused(err) {
			return err == nil, err
		}
		if alone || err != nil { // the answer may be lost, but a change is recorded only once
			entry, _, unseen := d.consul.get(ctx, key, query{consistent: true}, answerTimeout)
			if entry != nil && (alone || bytes.Equal(entry.Value, value)) {
				return true, nil
			}
			err = cmp.Or(err, unseen)
		}
		if err != nil || fenced > 0 && failed[0] {
			return false, d.consul.lost(ctx, d.fence, err)
		}
		for i := range writes {
			if failed[i] {
				return false, nil
			}
		}
		end = nil
	}
	return false, d.consul.failure(ctx, what, errors.New("other changes were recorded at the same time; try again"))
}

// newestLink returns the head according to the newest entries.
func (d *Documents) newestLink(ctx context.Context) (head Head, err error) {
	_, err = d.EachEntry(ctx, func(page []Entry) bool {
		for _, e := range page {
			var r record
			if json.Unmarshal(e.Value, &r) == nil && r.Link != nil && r.Link.Number > head.Number && r.Link.Number <= mostNumber {
				head = Head{r.Link.Number, hashEntry(d.entryName(e.Key), e.Value)}
			}
		}
		return false // clocks that differ by more than a page start a second chain, which Verify reports
	})
	return head, err
}

// Identity is the owner of a token, according to Consul.
type Identity struct {
	Accessor string `json:"accessor"`
	// Name is the token's description, or its auth method.
	Name string `json:"name,omitempty"`
}

// maxIdentity bounds the length of a description, which others wrote.
const maxIdentity = 128

// Self returns the identity of this client's token, or nil without a token or without ACLs.
func (c *Client) Self(ctx context.Context) (*Identity, error) {
	if c.config.TokenFile == "" {
		return nil, nil
	}
	ctx, cancel := within(ctx, answerTimeout)
	defer cancel()
	token, _, err := c.api.ACL().TokenReadSelf(query{}.options(ctx))
	var status api.StatusError
	if errors.As(err, &status) && status.Code == http.StatusUnauthorized { // ACLs are off
		return nil, nil
	}
	if err != nil {
		return nil, c.failure(ctx, "read its own token", err)
	}
	id := &Identity{Accessor: shorten(token.AccessorID), Name: shorten(cmp.Or(token.Description, token.AuthMethod, " "))}
	if token.Description+token.AuthMethod == "" {
		id.Name = ""
	}
	id.Name = id.Name[:min(len(id.Name), maxIdentity)]
	return id, nil
}
