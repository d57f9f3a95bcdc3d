package kinds

import (
	"bytes"
	"cmp"
	"fmt"

	"github.com/weir-edge/weir/internal/ctl/term"
)

// none is the value of a missing field.
const none = "none"

// FieldValue is a field of a document by its path, and its value as text.
type FieldValue struct{ Name, Value string }

// fieldChange is a field whose value changes; none stands for a missing one.
type fieldChange struct {
	Field string `json:"field"`
	Old   string `json:"old"`
	New   string `json:"new"`
}

// changedFields merges two lists of fields that are in the same order.
func changedFields(old, now []FieldValue) []fieldChange {
	values := func(list []FieldValue) map[string]string {
		m := make(map[string]string, len(list))
		for _, f := range list {
			m[f.Name] = f.Value
		}
		return m
	}
	before, after := values(old), values(now)
	var changes []fieldChange
	for _, f := range now {
		if before[f.Name] != f.Value {
			changes = append(changes, fieldChange{f.Name, cmp.Or(before[f.Name], none), f.Value})
		}
	}
	for _, f := range old {
		if _, stays := after[f.Name]; !stays {
			changes = append(changes, fieldChange{f.Name, f.Value, none})
		}
	}
	return changes
}

// FieldChanges are the changes between two documents that are compared field by field.
type FieldChanges struct {
	Fields    []fieldChange `json:"fields"`
	Unchanged int           `json:"unchanged"`
	// FromDefaults: nothing was published, so this is the difference from the defaults.
	FromDefaults bool `json:"from_defaults,omitempty"`
	defaults     string
}

// compareFields compares two lists of fields that are in the same order.
func compareFields(old, now []FieldValue) *FieldChanges {
	c := &FieldChanges{Fields: append([]fieldChange{}, changedFields(old, now)...), Unchanged: len(now)}
	for _, f := range c.Fields {
		if f.New != none {
			c.Unchanged--
		}
	}
	return c
}

// from notes that the old document is the defaults, and what they are called.
func (c *FieldChanges) from(defaults string) { c.FromDefaults, c.defaults = true, defaults }

func (c *FieldChanges) Write(b *bytes.Buffer, s term.Style, most int) {
	if c.FromDefaults {
		fmt.Fprintf(b, "  compared with %s:\n", c.defaults)
	}
	if len(c.Fields) == 0 {
		b.WriteString("  no setting differs\n")
		return
	}
	for i, f := range c.Fields {
		if most > 0 && i == most {
			fmt.Fprintf(b, "  … and %s\n", term.Plural(len(c.Fields)-most, "more change"))
			break
		}
		fmt.Fprintf(b, "  %s: %s → %s\n", term.Printable(f.Field), s.Red(term.Printable(f.Old)), s.Green(term.Printable(f.New)))
	}
	fmt.Fprintf(b, "  %d changed, %d unchanged\n", len(c.Fields), c.Unchanged)
}
