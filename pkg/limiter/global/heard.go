package global

// Heard is the last that a region has heard of another's counter.
type Heard struct {
	Region       int
	Key, Tier    string
	Start, Width int64
	Count        int64
}

// HeardOf returns what this region has heard of another's counter, or false.
func (c *Counts) HeardOf(region int, key string, start int64) (Heard, bool) {
	e := c.entries[slot{key, start}]
	if e == nil {
		return Heard{}, false
	}
	for i := range e.heard {
		if e.heard[i].region == region {
			return e.heardAt(i), true
		}
	}
	return Heard{}, false
}

// AllHeard visits everything that this region has heard of the others' counters.
func (c *Counts) AllHeard(visit func(Heard)) {
	for _, e := range c.entries {
		for i := range e.heard {
			visit(e.heardAt(i))
		}
	}
}

func (e *entry) heardAt(i int) Heard {
	return Heard{Region: e.heard[i].region, Key: e.key, Tier: e.tier, Start: e.start, Width: e.width, Count: e.heard[i].cell.Count}
}
