package region

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
)

// maxWhy is the longest reason for a drain, in bytes.
const maxWhy = 500

// Drain says who took a PoP out of DNS on purpose, and why. The word of one
// region is enough.
type Drain struct {
	Who   string    `json:"who"`
	Why   string    `json:"why"`
	Since time.Time `json:"since"`
}

func (d Drain) equal(other Drain) bool {
	return d.Who == other.Who && d.Why == other.Why && d.Since.Equal(other.Since)
}

func (d Drain) validate() error {
	f := &faults{}
	line := func(field, text string) {
		if text == "" || len(text) > maxWhy || strings.ContainsFunc(text, unicode.IsControl) {
			f.add(field, "must be 1 to %d bytes in one line (got %q)", maxWhy, text)
		}
	}
	line("who", d.Who)
	line("why", d.Why)
	if d.Since.IsZero() {
		f.add("since", "must be the time of the change")
	}
	return errors.Join(f.list...)
}

// parseDrain reads a drain. What cannot be read drains all the same: that the key
// is present says so.
func parseDrain(value []byte) (Drain, error) {
	var d Drain
	if err := json.Unmarshal(value, &d); err != nil {
		return Drain{Who: "somebody", Why: "the key holds no reason"}, fmt.Errorf("is no JSON object with who, why and since: %w", err)
	}
	clean := func(text string) string {
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

func (c *Consul) drainKey(pop string) string { return c.Key("drain", pop) }

// Drain takes a PoP out of DNS. Draining one again replaces who and why.
func (c *Consul) Drain(ctx context.Context, pop string, d Drain) error {
	if err := errors.Join(checkPoP(pop), d.validate()); err != nil {
		return err
	}
	d.Since = d.Since.UTC().Round(0)
	value, err := json.Marshal(d)
	if err != nil {
		return err
	}
	return c.put(ctx, c.drainKey(pop), value)
}

// Undrain puts a PoP back. That it is not drained is no error.
func (c *Consul) Undrain(ctx context.Context, pop string) error {
	if err := checkPoP(pop); err != nil {
		return err
	}
	return c.remove(ctx, c.drainKey(pop))
}

// Drains returns the drained PoPs. wrong names the keys that hold something else,
// which are drained too; err says that nothing could be listed.
func (c *Consul) Drains(ctx context.Context) (drains map[string]Drain, wrong []error, err error) {
	entries, err := c.list(ctx, c.Key("drain")+"/")
	if err != nil {
		return nil, nil, err
	}
	drains, wrong = c.readDrains(entries)
	return drains, wrong, nil
}

// readDrains leaves out what is the name of no PoP.
func (c *Consul) readDrains(entries []Entry) (drains map[string]Drain, wrong []error) {
	drains = map[string]Drain{}
	for _, e := range entries {
		name := strings.TrimPrefix(e.Key, c.Key("drain")+"/")
		if name == "" {
			continue // the folder itself, which Consul's own pages create
		}
		err := CheckName(name)
		if err == nil {
			drains[name], err = parseDrain(e.Value)
		}
		if err != nil {
			wrong = append(wrong, c.unreadable(e.Key, fmt.Errorf("%w; correct or delete the key", err)))
		}
	}
	return drains, wrong
}

func checkPoP(pop string) error {
	if err := CheckName(pop); err != nil {
		return fmt.Errorf("pop: %w", err)
	}
	return nil
}
