package consul

import (
	"bytes"
	"context"
	"encoding/json"
	"time"
)

// longestLock is the longest time for which a lock may be held. A lock with a later
// expiry was written by a wrong clock.
const longestLock = 10 * time.Minute

// Lock records who is changing something region by region; it makes other changes wait.
//
// It is advisory: it prevents two changes from interleaving, but it may expire while its
// holder sleeps, or vanish if Consul loses its data. So its holder still writes by
// compare-and-set and checks the outcome at the end.
type Lock struct {
	By    string    `json:"by"`
	Since time.Time `json:"since"`
	Until time.Time `json:"until"` // when it expires, in case its holder died
}

// NewLock returns a lock that is valid from now, for at most longest.
func NewLock(by string, longest time.Duration) Lock {
	now := time.Now().UTC().Round(0)
	return Lock{By: by, Since: now, Until: now.Add(min(longest, longestLock))}
}

// held reports whether others must wait.
func (l Lock) held(now time.Time) bool {
	return now.Before(l.Until) && !now.Add(longestLock).Before(l.Until)
}

// parseLock parses a lock. An unreadable value counts as no lock.
func parseLock(value []byte) Lock {
	var l Lock
	if json.Unmarshal(value, &l) != nil {
		return Lock{}
	}
	return l
}

func (c *Client) lockKey(what string) string { return c.Key(what, "lock") }

// Lock acquires the lock on what is about to change: a kind of document, or the topology.
// If another operator holds it, Lock returns that lock.
func (c *Client) Lock(ctx context.Context, what string, l Lock) (other *Lock, err error) {
	value, err := json.Marshal(l)
	if err != nil {
		return nil, err
	}
	key := c.lockKey(what)
	for {
		entry, _, err := c.get(ctx, key, query{consistent: true}, answerTimeout)
		if err != nil {
			return nil, err
		}
		var index uint64
		if entry != nil {
			if bytes.Equal(entry.Value, value) {
				return nil, nil
			}
			if other := parseLock(entry.Value); other.held(time.Now()) {
				return &other, nil
			}
			index = entry.ModifyIndex
		}
		if done, err := c.Swap(ctx, key, value, index); done || err != nil {
			return nil, err
		}
		// Another operator was faster; find out which.
	}
}

// Unlock releases a lock. It is not an error if another operator holds it by now.
func (c *Client) Unlock(ctx context.Context, what string, l Lock) error {
	value, err := json.Marshal(l)
	if err != nil {
		return err
	}
	key := c.lockKey(what)
	entry, _, err := c.get(ctx, key, query{consistent: true}, answerTimeout)
	if err != nil || entry == nil || !bytes.Equal(entry.Value, value) {
		return err
	}
	_, err = c.removeCAS(ctx, key, entry.ModifyIndex)
	return err
}
