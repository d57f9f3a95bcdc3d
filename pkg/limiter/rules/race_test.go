//go:build race

package rules

// dropped bounds the allocations of a call: the race detector makes pools drop what they hold, at times.
const dropped = 8.0
