//go:build !unix

package proxy

// stale cannot be told here without reading: a request that may not be sent
// twice can fail on a connection which the upstream has just closed.
func (c *conn) stale() bool { return false }

func (c *conn) peek(uintptr) {}
