//go:build !race

package behavior

const million = 1_000_000
