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

// Drain says who took a PoP out of DNS on purpose, and why. One region's drain is
// enough.
type Drain struct {
	Who   string    `json:"who"`
	Why   string    `json:"why"`
	Since time.Time `json:"since"`
}

// Equal reports whether both say the same.
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

// parseDrain reads a drain. An unreadable value still drains the PoP: the key's
// presence is what counts.
func parseDrain(value []byte) (Drain, error) {
	var d Drain
	if err := json.Unmarshal(value, &d); err != nil {
		return Drain{Who: "somebody", Why: "the key holds no reason"}, fmt.Errorf("is not a JSON object with who, why and since: %w", err)
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

func drainKey(c *consul.Client, parts ...string) string {
	return c.Key(append([]string{"drain"}, parts...)...)
}

// SetDrain takes a PoP out of DNS. Draining it again replaces who and why.
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

// EndDrain puts a PoP back. A PoP that is not drained is not an error.
func EndDrain(ctx context.Context, c *consul.Client, pop string) error {
	if err := checkPoP(pop); err != nil {
		return err
	}
	return c.Remove(ctx, drainKey(c, pop))
}

// Drains returns the drained PoPs. wrong has an error for each unreadable key, whose
// PoP is drained too; err means that listing failed.
func Drains(ctx context.Context, c *consul.Client) (drains map[string]Drain, wrong []error, err error) {
	entries, err := c.List(ctx, drainKey(c, ""))
	if err != nil {
		return nil, nil, err
	}
	drains, wrong = readDrains(c, entries)
	return drains, wrong, nil
}

// readDrains leaves out keys that do not name a PoP.
func readDrains(c *consul.Client, entries []consul.Entry) (drains map[string]Drain, wrong []error) {
	drains = map[string]Drain{}
	for _, e := range entries {
		name := strings.TrimPrefix(e.Key, drainKey(c, ""))
		if name == "" {
			continue // the folder itself, which Consul's UI creates
		}
		err := consul.CheckName(name)
		if err == nil {
			drains[name], err = parseDrain(e.Value)
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
