package edge

import (
	"log/slog"
	"time"

	"github.com/weir-edge/weir/pkg/limiter/redisstore"
)

// clockSet reports that a clock which limits depend on was adjusted: the store's or, while
// the node counts alone, its own.
func clockSet(log *slog.Logger, m *metrics, clock, addr string, by time.Duration) {
	direction := "forward"
	if by < 0 {
		direction = "back"
	}
	m.clockSteps.WithLabelValues(clock, direction).Inc()
	log.Warn("clock was set, windows may end early or begin again", "clock", clock, "addr", addr, "by", by.String())
}

// nodeClock watches the node's own clock.
type nodeClock struct {
	now   func() time.Time
	born  time.Time
	watch redisstore.ClockWatch
}

// look reads the clock and reports a step.
func (c *nodeClock) look(report func(by time.Duration)) {
	from := time.Since(c.born)
	now := c.now().UnixMicro()
	if by := c.watch.See(now, from, time.Since(c.born)); by != 0 {
		report(by)
	}
}
