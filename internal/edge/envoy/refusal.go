package envoy

import "github.com/weir-edge/weir/internal/edge/handshake"

// Refusal says why a connection was closed.
type Refusal uint8

// The refusals.
const (
	Full            Refusal = iota // as many callers as there may be are connected
	Unauthenticated                // not a caller, or not known yet, and there is no place for another
	Memory                         // its open streams took the most when all took too much
	Flood                          // it sent too many frames that no call needs
	Refusals                       // how many there are
)

var refusalNames = [Refusals]string{"full", "unauthenticated", "memory", "flood"}

// String is a stable label.
func (r Refusal) String() string { return refusalNames[r] }

var refusals = [...]Refusal{handshake.Full: Full, handshake.Unauthenticated: Unauthenticated}
