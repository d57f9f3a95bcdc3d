package envoy

import (
	"errors"
	"time"

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
	if m.writing.TryLock() {
		m.mu.Lock()
		whole, last := m.out.Between(), m.last
		m.mu.Unlock()
		if whole {
			_ = m.SetWriteDeadline(time.Now().Add(time.Second))
			_, _ = m.Conn.Write(frames.GoAway(last))
		}
		m.writing.Unlock()
	}
	m.cut()
}
