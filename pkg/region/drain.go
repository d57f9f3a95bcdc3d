package region

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/weir-edge/weir/pkg/field"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// maxWhy is the longest reason for a drain, in bytes.
const maxWhy = 500

// Drain records who took a PoP out of DNS on purpose, and why. A drain in one region is
// enough.
type Drain struct {
	Who   string    `json:"who"`
	Why   string    `json:"why"`
	Since time.Time `json:"since"`
}

// Equal reports whether both have the same content.
func (d Drain) Equal(other Drain) bool {
	return d.Who == other.Who && d.Why == other.Why && d.Since.Equal(other.Since)
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
	if d.Since.IsZero() {
		f.Add("since", "must be the time of the change")
	}
	return f.Err()
}

// parseDrain parses a drain. An unreadable value still drains the PoP: the key's
// existence is what counts.
func parseDrain(value []byte) (Drain, error) {
	var d Drain
	if err := json.Unmarshal(value, &d); err != nil {
		return Drain{Who: "somebody", Why: "the key gives no reason"}, fmt.Errorf("is not a JSON object with who, why and since: %w", err)
	}
	clean := func(text string) string {
		text = strings.ToValidUTF8(text[:min(len(text), maxWhy)], "")
		return strings.Map(func(r rune) rune {
			if unicode.IsControl(r) {
				return ' '
			}
			return r
		}, text)
	}
	d.Who, d.Why = clean(d.Who), clean(d.Why)
	return d, nil
}

// Drains is what one region stores, by PoP.
type Drains struct {
	Begun map[string]Drain
	// Ended: a drain that began by this time is over, in whichever region it still
	// exists, so that one that ended while its region was unreachable does not return
	// with it.
	Ended map[string]time.Time
}

// over reports whether a drain has ended. One without a time ends when its key is
// deleted.
func (d Drain) over(ended time.Time) bool { return !d.Since.IsZero() && !d.Since.After(ended) }

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
		if ok && !d.over(ended) && (oldest == nil || d.Since.Before(oldest.Since) || d.Since.Equal(oldest.Since) && d.Who+d.Why < oldest.Who+oldest.Why) {
			oldest = &d
		}
	}
	return oldest
}

// endings is the folder of drain ends, inside that of drains: readers of drains can read it.
const endings = "ended"

// ending is the end of a PoP's drains as stored.
type ending struct {
	Until time.Time `json:"until"`
}

func drainKey(c *consul.Client, parts ...string) string {
	return c.Key(append([]string{"drain"}, parts...)...)
}

// SetDrain takes a PoP out of DNS. Draining it again replaces who and why. Since must be
// later than the last end of a drain.
func SetDrain(ctx context.Context, c *consul.Client, pop string, d Drain) error {
	if err := errors.Join(checkPoP(pop), d.validate()); err != nil {
		return err
	}
	d.Since = d.Since.UTC().Round(0)
	value, err := json.Marshal(d)
	if err != nil {
		return err
	}
	return c.Put(ctx, drainKey(c, pop), value)
}

// EndDrain returns a PoP to DNS and records that all its drains that began by until are
// over. It is not an error if the PoP is not drained.
func EndDrain(ctx context.Context, c *consul.Client, pop string, until time.Time) error {
	if err := checkPoP(pop); err != nil {
		return err
	}
	if !until.IsZero() {
		value, err := json.Marshal(ending{until.UTC().Round(0)})
		if err == nil {
			err = c.Put(ctx, drainKey(c, endings, pop), value)
		}
		if err != nil {
			return err
		}
	}
	return c.Remove(ctx, drainKey(c, pop))
}

// ListDrains returns the drained PoPs. wrong has an error for each unreadable key; if
// that key is a drain, its PoP still counts as drained. err means that listing failed.
func ListDrains(ctx context.Context, c *consul.Client) (drains Drains, wrong []error, err error) {
	entries, err := c.List(ctx, drainKey(c, ""))
	if err != nil {
		return Drains{}, nil, err
	}
	drains, wrong = readDrains(c, entries)
	return drains, wrong, nil
}

// readDrains ignores keys that do not name a PoP.
func readDrains(c *consul.Client, entries []consul.Entry) (drains Drains, wrong []error) {
	drains = Drains{map[string]Drain{}, map[string]time.Time{}}
	for _, e := range entries {
		name := strings.TrimPrefix(e.Key, drainKey(c, ""))
		name, ends := strings.CutPrefix(name, endings+"/")
		if name == "" {
			continue // the folder itself, which Consul's UI creates
		}
		err := consul.CheckName(name)
		switch {
		case err != nil:
		case ends:
			var end ending
			if err = json.Unmarshal(e.Value, &end); err == nil {
				drains.Ended[name] = end.Until
			}
		default:
			drains.Begun[name], err = parseDrain(e.Value)
		}
		if err != nil {
			wrong = append(wrong, c.Unreadable(e.Key, fmt.Errorf("%w; correct or delete the key", err)))
		}
	}
	return drains, wrong
}

func checkPoP(pop string) error {
	if err := consul.CheckName(pop); err != nil {
		return fmt.Errorf("pop: %w", err)
	}
	return nil
}
