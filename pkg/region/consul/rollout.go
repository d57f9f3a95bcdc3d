package consul

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weir-edge/weir/pkg/field"
)

// Rollout records how far a change is: of all regions at once, a canary, or waves. Each
// region holds it, so that another process can continue when the one that made the change was
// killed.
type Rollout struct {
	Named
	By      string    `json:"by"`
	Message string    `json:"message,omitempty"`
	BeganAt time.Time `json:"began_at"`
	// SeenAt is when the process that makes the change renewed the record last, by the clock of
	// this region's Consul.
	SeenAt time.Time `json:"seen_at"`
	// Undoes: the change rolls back another.
	Undoes bool `json:"undoes,omitempty"`
	// Flags are those of the command, such as --soak=10m.
	Flags []string `json:"flags,omitempty"`
	// Forced are the objections that were shown and overridden; a resumed rollout overrides no others.
	Forced []string `json:"forced,omitempty"`
	// Canary is the PoP that tries the version first; "": none.
	Canary string `json:"canary,omitempty"`
	// Waves are the regions in the order in which they change. A canary has one wave.
	Waves [][]string `json:"waves"`
	// Before is what each region had; a region without an entry had nothing.
	Before map[string]Named `json:"before,omitempty"`
	// Halted says why the process ended before all was done; "": it runs, or was killed.
	Halted string `json:"halted,omitempty"`
}

// longestRollout bounds the value of a Rollout.
const longestRollout = 256 << 10

// AtOnce reports whether all regions change together. Such a record is not renewed.
func (r *Rollout) AtOnce() bool { return r.Canary == "" && len(r.Waves) == 1 }

// SameRollout reports whether two records are of the same rollout.
func (r *Rollout) SameRollout(other *Rollout) bool {
	return r.Version == other.Version && r.By == other.By && r.BeganAt.Equal(other.BeganAt)
}

func (r *Rollout) validate() error {
	if err := r.Named.validate(""); err != nil {
		return err
	}
	switch {
	case r.BeganAt.IsZero():
		return &field.Error{Path: "began_at", Msg: "must be a time such as 2006-01-02T15:04:05Z"}
	case len(r.Waves) == 0 || slices.ContainsFunc(r.Waves, func(w []string) bool { return len(w) == 0 }):
		return &field.Error{Path: "waves", Msg: "must be lists of regions"}
	}
	for i, wave := range r.Waves {
		for _, region := range wave {
			if err := CheckName(region); err != nil {
				return &field.Error{Path: fmt.Sprintf("waves[%d]", i), Msg: err.Error()}
			}
		}
	}
	if r.Canary != "" {
		if err := CheckName(r.Canary); err != nil {
			return &field.Error{Path: "canary", Msg: err.Error()}
		}
	}
	for region, named := range r.Before {
		if err := named.validate("before." + region + "."); err != nil {
			return err
		}
	}
	return nil
}

func (d *Documents) rolloutKey() string { return d.key("rollout") }

// Rollout returns the record of the rollout of these documents that is not finished, or nil,
// and the index to pass to SetRollout and EndRollout; the index is valid even if the content
// is unreadable.
func (d *Documents) Rollout(ctx context.Context) (*Rollout, uint64, error) {
	if err := d.check(); err != nil {
		return nil, 0, err
	}
	entry, _, err := d.consul.get(ctx, d.rolloutKey(), query{}, answerTimeout)
	if err != nil || entry == nil {
		return nil, 0, err
	}
	r, err := parseRollout(entry.Value)
	if err != nil {
		return nil, entry.ModifyIndex, d.consul.Unreadable(d.rolloutKey(), fmt.Errorf("%w; delete the key", err))
	}
	return r, entry.ModifyIndex, nil
}

func parseRollout(value []byte) (*Rollout, error) {
	var r Rollout
	if err := json.Unmarshal(value, &r); err != nil {
		return nil, err
	}
	return &r, r.validate()
}

// SetRollout writes the record if it has not changed since Rollout returned index; 0 requires
// that there is none. It returns false if it has changed.
func (d *Documents) SetRollout(ctx context.Context, r Rollout, index uint64) (bool, error) {
	if err := errors.Join(d.check(), r.validate()); err != nil {
		return false, err
	}
	value, err := json.Marshal(r)
	if err != nil {
		return false, err
	}
	if len(value) > longestRollout {
		return false, fmt.Errorf("the record of the rollout has %d bytes; at most %d are allowed", len(value), longestRollout)
	}
	return d.consul.CompareAndSwap(ctx, d.rolloutKey(), value, index)
}

// EndRollout deletes the record if it has not changed since Rollout returned index. It returns
// false if it was replaced, and true if it is already gone.
func (d *Documents) EndRollout(ctx context.Context, index uint64) (bool, error) {
	if err := d.check(); err != nil {
		return false, err
	}
	return d.consul.removeCAS(ctx, d.rolloutKey(), index)
}
