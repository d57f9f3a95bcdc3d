package adminapi

import (
	"net/netip"
	"time"
)

// Top is GET /v1/top: whom the rules refused most since a time, and which clients are above
// the mildest tier.
type Top struct {
	Node  string    `json:"node"`
	Since time.Time `json:"since"`
	Rules []TopRule `json:"rules"` // the most refusals first
	// Suspects are in the severest tier first, and PolicyMode is the behavior policy's, if any.
	Suspects   []Suspect `json:"suspects"`
	PolicyMode string    `json:"policy_mode,omitempty"`
}

// TopRule is a rule that refused requests, or would have in shadow mode.
type TopRule struct {
	Rule    string      `json:"rule"`
	Mode    string      `json:"mode"`
	Refused uint64      `json:"refused"`
	Missed  uint64      `json:"missed,omitempty"` // refusals beyond these that were not counted
	Clients []TopClient `json:"clients"`          // the most refusals first
}

// TopClient is a key that a rule refused.
type TopClient struct {
	// Key has the values that the rule counts by, secret ones hashed; none: all requests.
	Key []string `json:"key"`
	// Client is the address that the latest refused request came from, if known.
	Client netip.Addr `json:"client,omitzero"`
	// Refused is how often it was refused at least.
	Refused uint64 `json:"refused"`
	AtMost  uint64 `json:"at_most"`
}

// Suspect is a client above the mildest tier of the behavior policy that sent requests lately.
type Suspect struct {
	// Key has the values by which the policy identifies clients, secret ones hashed.
	Key        []string         `json:"key"`
	Client     netip.Addr       `json:"client,omitzero"`
	Tier       string           `json:"tier"`
	Level      int              `json:"level"` // of the tier; 0 is the mildest
	Score      float64          `json:"score"`
	RefusedFor string           `json:"refused_for,omitempty"`
	Signals    []BehaviorSignal `json:"signals"`
	Requests   uint64           `json:"requests"` // at least
}
