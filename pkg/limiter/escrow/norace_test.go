//go:build !race

package escrow

const dropped = 0
