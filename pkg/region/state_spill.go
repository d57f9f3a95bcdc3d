package region

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/weir-edge/weir/pkg/region/consul"
	"github.com/weir-edge/weir/pkg/sign"
)

// spillKey is the key of the record of what routers give away, in the first region whose
// Consul answers.
func spillKey(c *consul.Client) string { return c.Key("spill") }

// share keeps this router's spill in agreement with that of others until ctx ends.
func (f *Follower) share(ctx context.Context) {
	wait := time.Duration(0)
	for {
		_ = consul.Pause(ctx, wait)
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
	v := f.View()
	if v.Topology == nil {
		return false, nil
	}
	if err := f.alone(v.Topology); err != nil {
		return true, err
	}
	c, entry, err := f.record(ctx)
	if c == nil || err != nil {
		return err != nil, err
	}
	return len(v.Spill.Gifts) > 0, f.agreeOn(ctx, v, c, entry)
}

// alone returns why this router neither follows records nor writes any.
func (f *Follower) alone(t *Topology) error {
	switch key := f.config.Key; {
	case key == nil:
		return errors.New("it has no key; make one with regionctl keys generate FILE, start the router with --key FILE, and add the public key to routers in the topology")
	case t.routerKeys()[key.ID()] == nil:
		return fmt.Errorf("the topology does not name its key %s; add {name: NAME, key: %s} to routers in the topology", key.ID(), key.Public())
	}
	return nil
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
	c, entry, err := f.record(ctx)
	if err != nil || entry == nil {
		return v
	}
	record, err := f.readSpill(c, v.Topology, entry.Value, v.At)
	if err != nil || record == nil || record.At.Before(since) {
		return v
	}
	next := *v
	next.Spill = record
	next.portions = v.chooser.portions(record)
	return &next
}

// agreeOn follows the record, or overwrites it.
func (f *Follower) agreeOn(ctx context.Context, v *View, c *consul.Client, entry *consul.Entry) error {
	var record *Spill
	var index uint64
	var refused error
	now := time.Now()
	if entry != nil {
		index = entry.ModifyIndex
		record, refused = f.readSpill(c, v.Topology, entry.Value, now)
	}
	f.mu.Lock()
	next, write, exceeds := f.agreement.Agree(v, record, now)
	if next != v.Spill {
		f.adopted = next
	}
	if refused = cmp.Or(refused, exceeds); refused != nil {
		refused = fmt.Errorf("%s: ignored a record: %w", spillKey(c), refused)
		f.refused++
	}
	f.mu.Unlock()
	if next != v.Spill {
		f.lookSoon()
	}
	if !write || len(v.Spill.Gifts) == 0 {
		return refused
	}
	value, sequence, err := f.signSpill(v, now)
	written := false
	if err == nil {
		// Another router may have been faster; its record is as good.
		written, err = c.CompareAndSwap(ctx, spillKey(c), value, index)
	}
	if written {
		f.mu.Lock()
		f.sequences[signer{c, f.config.Key.ID()}] = sequence
		f.mu.Unlock()
	}
	return cmp.Or(refused, err)
}

// spillKind is what signatures call a record.
const spillKind = "spill"

// recorded is what a router signs. The zone tells fleets apart. Among the records of one key in
// one Consul a later one has the higher sequence, so none can be put back.
type recorded struct {
	Zone     string `json:"zone"`
	Sequence int64  `json:"sequence"`
	Spill    Spill  `json:"spill"`
}

// signer is a key whose records a Consul holds.
type signer struct {
	consul *consul.Client
	key    string
}

// signedSpill is a record.
type signedSpill struct {
	Text      json.RawMessage `json:"record"`
	Signature sign.Signature  `json:"signature"`
}

// lastSequence returns the highest sequence of a key's records in any Consul. It needs f.mu.
func (f *Follower) lastSequence(key string) (last int64) {
	for s, sequence := range f.sequences {
		if s.key == key {
			last = max(last, sequence)
		}
	}
	return last
}

func (f *Follower) signSpill(v *View, now time.Time) (value []byte, sequence int64, err error) {
	f.mu.Lock()
	sequence = max(now.UnixMilli(), f.lastSequence(f.config.Key.ID())+1)
	f.mu.Unlock()
	text, err := json.Marshal(recorded{v.Topology.Zone, sequence, *v.Spill})
	if err != nil {
		return nil, 0, err
	}
	value, err = json.Marshal(signedSpill{text, f.config.Key.Sign(subject(spillKind, text), nil)})
	return value, sequence, err
}

// readSpill reads a record of a Consul. It returns nil for one that is outdated, or older than one
// in another Consul, and an error for one that no router of this fleet wrote after those that this
// one has read there.
func (f *Follower) readSpill(c *consul.Client, t *Topology, value []byte, now time.Time) (*Spill, error) {
	var signed signedSpill
	if err := json.Unmarshal(value, &signed); err != nil {
		return nil, err
	}
	if t.routerKeys().Verify(subject(spillKind, signed.Text), []sign.Signature{signed.Signature}, nil) != nil {
		return nil, errors.New("it is not signed by a router that the topology names")
	}
	var r recorded
	if err := json.Unmarshal(signed.Text, &r); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	by := signer{c, signed.Signature.Key}
	switch age := now.Sub(r.Spill.At); {
	case r.Zone != t.Zone:
		return nil, fmt.Errorf("it is for the zone %q", r.Zone)
	case age >= outdated:
		return nil, nil
	case age < -outdated:
		return nil, fmt.Errorf("key %s signed it for %s", by.key, r.Spill.At.UTC().Format(time.RFC3339))
	case r.Sequence < f.sequences[by]:
		return nil, fmt.Errorf("key %s has signed a later one", by.key)
	}
	if err := r.Spill.check(); err != nil {
		return nil, err
	}
	f.sequences[by] = r.Sequence
	if r.Sequence < f.lastSequence(by.key) { // this Consul was away meanwhile
		return nil, nil
	}
	return &r.Spill, nil
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
		for _, rate := range []float64{g.Own, g.Published, g.Last.Own, g.Last.Capacity, g.Last.Least} {
			if !(rate >= 0 && rate <= mostDemand) {
				return fmt.Errorf("has a demand of %s that no PoP can have", name)
			}
		}
		sound := true
		for _, p := range g.Parts {
			sound = sound && share(p.Goal) && share(p.Share) && share(p.Noticed) && share(p.Most) && math.Abs(p.Behind) <= 1+1e-6 &&
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
