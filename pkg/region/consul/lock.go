package consul

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/consul/api"
)

const (
	// RenewEvery is how often the holder of a lock renews it.
	RenewEvery = 3 * time.Second
	// StaleAfter is how long a lock must stay unchanged, by the clock of a process watching
	// it, before that process may take it over. A Consul session could not end that soon:
	// its TTL is at least 10 s and is doubled, and a lock delay of 15 s follows.
	StaleAfter = 10 * time.Second
)

// Lock records who is changing something region by region, and makes concurrent changes
// wait.
//
// Its holder renews it, which changes its value. A process that sees the same value for
// StaleAfter takes it over by compare-and-set; breaking a lock works the same way. The
// holder makes each write depend on the lock (see Fence), so one that was suspended learns
// that it has been displaced before it writes again.
type Lock struct {
	By    string    `json:"by"`
	Since time.Time `json:"since"`
	// Renewed is when its holder renewed it last, by the holder's clock.
	Renewed time.Time `json:"renewed"`
	// ID distinguishes the locks of one change from all others.
	ID string `json:"id"`
	// From is the holder of the lock that this one replaced before it was released, and
	// Broke says that this holder may still have been active.
	From  string `json:"from,omitempty"`
	Broke bool   `json:"broke,omitempty"`
}

// NewLock returns a lock to take.
func NewLock(by string) Lock {
	now := time.Now().UTC().Round(0)
	return Lock{By: by, Since: now, Renewed: now, ID: rand.Text()}
}

// Seen is a lock as read from Consul.
type Seen struct {
	Lock
	Index uint64 // changes when the lock is renewed
}

// parseLock parses a lock. A value without an ID, or an unreadable one, is no lock.
func parseLock(value []byte) (l Lock, held bool) {
	err := json.Unmarshal(value, &l)
	return l, err == nil && l.ID != ""
}

// LockLostError is the error of a holder that has lost its lock.
type LockLostError struct {
	By *Lock // the current holder; nil if there is none or it is unknown
}

func (d *LockLostError) Error() string {
	if d.By == nil {
		return "the lock is gone"
	}
	return fmt.Sprintf("%s holds the lock now", d.By.By)
}

// Fence makes a write depend on a lock: it takes effect only while the lock of What has
// this index, that is, while it has not been taken over. The zero Fence depends on nothing.
type Fence struct {
	What  string
	Index uint64
}

func (c *Client) lockKey(what string) string { return c.Key(what, "lock") }

// Locked returns the lock that blocks changes to what, or nil if there is none.
func (c *Client) Locked(ctx context.Context, what string) (*Seen, error) {
	seen, _, err := c.lock(ctx, what)
	return seen, err
}

// lock is Locked that also returns the index for replacing whatever is there.
func (c *Client) lock(ctx context.Context, what string) (*Seen, uint64, error) {
	entry, _, err := c.get(ctx, c.lockKey(what), query{consistent: true}, answerTimeout)
	if err != nil || entry == nil {
		return nil, 0, err
	}
	if l, held := parseLock(entry.Value); held {
		return &Seen{l, entry.ModifyIndex}, entry.ModifyIndex, nil
	}
	return nil, entry.ModifyIndex, nil
}

// Lock takes the lock of what is about to change, a kind of document or the topology, and
// returns its index. If it is held, Lock returns the holder's lock, unless its index is
// over: that lock was abandoned, or is to be broken.
func (c *Client) Lock(ctx context.Context, what string, mine Lock, over uint64) (uint64, *Seen, error) {
	for {
		seen, index, err := c.lock(ctx, what)
		switch {
		case err != nil:
			return 0, nil, err
		case seen != nil && seen.ID == mine.ID:
			return index, nil, nil
		case seen != nil && index != over:
			return 0, seen, nil
		}
		if index, err = c.setLock(ctx, what, mine, index); index != 0 || err != nil {
			return index, nil, err
		}
		// Another operator was faster; find out which.
	}
}

// Renew renews the lock that has this index, and returns its new index. Its error is a
// *LockLostError if the lock was taken over or removed.
func (c *Client) Renew(ctx context.Context, what string, mine Lock, index uint64) (uint64, error) {
	mine.Renewed = time.Now().UTC().Round(0)
	for {
		renewed, err := c.setLock(ctx, what, mine, index)
		if renewed != 0 || err != nil {
			return renewed, err
		}
		seen, _, err := c.lock(ctx, what)
		if err != nil {
			return 0, err
		}
		if seen == nil || seen.ID != mine.ID {
			return 0, lockLost(seen)
		}
		index = seen.Index // the answer to an earlier renewal was lost
	}
}

func lockLost(by *Seen) *LockLostError {
	if by == nil {
		return &LockLostError{}
	}
	return &LockLostError{By: &by.Lock}
}

// setLock writes a lock over the value with this index. It returns 0 if that has changed.
func (c *Client) setLock(ctx context.Context, what string, l Lock, index uint64) (uint64, error) {
	value, err := json.Marshal(l)
	if err != nil {
		return 0, err
	}
	key := c.lockKey(what)
	results, failed, err := c.transact(ctx, "write "+key, &api.KVTxnOp{Verb: api.KVCAS, Key: key, Value: value, Index: index})
	if err != nil || failed != nil {
		return 0, err
	}
	return results[0].ModifyIndex, nil
}

// Unlock releases a lock. It is not an error if it has another holder by now.
func (c *Client) Unlock(ctx context.Context, what string, mine Lock) error {
	seen, index, err := c.lock(ctx, what)
	if err != nil || seen == nil || seen.ID != mine.ID {
		return err
	}
	_, err = c.removeCAS(ctx, c.lockKey(what), index)
	return err
}

// CompareAndSwapFenced is CompareAndSwap under a fence. Its error is a *LockLostError if the lock was lost: then the
// write has not taken effect, or was replaced, and never will.
func (c *Client) CompareAndSwapFenced(ctx context.Context, f Fence, key string, value []byte, index uint64) (bool, error) {
	if f == (Fence{}) {
		return c.CompareAndSwap(ctx, key, value, index)
	}
	_, failed, err := c.transact(ctx, "write "+key, c.fenced(f), &api.KVTxnOp{Verb: api.KVCAS, Key: key, Value: value, Index: index})
	if err == nil && !failed[0] || refused(err) {
		return failed == nil && err == nil, err
	}
	lost := c.lost(ctx, f, err)
	if err != nil && c.holds(ctx, key, value) {
		return true, nil
	}
	return false, lost
}

// fenced is the condition that a lock is held.
func (c *Client) fenced(f Fence) *api.KVTxnOp {
	return &api.KVTxnOp{Verb: api.KVCheckIndex, Key: c.lockKey(f.What), Index: f.Index}
}

// lost returns err, why a write failed, unless the lock was lost: after a lost answer, only that
// settles what happened.
func (c *Client) lost(ctx context.Context, f Fence, err error) error {
	if f == (Fence{}) {
		return err
	}
	by, now, unseen := c.lock(ctx, f.What)
	if unseen != nil {
		return cmp.Or(err, unseen)
	}
	if now != f.Index {
		return lockLost(by)
	}
	return err
}

// transact runs operations on keys, all or none, and returns what they read or wrote. If
// stored values did not meet their conditions, failed says which.
func (c *Client) transact(ctx context.Context, what string, ops ...*api.KVTxnOp) (results []*api.KVPair, failed map[int]bool, err error) {
	var all api.TxnOps
	answers := 0
	for _, op := range ops {
		if err := c.checkKey(op.Key); err != nil {
			return nil, nil, c.failure(ctx, what, err)
		}
		all = append(all, &api.TxnOp{KV: op})
		if op.Verb != api.KVDeleteCAS && op.Verb != api.KVDelete {
			answers++
		}
	}
	ctx, cancel := within(ctx, answerTimeout)
	defer cancel()
	if err := c.guarded(ctx); err != nil {
		return nil, nil, err
	}
	var answer api.TxnResponse
	_, err = c.api.Raw().Write("/v1/txn", all, &answer, (&api.WriteOptions{}).WithContext(ctx))
	if failed, refused := failures(err); failed != nil {
		return nil, failed, nil
	} else if refused != nil {
		err = *refused
	}
	if err == nil && len(answer.Results) != answers {
		err = hidden("key:read", ops[0].Key)
	}
	if err == nil && slices.ContainsFunc(answer.Results, func(r *api.TxnResult) bool { return r == nil || r.KV == nil }) {
		err = errNull
	}
	if err != nil {
		return nil, nil, c.failure(ctx, what, err)
	}
	for _, r := range answer.Results {
		results = append(results, r.KV)
	}
	return results, nil, nil
}

// failures interprets the answer to a transaction that was rolled back: which operations
// failed, or that one is not allowed, which Consul reports with the same status.
func failures(err error) (failed map[int]bool, refused *api.StatusError) {
	var status api.StatusError
	var answer api.TxnResponse
	if !errors.As(err, &status) || status.Code != 409 || json.Unmarshal([]byte(status.Body), &answer) != nil || slices.Contains(answer.Errors, nil) {
		return nil, nil
	}
	for _, e := range answer.Errors {
		if len(e.What) >= len(denial) && e.What[:len(denial)] == denial {
			return nil, &api.StatusError{Code: 403, Body: e.What}
		}
		if failed == nil {
			failed = map[int]bool{}
		}
		failed[e.OpIndex] = true
	}
	return failed, nil
}

// denial is the prefix of Consul's message when a token lacks a permission.
const denial = "Permission denied"
