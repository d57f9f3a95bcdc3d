//go:build race

package exchange

// race reports whether the race detector runs. It makes the worlds twenty times slower, so
// they are few with it; make test runs all of them without it.
const race = true
