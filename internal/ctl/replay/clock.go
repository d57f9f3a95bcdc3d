package replay

import (
	"fmt"
	"time"
)

// clock follows the times of a log's requests and never runs backwards: a log is often
// slightly out of order, because a line is written when its answer ends.
type clock struct {
	now      int64 // Unix microseconds
	line     int64 // that set it
	first    int64 // the earliest time
	requests int64
	outOf    int64 // of order: older than a request before them
	latest   late  // of those
}

// late is a line that is older than one before it.
type late struct {
	line, before     int64
	time, timeBefore int64
}

// tick advances the clock to the time of a request, and sets when the request counts as
// having arrived.
func (c *clock) tick(e *entry) {
	if c.requests++; c.requests == 1 {
		c.first, c.now, c.line = e.time, e.time, e.line
	}
	c.first = min(c.first, e.time)
	switch by := c.now - e.time; {
	case by < 0:
		c.now, c.line = e.time, e.line
	case by > 0:
		c.outOf++
		if by > c.latest.timeBefore-c.latest.time {
			c.latest = late{line: e.line, before: c.line, time: e.time, timeBefore: c.now}
		}
	}
	e.decided = c.now
}

// note says that the log should be sorted, if more than a few lines are out of order.
func (c *clock) note() string {
	if c.outOf*100 <= c.requests {
		return ""
	}
	l := c.latest
	return fmt.Sprintf("%s of the requests are older than one before them (line %d has %s, line %d before it has %s) and were decided at its time; sort the log by time first",
		percent(c.outOf, c.requests), l.line, moment(l.time).Format(time.RFC3339), l.before, moment(l.timeBefore).Format(time.RFC3339))
}
