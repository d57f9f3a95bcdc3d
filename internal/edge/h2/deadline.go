package h2

import (
	"sync"
	"time"
)

// deadline is a timer of a pooled stream. The http2 package sets its own by a message to the
// goroutine of the connection, which costs more than most requests need; so this one only
// says when time is up. As lazy.Conn, it moves the timer only when that fires.
type deadline struct {
	mu     sync.Mutex
	timer  *time.Timer
	over   func(time.Time) error // nil: the stream has ended
	wanted time.Time             // zero: none
	armed  time.Time
}

func (d *deadline) init() {
	d.timer = time.AfterFunc(time.Hour, d.fire)
	d.timer.Stop()
}

func (d *deadline) begin(over func(time.Time) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.over, d.wanted = over, time.Time{}
}

func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.wanted = t
	if t.IsZero() || !d.armed.IsZero() && !t.Before(d.armed) {
		return
	}
	d.armed = t
	d.timer.Reset(time.Until(t))
}

// fire runs when the armed time has come.
func (d *deadline) fire() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.armed = time.Time{}
	switch left := time.Until(d.wanted); {
	case d.over == nil || d.wanted.IsZero():
	case left > 0:
		d.armed = d.wanted
		d.timer.Reset(left)
	default:
		d.wanted = time.Time{}
		_ = d.over(time.Unix(1, 0)) // the past: at once
	}
}

// end stops the timer's effect; the timer itself may serve the next stream.
func (d *deadline) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.over, d.wanted = nil, time.Time{}
}
