package region

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weir-edge/weir/pkg/region/consul"
)

// spillKey is the key of the record of what routers give away, in the first region whose
// Consul answers.
func spillKey(c *consul.Client) string { return c.Key("spill") }

// share keeps this router's spill in agreement with that of others until ctx ends.
func (f *Follower) share(ctx context.Context) {
	wait := time.Duration(0)
	for {
		pause(ctx, wait)
		if ctx.Err() != nil {
			return
		}
		answered, err := f.agree(ctx)
		f.mu.Lock()
		f.spillErr = err
		f.mu.Unlock()
		if wait = recordEvery; !answered {
			wait = pulseEvery
		}
	}
}

// agree reads the record once. answered reports whether that is enough for recordEvery.
func (f *Follower) agree(ctx context.Context) (answered bool, err error) {
	c, entry, err := f.record(ctx)
	if c == nil || err != nil {
		return err != nil, err
	}
	return len(f.View().Spill.Gifts) > 0, f.agreeOn(ctx, c, entry)
}

// record reads the record from the first region whose Consul answers. The entry is nil
// without a record, and the client too if no Consul answers.
func (f *Follower) record(ctx context.Context) (*consul.Client, *consul.Entry, error) {
	for _, r := range f.config.Regions {
		f.mu.Lock()
		away := !f.facts[r.Name].failing.IsZero()
		f.mu.Unlock()
		if away {
			continue
		}
		var status *consul.StatusError
		entry, err := r.Consul.Get(ctx, spillKey(r.Consul))
		if err == nil || errors.As(err, &status) {
			return r.Consul, entry, err
		}
	}
	return nil, nil, nil
}

// Recorded returns v with what routers have recorded since then that they give away; they
// record a change within recordEvery. Without such a record it returns v.
func (f *Follower) Recorded(ctx context.Context, v *View, since time.Time) *View {
	_, entry, err := f.record(ctx)
	if err != nil || entry == nil {
		return v
	}
	record, err := readSpill(entry.Value)
	if err != nil || v.At.Sub(record.At) >= outdated || record.At.Before(since) {
		return v
	}
	next := *v
	next.Spill = record
	if v.chooser != nil {
		next.slots = v.chooser.slots(record)
	}
	return &next
}

// agreeOn adopts the record, or overwrites it.
func (f *Follower) agreeOn(ctx context.Context, c *consul.Client, entry *consul.Entry) error {
	var record *Spill
	var index uint64
	if entry != nil {
		index = entry.ModifyIndex
		record, _ = readSpill(entry.Value) // an unreadable one is overwritten
	}
	now := time.Now()
	mine := f.View().Spill
	f.mu.Lock()
	next, write := f.agreement.Agree(mine, record, now)
	if next != mine {
		f.adopted = next
	}
	f.mu.Unlock()
	if next != mine {
		f.lookSoon()
	}
	if !write || len(mine.Gifts) == 0 {
		return nil
	}
	value, err := json.Marshal(mine)
	if err != nil {
		return err
	}
	// Another router may have been faster; its record is as good.
	_, err = c.Swap(ctx, spillKey(c), value, index)
	return err
}

// readSpill reads a record. Another router wrote it, so everything in it is validated.
func readSpill(value []byte) (*Spill, error) {
	s := &Spill{}
	if err := json.Unmarshal(value, s); err != nil {
		return nil, err
	}
	if err := s.check(); err != nil {
		return nil, err
	}
	return s, nil
}

// mostDemand is far above what a PoP is asked for, and squares to less than infinity.
const mostDemand = 1e12

// check returns an error for a spill that no router can have.
func (s *Spill) check() error {
	if s.Deaf < 0 { // it would be better informed than any router
		return fmt.Errorf("has outdated figures of %d PoPs", s.Deaf)
	}
	share := func(v float64) bool { return v >= 0 && v <= 1+1e-6 }
	for name, g := range s.Gifts {
		for _, rate := range []float64{g.Own, g.Told, g.Last.Own, g.Last.Capacity, g.Last.Least} {
			if !(rate >= 0 && rate <= mostDemand) {
				return fmt.Errorf("has a demand of %s that no PoP can have", name)
			}
		}
		sound := true
		for _, p := range g.Parts {
			sound = sound && share(p.Goal) && share(p.Share) && share(p.Noticed) && share(p.Most) &&
				!slices.ContainsFunc(p.Asking[:], func(v float64) bool { return !share(v) })
		}
		if !sound {
			return fmt.Errorf("has a share of %s that is not 0 to 1", name)
		}
	}
	return nil
}

// firstSpill returns what a starting router gives away: what it gave before, if that is
// known.
func firstSpill(before *Spill, now time.Time) *Spill {
	return &Spill{At: before.At, Gifts: before.Gifts, By: rand.Text()[:8], Since: now}
}
