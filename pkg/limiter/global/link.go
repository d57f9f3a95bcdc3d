package global

import "time"

// Header is common to all messages. Its clocks are monotonic and meaningful only to the
// region that wrote them.
type Header struct {
	From int // the sender's place in the topology
	// Incarnation of the sender's state; later ones are greater.
	Incarnation int64
	// The message holds all changes of the sender's journal from Base up to Position.
	Base, Position uint64
	// Ack is the position in the receiver's journal up to which everything has arrived, in
	// its incarnation Heard.
	Ack   uint64
	Heard int64
	// Stamp is the sender's clock. Echo is the receiver's latest Stamp that the sender has
	// seen, in the incarnation Heard.
	Stamp, Echo time.Duration
	// Partial is set if more changes are waiting than fit into the message.
	Partial bool
}

// link is the state of the connection to one peer, in both directions.
type link struct {
	incarnation int64 // the peer's; 0 if never heard from
	// Outgoing.
	sent, acked uint64
	sentAt      time.Duration
	// Incoming: the position up to which nothing is missing, and the peer's clock.
	got   uint64
	stamp time.Duration
	// asOf is a time by the local clock: everything in the peer's journal at that time is
	// known here.
	asOf  time.Duration
	known bool // whether asOf is valid
	trip  time.Duration
}

// write fills in the header of a message to the peer, except From, Incarnation and
// Position.
func (l *link) write(h *Header, now, resend time.Duration) {
	if l.acked < l.sent && now-l.sentAt >= resend {
		l.sent = l.acked // lost: send everything since then again, with current values
	}
	h.Base, h.Ack, h.Heard, h.Stamp, h.Echo = l.sent, l.got, l.incarnation, now, l.stamp
}

// wrote records that a message reaching that position was sent.
func (l *link) wrote(position uint64, now time.Duration) {
	if l.acked == l.sent {
		l.sentAt = now
	}
	l.sent = max(l.sent, position)
}

// read processes a message's header. It reports false for an earlier incarnation of the
// peer, whose content no longer counts.
func (l *link) read(h *Header, self int64, now time.Duration) bool {
	if h.Incarnation < l.incarnation {
		return false
	}
	if h.Incarnation > l.incarnation { // the peer has restarted without its state
		*l = link{incarnation: h.Incarnation, asOf: l.asOf, known: l.known, trip: l.trip}
	}
	l.stamp = max(l.stamp, h.Stamp)
	contiguous := h.Base <= l.got
	if contiguous {
		l.got = max(l.got, h.Position)
	}
	if h.Heard != self {
		return true // it acknowledges an earlier incarnation of this region
	}
	switch {
	case h.Ack > l.acked:
		l.acked, l.sentAt = h.Ack, now // restart the timeout for the rest
		l.sent = max(l.sent, h.Ack)
	case l.acked < l.sent && h.Echo >= l.sentAt:
		l.sent = l.acked // the peer received a later message but not this one
	}
	if h.Echo > 0 {
		l.trip = now - h.Echo
		if contiguous && !h.Partial && (!l.known || h.Echo > l.asOf) {
			l.asOf, l.known = h.Echo, true
		}
	}
	return true
}

// lag returns how old the knowledge of the peer may be, or false if there is none.
func (l *link) lag(now time.Duration) (time.Duration, bool) { return now - l.asOf, l.known }
