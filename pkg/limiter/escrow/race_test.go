//go:build race

package escrow

// dropped bounds what a Take allocates because the race detector makes sync.Pool drop lists.
const dropped = 4
