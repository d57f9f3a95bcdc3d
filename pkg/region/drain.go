package region

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/weir-edge/weir/pkg/field"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// maxWhy is the longest reason for a drain, in bytes.
const maxWhy = 500

// DrainsKind is the name of drains among the kinds of documents in Consul.
const DrainsKind = "drain"

// Drain records who took a PoP out of DNS on purpose, and why. A drain in one region is
// enough.
type Drain struct {
	Who   string    `json:"who"`
	Why   string    `json:"why"`
	Since time.Time `json:"since"`
	// At is when it was recorded: later than Since if it was changed or brought back.
	At time.Time `json:"at"`
}

// Equal reports whether both are the same record.
func (d Drain) Equal(other Drain) bool {
	return d.Who == other.Who && d.Why == other.Why && d.Since.Equal(other.Since) && d.At.Equal(other.At)
}

func (d Drain) validate() error {
	f := &field.Errors{}
	line := func(field, text string) {
		if text == "" || len(text) > maxWhy || strings.ContainsFunc(text, unicode.IsControl) {
			f.Add(field, "must be 1 to %d bytes in one line (got %q)", maxWhy, text)
		}
	}
	line("who", d.Who)
	line("why", d.Why)
	if d.Since.IsZero() || d.At.IsZero() {
		f.Add("since", "and at must be times")
	}
	return f.Err()
}

// Drains is the document of one region's drains, by PoP.
type Drains struct {
	Begun map[string]Drain `json:"begun,omitempty"`
	// Ended: a drain that was recorded by this time is over, in whichever region it still
	// exists, so that one that ended while its region was unreachable does not return
	// with it.
	Ended map[string]time.Time `json:"ended,omitempty"`
}

// ParseDrains reads a document of drains.
func ParseDrains(document []byte) (*Drains, error) {
	d := &Drains{}
	if err := json.Unmarshal(document, d); err != nil {
		return nil, fmt.Errorf("is not a JSON object with begun and ended: %w", err)
	}
	for _, pop := range slices.Sorted(maps.Keys(d.Begun)) {
		if err := errors.Join(consul.CheckName(pop), d.Begun[pop].validate()); err != nil {
			return nil, fmt.Errorf("begun: %s: %w", pop, err)
		}
	}
	return d, nil
}

// Document returns the document, the same for the same drains.
func (d *Drains) Document() []byte {
	document, err := json.Marshal(d)
	if err != nil {
		panic(err) // it consists of what JSON can express
	}
	return document
}

// With returns the drains with another one of a PoP or, if that is nil, without those that were
// recorded by until.
func (d *Drains) With(pop string, next *Drain, until time.Time) *Drains {
	with := &Drains{maps.Clone(d.Begun), maps.Clone(d.Ended)}
	if next != nil {
		if with.Begun == nil {
			with.Begun = map[string]Drain{}
		}
		with.Begun[pop] = Drain{next.Who, next.Why, next.Since.UTC().Round(0), next.At.UTC().Round(0)}
		return with
	}
	delete(with.Begun, pop)
	if until.After(with.Ended[pop]) {
		if with.Ended == nil {
			with.Ended = map[string]time.Time{}
		}
		with.Ended[pop] = until.UTC().Round(0)
	}
	return with
}

// Back returns the drains that bring back an earlier state. What differs is recorded anew, because
// regions that are away may hold a later record of it.
func (d *Drains) Back(before *Drains, now time.Time) *Drains {
	next := d
	for _, pop := range slices.Sorted(maps.Keys(d.Begun)) {
		if _, stays := before.Begun[pop]; !stays {
			next = next.With(pop, nil, d.after(pop, now))
		}
	}
	for _, pop := range slices.Sorted(maps.Keys(before.Begun)) {
		was := before.Begun[pop]
		if is, drained := d.Begun[pop]; !drained || !is.Equal(was) {
			was.At = d.after(pop, now).Add(time.Millisecond) // where both happen, it is drained
			next = next.With(pop, &was, time.Time{})
		}
	}
	return next
}

// after returns now, or a later time if records of the PoP are from the future.
func (d *Drains) after(pop string, now time.Time) time.Time {
	return slices.MaxFunc([]time.Time{now, d.Begun[pop].At, d.Ended[pop]}, time.Time.Compare)
}

// Ended returns the time up to which any region has ended a PoP's drains; zero if none
// has.
func Ended(pop string, all []Drains) (latest time.Time) {
	for _, r := range all {
		if t := r.Ended[pop]; t.After(latest) {
			latest = t
		}
	}
	return latest
}

// Oldest returns the oldest drain of a PoP that has not ended, so that all routers report
// the same one; nil if the PoP is not drained. ended may come from more regions than
// regions holds, including those that do not answer now.
func Oldest(pop string, regions []Drains, ended time.Time) *Drain {
	var oldest *Drain
	for _, r := range regions {
		d, ok := r.Begun[pop]
		if ok && d.At.After(ended) && (oldest == nil || d.Since.Before(oldest.Since) || d.Since.Equal(oldest.Since) && d.Who+d.Why < oldest.Who+oldest.Why) {
			oldest = &d
		}
	}
	return oldest
}

// PublishedDrains is PublishedTopology for drains: none before the first; a lost pointer is an error.
func PublishedDrains(ctx context.Context, c *consul.Client) (*Drains, uint64, error) {
	gone := make(chan error, 1) // asked at once, so that it takes no further round trip
	go func() { gone <- c.Documents(DrainsKind).Gone(ctx) }()
	d, index, err := published(ctx, c, DrainsKind, ParseDrains)
	if d != nil || err != nil {
		return d, index, err
	}
	if err := <-gone; err != nil {
		if d, index, now := published(ctx, c, DrainsKind, ParseDrains); d != nil || now != nil {
			return d, index, now
		}
		return nil, 0, err
	}
	return &Drains{}, 0, nil
}

// ChangeDrains changes a region's drains and records who did it: both or neither. next returns the
// drains that follow, nil to stop; concurrent changes call it again. What cannot be read stays.
func ChangeDrains(ctx context.Context, c *consul.Client, change consul.Change, next func(*Drains) *Drains) (done bool, err error) {
	docs := c.Documents(DrainsKind)
	for range mostRaces {
		before, index, err := PublishedDrains(ctx, c)
		if err != nil {
			return false, err
		}
		after := next(before)
		if after == nil {
			return false, nil
		}
		for _, d := range []*Drains{before, after} { // the first change can be undone, too
			change.Replaced = change.Version
			if change.Version, err = docs.Put(ctx, d.Document()); err != nil {
				return false, err
			}
		}
		change.Pointer = consul.NewPointer(after.Document(), change.AppliedBy, change.AppliedAt)
		if done, err := docs.Activate(ctx, change, index); done || err != nil {
			return done, err
		}
	}
	return false, errors.New("others change drains at the same time; try again")
}

const mostRaces = 16 // that ChangeDrains loses before it gives up
