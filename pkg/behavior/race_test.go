//go:build race

package behavior

// The race detector makes all this ten times slower; what it looks for shows sooner.
const million = 100_000
