package documents

import (
	"cmp"
	"log/slog"
	"sync"
	"time"

	"github.com/weir-edge/weir/internal/adminapi"
)

// Condition is the state of an operation that is retried forever. A fault is logged once
// when it begins and once when it ends.
type Condition struct {
	log        *slog.Logger
	bad, again string // what to log

	mu     sync.Mutex
	err    error
	since  time.Time
	logged bool // the fault has been logged
}

// NewCondition starts with err, which is not logged: nothing has been tried yet.
func NewCondition(log *slog.Logger, bad, again string, err error) *Condition {
	return &Condition{log: log, bad: bad, again: again, err: err, since: time.Now()}
}

// Note records the outcome of an attempt.
func (c *Condition) Note(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if (err == nil) != (c.err == nil) {
		c.since = time.Now()
	}
	c.err = err
	switch {
	case err != nil && !c.logged:
		c.logged = true
		c.log.Warn(c.bad, "error", err)
	case err == nil && c.logged:
		c.logged = false
		c.log.Info(c.again)
	}
}

// View returns the condition as operators see it; nil for a nil Condition.
func (c *Condition) View() *adminapi.Condition {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	v := &adminapi.Condition{OK: c.err == nil, Since: c.since.UTC()}
	if c.err != nil {
		v.Error = c.err.Error()
	}
	return v
}

// Fault is the error, "" if there is none.
func (c *Condition) Fault() string {
	if v := c.View(); v != nil {
		return v.Error
	}
	return ""
}

// Text is "ok" or the error; "" for a nil Condition.
func (c *Condition) Text() string {
	if c == nil {
		return ""
	}
	return cmp.Or(c.Fault(), adminapi.OK)
}

func (c *Condition) ok() bool { return c.Fault() == "" }
