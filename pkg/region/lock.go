package region

import (
	"bytes"
	"context"
	"encoding/json"
	"time"
)

// longestLock is how long a lock may be held. One whose end lies farther ahead was
// written by a clock that is wrong.
const longestLock = 10 * time.Minute

// Lock says who is changing something, in one region after another, so that others wait
// meanwhile.
//
// It spares them a change that meets another one half way, and guards nothing: it runs out
// while a holder sleeps, and goes with a Consul that loses its data. So what its holder
// writes still depends on what that replaces, and he looks at the end what became of it.
type Lock struct {
	By    string    `json:"by"`
	Since time.Time `json:"since"`
	Until time.Time `json:"until"` // then it ends, should its holder have died
}

// NewLock is one from now on, for at most that long.
func NewLock(by string, longest time.Duration) Lock {
	now := time.Now().UTC().Round(0)
	return Lock{By: by, Since: now, Until: now.Add(min(longest, longestLock))}
}

// held reports whether others must wait.
func (l Lock) held(now time.Time) bool {
	return now.Before(l.Until) && !now.Add(longestLock).Before(l.Until)
}

// parseLock reads a lock. What cannot be read is none.
func parseLock(value []byte) Lock {
	var l Lock
	if json.Unmarshal(value, &l) != nil {
		return Lock{}
	}
	return l
}

func (c *Consul) lockKey(what string) string { return c.Key(what, "lock") }

// Lock takes the lock of what is to be changed: a kind of document, or the topology. It
// returns the lock of another, if one is held.
func (c *Consul) Lock(ctx context.Context, what string, l Lock) (other *Lock, err error) {
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
		if done, err := c.swap(ctx, key, value, index); done || err != nil {
			return nil, err
		}
		// Someone was faster: look who it is.
	}
}

// Unlock gives a lock back. That another has it by now is no error.
func (c *Consul) Unlock(ctx context.Context, what string, l Lock) error {
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
