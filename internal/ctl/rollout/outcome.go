package rollout

import "fmt"

// Outcome is what a change did to one region.
type Outcome int

// The outcomes.
const (
	Untouched    Outcome = iota // not changed, or not yet
	Unreachable                 // its Consul does not answer; the change skips it
	AlreadyThere                // it already had what the change brings
	Applied
	Lost    // someone else was faster
	Failed  // its Consul refused
	Unknown // the answer was lost; the write may have taken effect
)

var outcomes = [...]string{"not changed", "unreachable", "already there", "applied", "conflict", "failed", "unknown"}

func (o Outcome) String() string { return outcomes[o] }

// MarshalText returns the word used with -o json.
func (o Outcome) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// UnmarshalText parses that word.
func (o *Outcome) UnmarshalText(text []byte) error {
	for i, word := range outcomes {
		if word == string(text) {
			*o = Outcome(i)
			return nil
		}
	}
	return fmt.Errorf("no outcome %q", text)
}

// Has reports whether the region has what the change brings.
func (o Outcome) Has() bool { return o == Applied || o == AlreadyThere }
