package adminapi

import "time"

// The headers of GET /v1/recent, whose body is a Recent a line.
const (
	// HeaderSince is from when on the body has all requests, RFC 3339.
	HeaderSince = "Weir-Recent-Since"
	// HeaderShare is the part of all clients whose requests are kept.
	HeaderShare = "Weir-Recent-Share"
	// HeaderLost is how many requests the node could not keep since it started.
	HeaderLost = "Weir-Recent-Lost"
)

// Recent is a request that a node decided lately. regionctl rules test reads such lines.
type Recent struct {
	Time     time.Time           `json:"time"`
	Client   string              `json:"client"`
	Method   string              `json:"method"`
	Host     string              `json:"host,omitempty"`
	Target   string              `json:"target"` // values of the query hashed
	Status   int                 `json:"status,omitempty"`
	Tier     string              `json:"tier,omitempty"`
	Trusted  bool                `json:"trusted,omitempty"`
	Headers  map[string][]string `json:"headers,omitempty"`
	Duration float64             `json:"duration_ms,omitempty"`
	// Verdict is pass, limited, unavailable, shed, misbehaved or blocked.
	Verdict string `json:"verdict"`
	Rules   string `json:"rules,omitempty"` // that refused it, separated by spaces
	Cut     bool   `json:"cut,omitempty"`   // it was too long to be kept as a whole
}
