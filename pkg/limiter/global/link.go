package global

import "time"

// Header is what every message says, whatever it carries. Clocks in it are monotonic and
// mean something only to the region that wrote them.
type Header struct {
	From int // the sender's place in the topology
	// Incarnation of the sender's state; a later one is larger.
	Incarnation int64
	// The message holds all changes of the sender's journal from Base up to Position.
	Base, Position uint64
	// Ack is the position of the receiver's journal up to which all has arrived, in its
	// incarnation Heard.
	Ack   uint64
	Heard int64
	// Stamp is the sender's clock, and Echo the latest Stamp of the receiver's that the
	// sender knew, in the incarnation Heard.
	Stamp, Echo time.Duration
	// Partial is set if more changes are waiting than fit into the message.
	Partial bool
}

// link is what a region knows of the way to one other and back.
type link struct {
	incarnation int64 // the peer's; 0: never heard of
	// The way there.
	sent, acked uint64
	sentAt      time.Duration
	// The way back: the position up to which nothing is missing, and the peer's clock.
	got   uint64
	stamp time.Duration
	// asOf is a time of the own clock: all that the peer's journal held then is known here.
	asOf  time.Duration
	known bool // asOf says something
	trip  time.Duration
}

// write fills the header of a message to the peer, all but From, Incarnation and Position.
func (l *link) write(h *Header, now, resend time.Duration) {
	if l.acked < l.sent && now-l.sentAt >= resend {
		l.sent = l.acked // lost: everything since then goes again, as it is now
	}
	h.Base, h.Ack, h.Heard, h.Stamp, h.Echo = l.sent, l.got, l.incarnation, now, l.stamp
}

// wrote notes that a message which reaches that position left.
func (l *link) wrote(position uint64, now time.Duration) {
	if l.acked == l.sent {
		l.sentAt = now
	}
	l.sent = max(l.sent, position)
}

// read takes a message's header in. It reports false for one of an earlier incarnation of
// the peer, whose content no longer counts.
func (l *link) read(h *Header, self int64, now time.Duration) bool {
	if h.Incarnation < l.incarnation {
		return false
	}
	if h.Incarnation > l.incarnation { // it has lost what it knew
		*l = link{incarnation: h.Incarnation, asOf: l.asOf, known: l.known, trip: l.trip}
	}
	l.stamp = max(l.stamp, h.Stamp)
	contiguous := h.Base <= l.got
	if contiguous {
		l.got = max(l.got, h.Position)
	}
	if h.Heard != self {
		return true // it answers somebody who is gone
	}
	switch {
	case h.Ack > l.acked:
		l.acked, l.sentAt = h.Ack, now // what is left has as much time again
		l.sent = max(l.sent, h.Ack)
	case l.acked < l.sent && h.Echo >= l.sentAt:
		l.sent = l.acked // it has heard a later message, and lacks what was in this one
	}
	if h.Echo > 0 {
		l.trip = now - h.Echo
		if contiguous && !h.Partial && (!l.known || h.Echo > l.asOf) {
			l.asOf, l.known = h.Echo, true
		}
	}
	return true
}

// lag returns how old what is known of the peer may be, or false if nothing is known.
func (l *link) lag(now time.Duration) (time.Duration, bool) { return now - l.asOf, l.known }
