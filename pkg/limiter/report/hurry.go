package report

import (
	"time"

	"github.com/weir-edge/weir/pkg/limiter"
)

// A node that has not seen a key recently does not know what others have admitted. A client
// that moves from node to node would be admitted on each of them until that node's next
// report. So the second unit of such a key is reported at once; a client that sends a
// single request costs no more than before.

// staleAfter is how long after an answer a node no longer knows the count.
const staleAfter = 3 * int64(limiter.ReportEvery/time.Microsecond)

// urgentPause is the shortest pause between urgent rounds, so that they batch keys when many
// are urgent.
const urgentPause = 2 * time.Millisecond

// markUrgent marks a key to be reported before all others. The shard is locked.
func (s *Store) markUrgent(sh *shard, e *entry) {
	e.wasUrgent = true
	sh.urgent = append(sh.urgent, e)
	select {
	case s.wake <- struct{}{}:
	default: // the reporter is already awake
	}
}

// reportUrgent reports urgent keys, unless the regular round is due soon: news of what
// others admitted must not delay that.
func (s *Store) reportUrgent(next time.Duration) {
	pause := max(0, s.lastUrgent+urgentPause-s.config.Clock())
	if next-s.config.Clock()-pause <= min(s.config.Trip, limiter.ReportEvery/2) {
		return
	}
	if pause > 0 {
		timer := time.NewTimer(pause)
		defer timer.Stop()
		select {
		case <-s.stop:
			return
		case <-timer.C:
		}
	}
	s.report(true)
	s.lastUrgent = s.config.Clock()
}
