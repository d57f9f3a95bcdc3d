package frames

import (
	"encoding/binary"
	"net"
	"sync"
	"time"

	"golang.org/x/net/http2"
)

// Budget is how many frames of a kind a connection may send at once, and each second.
type Budget struct{ Burst, Rate float64 }

// savedBursts is how many bursts a connection may save up: a client may acknowledge a window
// full of small DATA frames only after it received them all.
const savedBursts = 10

// Account counts the frames of one connection against a budget.
type Account struct {
	Budget
	spent float64
	at    time.Time
}

// Open returns an account of which nothing is spent.
func Open(b Budget, now time.Time) Account { return Account{Budget: b, at: now} }

// Earn allows n more frames.
func (a *Account) Earn(n float64) { a.spent = max(-savedBursts*a.Burst, a.spent-n) }

// Spend counts a frame, and reports whether it exceeds the budget.
func (a *Account) Spend() bool {
	a.spent++
	return a.Over()
}

// Over reports whether the budget is exceeded. It reads the clock only when a burst is used up,
// so two bursts may pass after a quiet period.
func (a *Account) Over() bool {
	if a.spent <= a.Burst {
		return false
	}
	now := time.Now()
	a.spent = max(0, a.spent-now.Sub(a.at).Seconds()*a.Rate)
	a.at = now
	return a.spent > a.Burst
}

// Refuse tells the caller of a connection, by GOAWAY, to calm down. writing is held around all
// writes; whole reports, while it is held, whether no frame is half written, and the last stream of
// the caller. It does not wait: a caller that does not read learns nothing.
func Refuse(c net.Conn, writing *sync.Mutex, whole func() (last uint32, ok bool)) {
	if !writing.TryLock() {
		return
	}
	defer writing.Unlock()
	last, ok := whole()
	if !ok {
		return
	}
	b := []byte{0, 0, 8, byte(http2.FrameGoAway), 0, 0, 0, 0, 0}
	b = binary.BigEndian.AppendUint32(b, last)
	b = binary.BigEndian.AppendUint32(b, uint32(http2.ErrCodeEnhanceYourCalm))
	_ = c.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = c.Write(b)
}
