//go:build !race

package exchange

const race = false
