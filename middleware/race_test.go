//go:build race

package middleware

// bound is how many allocations are allowed: the race detector empties sync.Pool at random.
func bound(want float64) float64 { return want + 20 }
