//go:build !race

package rules

const dropped = 0.0
