//go:build race

package rls

// The race detector makes the pool drop what it holds, at times.
const allowed = 3
