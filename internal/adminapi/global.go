package adminapi

// Global is what a node knows of the other regions under rules with scope: global, of the keys
// that it owns.
type Global struct {
	Node   string `json:"node"`
	Region string `json:"region"`
	// Alone is why the node hears of no region: then such rules hold in its region only.
	Alone string `json:"alone,omitempty"`
	// Others are the other regions. Delay is within what time this one learns of a request in
	// any of them.
	Others []GlobalRegion `json:"others"`
	Delay  string         `json:"delay,omitempty"`
	// Kept counts the counters that the node keeps, and Traveling those of them that other
	// regions must know. Of Uncounted units they do not hear.
	Kept      int   `json:"kept"`
	Traveling int   `json:"traveling"`
	Uncounted int64 `json:"uncounted"`
	// Parts is how many regions' parts of limits in escrow this region may spend of windows that
	// begin now: 0 if no majority has promised it its own.
	Parts int          `json:"parts"`
	Rules []GlobalRule `json:"rules"`
}

// GlobalRegion is another region, and how old what is known of it may be.
type GlobalRegion struct {
	Region string `json:"region"`
	Lag    string `json:"lag"`
}

// GlobalRule is what was measured of a rule that regions share.
type GlobalRule struct {
	Rule   string `json:"rule"`
	Limit  int64  `json:"limit"`
	Window string `json:"window"`
	Escrow bool   `json:"escrow"`
	// Burst is a token_bucket's.
	Burst int64 `json:"burst,omitempty"`
	// Partition is what holds while nothing is heard of other regions.
	Partition string `json:"on_partition"`
	// Overshoot is the largest part by which all regions exceeded the limit of a key in the last
	// 30 to 60 s, and Bound by how much they may, at ten times the limit and the present delay.
	// Both are 0 while no key is asked for.
	Overshoot float64 `json:"overshoot"`
	Bound     float64 `json:"bound"`
	// Rights are the units in escrow that the region holds in the present windows; of a
	// token_bucket, its parts of the burst.
	Rights int64 `json:"rights,omitempty"`
}

// GlobalCounts are what a region has let pass of a key in the present window, and what it
// has charged of others.
type GlobalCounts struct {
	Regions int              `json:"regions"`
	Own     int64            `json:"own"`
	Others  map[string]int64 `json:"others"`
	// Delay is within what time the region learns of a request in another. Demand is how
	// many units more than the limit may pass meanwhile if clients ask for ten times the
	// limit, and Worst if somebody sends to all regions in the same instant.
	Delay  string  `json:"delay,omitempty"`
	Demand float64 `json:"demand,omitempty"`
	Worst  float64 `json:"worst,omitempty"`
	// Escrow is set instead of these if the limit is divided among the regions.
	Escrow *EscrowRights `json:"escrow,omitempty"`
}

// EscrowRights are a region's part of a limit in each window, and what may still be spent
// there in the present one, with what other regions gave and without what this one did. Of a
// token_bucket, Part is of its Burst, and Left is what may be spent at once.
type EscrowRights struct {
	Part  int64  `json:"part"`
	Left  int64  `json:"left"`
	Burst int64  `json:"burst,omitempty"`
	Error string `json:"error,omitempty"`
}
