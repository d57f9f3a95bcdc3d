package adminapi

import "time"

// The headers of GET /v1/recent. The body has one Recent a line.
const (
	// HeaderSince is the time from which the body is complete, RFC 3339.
	HeaderSince = "Weir-Recent-Since"
	// HeaderShare is the part of clients whose requests are kept.
	HeaderShare = "Weir-Recent-Share"
	// HeaderLost counts the requests that the node could not keep since it started.
	HeaderLost = "Weir-Recent-Lost"
)

// Recent is a request that a node decided recently. regionctl rules test reads these lines.
type Recent struct {
	Time     time.Time           `json:"time"`
	Client   string              `json:"client"`
	Method   string              `json:"method"`
	Host     string              `json:"host,omitempty"`
	Target   string              `json:"target"` // query values are hashed
	Status   int                 `json:"status,omitempty"`
	Tier     string              `json:"tier,omitempty"`
	Trusted  bool                `json:"trusted,omitempty"`
	Headers  map[string][]string `json:"headers,omitempty"`
	Duration float64             `json:"duration_ms,omitempty"`
	// Verdict is pass, limited, unavailable, shed, misbehaved or blocked.
	Verdict string `json:"verdict"`
	Rules   string `json:"rules,omitempty"` // that refused it, separated by spaces
	Cut     bool   `json:"cut,omitempty"`   // it was too long to keep whole
}
