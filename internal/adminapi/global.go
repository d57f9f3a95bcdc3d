package adminapi

// Global is a node's view of the other regions, for keys that it owns under rules with scope:
// global.
type Global struct {
	Node   string `json:"node"`
	Region string `json:"region"`
	// Alone is why the node hears from no region. Such rules then count in its region only.
	Alone string `json:"alone,omitempty"`
	// Others are the other regions. Delay is how long news of a request in any of them takes to
	// arrive here.
	Others []GlobalRegion `json:"others"`
	Delay  string         `json:"delay,omitempty"`
	// Kept counts the node's counters, Traveling those that other regions must learn. Other
	// regions do not learn of Uncounted units.
	Kept      int   `json:"kept"`
	Traveling int   `json:"traveling"`
	Uncounted int64 `json:"uncounted"`
	// Parts is how many regions' parts of limits in escrow this region may spend in windows
	// that begin now; 0 if no majority has granted it its own.
	Parts int          `json:"parts"`
	Rules []GlobalRule `json:"rules"`
}

// GlobalRegion is another region, with the age of the data about it.
type GlobalRegion struct {
	Region string `json:"region"`
	Lag    string `json:"lag"`
}

// GlobalRule holds measurements of a rule that regions share.
type GlobalRule struct {
	Rule   string `json:"rule"`
	Limit  int64  `json:"limit"`
	Window string `json:"window"`
	Escrow bool   `json:"escrow"`
	// Burst is a token_bucket's.
	Burst int64 `json:"burst,omitempty"`
	// Partition is the rule's behavior while other regions are unreachable.
	Partition string `json:"on_partition"`
	// Overshoot is the largest part by which all regions together exceeded a key's limit in the
	// last 30 to 60 s. Bound is the most it can be at ten times the limit and the present
	// delay. Both are 0 without requests.
	Overshoot float64 `json:"overshoot"`
	Bound     float64 `json:"bound"`
	// Rights are the units in escrow that the region holds in the present windows.
	Rights int64 `json:"rights,omitempty"`
}

// GlobalCounts are what a region has admitted for a key in the present window, and what it has
// charged for other regions.
type GlobalCounts struct {
	Regions int              `json:"regions"`
	Own     int64            `json:"own"`
	Others  map[string]int64 `json:"others"`
	// Delay is how long news of a request takes to reach another region. Demand is how many
	// units above the limit may pass in that time if clients ask for ten times the limit;
	// Worst, if they send to all regions at the same instant.
	Delay  string  `json:"delay,omitempty"`
	Demand float64 `json:"demand,omitempty"`
	Worst  float64 `json:"worst,omitempty"`
	// Escrow replaces these if the limit is divided among the regions.
	Escrow *EscrowRights `json:"escrow,omitempty"`
}

// EscrowRights are a region's part of a limit in each window, and what it may still spend in
// the present one, including what other regions gave and excluding what it gave.
type EscrowRights struct {
	Part  int64  `json:"part"`
	Left  int64  `json:"left"`
	Error string `json:"error,omitempty"`
}
