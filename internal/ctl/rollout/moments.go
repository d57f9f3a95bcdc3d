package rollout

import (
	"time"

	"github.com/weir-edge/weir/internal/ctl/fleet"
)

// window tracks the totals of what is judged and of the other sites, so that a soak is also
// judged by its latest part: an hour that ends badly must not pass on its average.
type window struct {
	least    time.Duration // minimum duration,
	requests float64       // and minimum number of requests to what is judged
	samples  []sample      // the first is where it begins
}

// sample is the totals at one moment.
type sample struct {
	at           time.Time
	mine, others fleet.Traffic
}

const (
	leastWindow   = time.Minute
	longestWindow = 10 * time.Minute
	// windowSamples bounds the samples of a window's least time.
	windowSamples = 100
)

// newWindow chooses a tenth of the soak, between one minute and ten.
func newWindow(soak time.Duration, requests int) *window {
	return &window{least: min(max(soak/10, leastWindow), longestWindow, soak), requests: float64(requests)}
}

// add records totals, and returns what the window then holds and how long it is: until it
// is full, everything.
func (w *window) add(now sample) (late sample, long time.Duration) {
	if n := len(w.samples); n == 0 || now.at.Sub(w.samples[n-1].at) >= w.least/windowSamples {
		w.samples = append(w.samples, now)
	}
	for len(w.samples) > 1 && now.at.Sub(w.samples[1].at) >= w.least && now.mine.Since(w.samples[1].mine).Requests >= w.requests {
		w.samples = w.samples[1:]
	}
	from := w.samples[0]
	return sample{now.at, now.mine.Since(from.mine), now.others.Since(from.others)}, now.at.Sub(from.at)
}
