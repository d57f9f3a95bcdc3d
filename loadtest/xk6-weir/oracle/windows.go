package oracle

// fixedWindow: windows aligned to the epoch, each holding at most limit.
type fixedWindow struct{ limit, window, chain int64 }

func (m fixedWindow) lookback(sent int64) int64 { return sent - sent%m.window }

// beyond checks y's window together with those before it: what was sent and answered
// within n windows is at most n × limit. Over all n, nothing more can be proven (Hall's
// theorem for intervals).
func (m fixedWindow) beyond(c *count, y int64) int64 {
	start := y - y%m.window
	for n := int64(1); n <= m.chain; n++ {
		if over := c.kept.within(start-1, y) - n*m.limit; over > 0 {
			return over
		}
		start -= m.window
	}
	return 0
}

func (m fixedWindow) mustRefuse(c *count, sent, answered, cost int64) bool {
	start := sent - sent%m.window
	return answered < start+m.window && c.sure.within(start-1, sent)+cost > m.limit
}

func (m fixedWindow) mayRefuse(c *count, r *refusal) bool {
	for start := r.sent - r.sent%m.window; start <= r.answered; start += m.window {
		if c.possible(start, min(r.answered, start+m.window-1), r)+r.cost > m.limit {
			return true
		}
	}
	return false
}

func (m fixedWindow) wait(_ *count, r *refusal) (shortest, longest int64) {
	first, last := r.sent-r.sent%m.window, r.answered-r.answered%m.window
	if first != last {
		return 0, m.window
	}
	return first + m.window - r.answered, first + m.window - r.sent
}

// slidingWindow: the previous window's count, weighted by how much of it is within
// reach, plus the current one's. Weights are whole milliseconds, as in the limiter.
type slidingWindow struct{ limit, window int64 }

func (m slidingWindow) lookback(sent int64) int64 { return sent - sent%m.window - m.window }

// beyond checks the last decision in y's window: everything answered by y had been
// counted by then, in this window or the previous one, and the previous one's share was
// no less than it is at y.
func (m slidingWindow) beyond(c *count, y int64) int64 {
	start, width := y-y%m.window, m.window/1000
	current := c.kept.within(start-1, y)
	if current == 0 {
		return 0
	}
	previous := c.kept.within(start-m.window-1, y) - current
	over := previous*(width-(y-start)/1000) + current*width - m.limit*width
	return ceilDiv(max(0, over), width)
}

// mustRefuse: what may be in either window counts in the previous one, weighted as at
// the end of the request.
func (m slidingWindow) mustRefuse(c *count, sent, answered, cost int64) bool {
	start, width := sent-sent%m.window, m.window/1000
	current := c.sure.within(start-1, sent)
	previous := c.sure.within(start-m.window-1, sent) - current
	share := previous * (width - (answered-start)/1000)
	return answered < start+m.window && share+(current+cost)*width > m.limit*width
}

// counts returns the most that the two windows can hold when r is decided in the window
// of start. What fits both counts where it weighs more.
func (m slidingWindow) counts(c *count, r *refusal, start int64) (previous, current int64) {
	end := min(r.answered, start+m.window-1)
	current = c.possible(start, end, r)
	return c.possible(start-m.window, end, r) - current, current
}

func (m slidingWindow) mayRefuse(c *count, r *refusal) bool {
	width := m.window / 1000
	for start := r.sent - r.sent%m.window; start <= r.answered; start += m.window {
		previous, current := m.counts(c, r, start)
		elapsed := (max(r.sent, start) - start) / 1000
		if previous*(width-elapsed)+current*width+r.cost*width > m.limit*width {
			return true
		}
	}
	return false
}

func (m slidingWindow) wait(c *count, refused *refusal) (shortest, longest int64) {
	shortest = farAhead
	charged := *refused // a counted refusal was charged before its wait was computed
	charged.own = 0
	r := &charged
	for start := r.sent - r.sent%m.window; start <= r.answered; start += m.window {
		previous, current := m.counts(c, r, start)
		longest = max(longest, start+m.free(previous, current, r.cost)-max(r.sent, start))
		sure, before := int64(0), c.kept.within(start-m.window-1, min(r.sent, start-1))
		if r.sent >= start {
			sure = c.kept.within(start-1, r.sent)
		}
		shortest = min(shortest, start+m.free(before, sure, r.cost)-min(r.answered, start+m.window-1))
	}
	return max(0, shortest), longest
}

// free returns how long after the window's start a request of that cost passes.
func (m slidingWindow) free(previous, current, cost int64) int64 {
	room, width := m.limit-min(cost, m.limit), m.window/1000
	switch {
	case current > room:
		return m.window + ceilDiv((current-room)*width, current)*1000
	case previous > room-current:
		return ceilDiv((previous-(room-current))*width, previous) * 1000
	}
	return 0
}

// rollingWindow: any interval as long as the window holds at most limit, and no two
// requests are closer than the interval.
type rollingWindow struct{ limit, window, interval, chain int64 }

// rollingSlack is how much longer than the window an entry may count: the limiter's
// ring rounds times to milliseconds, twice.
const rollingSlack = 2000

func (m rollingWindow) lookback(sent int64) int64 { return sent - m.window - rollingSlack }

// beyond: what was sent and answered within less than n windows is at most n × limit. n
// > 1 detects a window that is slightly too short, which single windows hide behind
// network delays.
func (m rollingWindow) beyond(c *count, y int64) int64 {
	if m.interval > 0 && c.kept.answered.number(y)-c.kept.sent.number(y-m.interval) > 1 {
		return 1
	}
	for _, n := range chains {
		if n > m.chain {
			break
		}
		if over := c.kept.within(y-n*m.window, y) - n*m.limit; over > 0 {
			return over
		}
	}
	return 0
}

func (m rollingWindow) mustRefuse(c *count, sent, answered, cost int64) bool {
	if m.interval > 0 && c.sure.answered.number(sent) > c.sure.sent.number(answered-m.interval) {
		return true
	}
	return c.sure.within(answered-m.window, sent)+cost > m.limit
}

func (m rollingWindow) mayRefuse(c *count, r *refusal) bool {
	if c.possible(r.sent-m.window-rollingSlack, r.answered, r)+r.cost > m.limit {
		return true
	}
	return m.interval > 0 && c.possible(r.sent-m.interval-rollingSlack, r.answered, r) > 0
}

func (m rollingWindow) wait(c *count, r *refusal) (shortest, longest int64) {
	room := m.limit - min(r.cost, m.limit)
	latest := func(amount int64, span int64) int64 {
		if amount <= 0 {
			return 0
		}
		at, ok := c.maybe.answered.when(amount)
		if !ok {
			at = r.answered
		}
		return min(at, r.answered) + span + rollingSlack - r.sent
	}
	earliest := func(amount int64, span int64) int64 {
		if at, ok := c.kept.sent.when(amount); ok {
			return at + span - r.answered
		}
		return 0
	}
	all, sure := c.sentBy(r.answered), c.kept.answered.upTo(r.sent)
	longest, shortest = latest(all-room, m.window), earliest(sure-room, m.window)
	if m.interval > 0 {
		longest = max(longest, latest(all, m.interval))
		shortest = max(shortest, earliest(sure, m.interval))
	}
	return max(0, shortest), min(longest, m.window+rollingSlack)
}

// concurrency: at most limit in flight. hold is the shortest known time in flight.
type concurrency struct{ limit, window, hold, release int64 }

// lookback: an unreturned slot is held for the window.
func (m concurrency) lookback(sent int64) int64 { return sent - m.window }

// beyond: a slot was taken by hold before the answer, and kept until hold after the
// sending. Requests within less than twice hold therefore overlap.
func (m concurrency) beyond(c *count, y int64) int64 {
	if m.hold == 0 {
		return 0
	}
	return c.kept.within(y-2*m.hold, y) - m.limit
}

// mustRefuse: a refused request never holds a slot.
func (concurrency) mustRefuse(*count, int64, int64, int64) bool { return false }

func (m concurrency) mayRefuse(c *count, r *refusal) bool {
	return c.possible(r.sent-m.release, r.answered, r) >= m.limit
}

// wait: a slot may become free at any moment.
func (concurrency) wait(*count, *refusal) (shortest, longest int64) { return 0, farAhead }

func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }
