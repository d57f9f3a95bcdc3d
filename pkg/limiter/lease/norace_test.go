//go:build !race

package lease

const race = false
