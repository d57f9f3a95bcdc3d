package envoy

import (
	"errors"

	"github.com/weir-edge/weir/internal/edge/frames"
)

// extraFrames is how many frames a connection may send that no call needs. All count but those that
// open a stream, carry or end its message, or reset it while it is open.
var extraFrames = frames.Budget{Burst: 1000, Rate: 100}

const (
	// extraPerCall is for callers that acknowledge answers by WINDOW_UPDATE, measure round trips by
	// PING, or send a message in parts.
	extraPerCall = 8
	// wholeData is the size, in bytes, from which a DATA frame carries a message. Smaller ones count
	// unless they end it.
	wholeData = 512
)

var errFlood = errors.New("the caller floods the connection with frames")

// refuse closes the connection, with GOAWAY if nothing is being written.
func (m *meter) refuse() {
	frames.Refuse(m.Conn, &m.writing, func() (uint32, bool) {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.last, m.out.Between()
	})
	m.cut()
}
