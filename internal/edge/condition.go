package edge

import (
	"log/slog"
	"sync"
	"time"
)

// condition is how something goes that is tried for ever. A fault is logged when it
// begins and when it ends, and can be looked at meanwhile.
type condition struct {
	log        *slog.Logger
	bad, again string // what to log

	mu    sync.Mutex
	err   error
	since time.Time
	told  bool // the fault is in the log
}

// conditionView is a condition as operators see it.
type conditionView struct {
	OK    bool      `json:"ok"`
	Error string    `json:"error,omitempty"`
	Since time.Time `json:"since"` // that it is so
}

// newCondition begins with err, which is not logged: nothing has been tried yet.
func newCondition(log *slog.Logger, bad, again string, err error) *condition {
	return &condition{log: log, bad: bad, again: again, err: err, since: time.Now()}
}

// note takes the outcome of an attempt.
func (c *condition) note(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if (err == nil) != (c.err == nil) {
		c.since = time.Now()
	}
	c.err = err
	switch {
	case err != nil && !c.told:
		c.told = true
		c.log.Warn(c.bad, "error", err)
	case err == nil && c.told:
		c.told = false
		c.log.Info(c.again)
	}
}

func (c *condition) view() *conditionView {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := &conditionView{OK: c.err == nil, Since: c.since.UTC()}
	if c.err != nil {
		v.Error = c.err.Error()
	}
	return v
}

// text is "ok" or the error.
func (c *condition) text() string {
	if v := c.view(); !v.OK {
		return v.Error
	}
	return "ok"
}
