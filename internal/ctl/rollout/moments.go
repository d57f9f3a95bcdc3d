package rollout

import "time"

// moments are the totals in the course of a soak, so that it is also judged by its latest
// part: an hour that ends badly must not pass on its average.
type moments struct {
	least time.Duration // of the latest part
	list  []moment      // the first is the soak's beginning
}

type moment struct {
	at    time.Time
	sites counts
}

const (
	leastWindow   = time.Minute
	longestWindow = 10 * time.Minute
	// perWindow is how many moments are kept of the latest part, mostMoments of a soak.
	perWindow   = 10
	mostMoments = 64
)

// lately returns how long the latest part is: a tenth of the soak, between one minute and ten.
func lately(soak time.Duration) time.Duration {
	return min(max(soak/10, leastWindow), longestWindow, soak)
}

func (m *moments) add(at time.Time, sites counts) {
	if n := len(m.list); n > 0 && at.Sub(m.list[n-1].at) < m.least/perWindow {
		return
	}
	m.list = append(m.list, moment{at, sites})
	if len(m.list) <= mostMoments {
		return
	}
	kept := m.list[:0] // the first, half of the old ones, and the new ones
	for i, one := range m.list {
		if i%2 == 0 || i > mostMoments-2*perWindow {
			kept = append(kept, one)
		}
	}
	m.list = kept
}

// start returns the moment at which the latest part of a subject begins: it is long enough,
// and had enough requests. 0 is the soak's beginning.
func (m *moments) start(at time.Time, x *subject, requests float64) int {
	for i := len(m.list) - 1; i > 0; i-- {
		if at.Sub(m.list[i].at) >= m.least && x.now.Requests-m.list[i].sites.of(x.includes).Requests >= requests {
			return i
		}
	}
	return 0
}
