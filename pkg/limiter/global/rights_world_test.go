package global

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/storetest"
)

// rightsWorld is a plain model of regions that share limits by Rights: it counts all that
// passes anywhere.
type rightsWorld struct {
	net     *network[*RightsMessage]
	random  *rand.Rand
	limit   *limiter.Limit
	regions []*rightsRegion
	passed  map[slot]int64 // fixed_window: by the window that the region's clock named
	level   map[string]int64
	levelAt time.Duration
	total   int64
	asked   int64
	faults  []string
}

type rightsRegion struct {
	*Rights
	skew   time.Duration
	rate   float64
	next   time.Duration
	downTo time.Duration
	passed int64
}

// Worlds are short, so terms, epochs and the distance of clocks are, too.
var quickRights = RightsConfig{Term: 3 * time.Second, Epoch: 8 * time.Second, Skew: 500 * time.Millisecond}

func newRightsWorld(seed uint64, regions int, config RightsConfig, line string) *rightsWorld {
	random := rand.New(rand.NewPCG(seed, 17))
	w := &rightsWorld{
		random: random, net: newNetwork[*RightsMessage](random, regions),
		passed: map[slot]int64{}, level: map[string]int64{},
	}
	n := []int64{1, 10, 100, 1000, 6000}[random.IntN(5)] + random.Int64N(10)
	window := []string{"1s", "2s", "4s"}[random.IntN(3)]
	if line == "" {
		line = []string{"r fixed_window limit=%d window=%s", "r token_bucket limit=%d window=%s burst=%d"}[random.IntN(2)]
	}
	args := []any{n, window, 1 + random.Int64N(2*n)}
	for countVerbs(line) < len(args) {
		args = args[:len(args)-1]
	}
	l, err := storetest.ParseLimit(strings.Fields(fmt.Sprintf(line, args...)))
	if err != nil {
		panic(err)
	}
	w.limit = l
	total := float64(w.limit.Limit) / w.limit.Window.Seconds() * []float64{0.5, 1, 3, 10}[random.IntN(4)]
	for i := range regions {
		c := config
		c.Self, c.Regions, c.Incarnation = i, regions, 1
		c.Limit = func(string) *limiter.Limit { return w.limit }
		r := &rightsRegion{rate: total / float64(regions) * 2 * random.Float64()}
		r.next = w.net.now + time.Duration(random.Int64N(int64(Period)))
		r.Rights = NewRights(c, storetest.Epoch+w.net.now.Microseconds(), w.net.now)
		w.regions = append(w.regions, r)
	}
	return w
}

func countVerbs(line string) (n int) {
	for _, c := range line {
		if c == '%' {
			n++
		}
	}
	return n
}

func (w *rightsWorld) wall(r *rightsRegion) int64 {
	return storetest.Epoch + (w.net.now + r.skew).Microseconds()
}

func (w *rightsWorld) run(length time.Duration, calm bool) {
	for end := w.net.now + length; w.net.now < end && len(w.faults) == 0; {
		w.net.step(w.deliver)
		for _, r := range w.regions {
			if w.net.now < r.downTo {
				continue
			}
			for _, key := range []string{"a", "b"} {
				for n := w.poisson(r.rate * tick.Seconds()); n > 0; n-- {
					w.ask(r, key, 1+w.random.Int64N(2))
				}
			}
			if w.net.now >= r.next {
				r.next = w.net.now + Period
				w.exchange(r)
			}
		}
		if !calm && w.random.IntN(150) == 0 {
			w.disturb()
		}
	}
}

func (w *rightsWorld) poisson(mean float64) (n int) {
	for limit, p := math.Exp(-mean), w.random.Float64(); p > limit; p *= w.random.Float64() {
		n++
	}
	return n
}

func (w *rightsWorld) disturb() {
	r := w.regions[w.random.IntN(len(w.regions))]
	switch w.random.IntN(6) {
	case 0, 1:
		w.net.cut[r.config.Self] = w.net.now + time.Duration(w.random.Int64N(int64(10*time.Second)))
	case 2: // its store has lost everything
		r.Restart(0, w.wall(r), w.net.now)
	case 3: // it is down, and has lost everything when it is back
		r.downTo = max(r.downTo, w.net.now+time.Duration(w.random.Int64N(int64(15*time.Second)))) // or its clock would be set back
		w.net.cut[r.config.Self] = max(w.net.cut[r.config.Self], r.downTo)
		r.Restart(0, w.wall(r)+(r.downTo-w.net.now).Microseconds(), r.downTo)
	default: // clients move
		o := w.regions[w.random.IntN(len(w.regions))]
		r.rate, o.rate = o.rate, r.rate
	}
}

func (w *rightsWorld) exchange(r *rightsRegion) {
	wall := w.wall(r)
	r.Plan(wall, w.net.now)
	for to := range w.regions {
		if to != r.config.Self {
			m := r.Send(to, w.net.now)
			m.Asks = append([]Ask(nil), m.Asks...)
			w.net.send(r.config.Self, to, m)
		}
	}
	r.Sweep(wall, w.net.now)
}

func (w *rightsWorld) deliver(to int, m *RightsMessage) {
	if r := w.regions[to]; w.net.now >= r.downTo {
		r.Receive(m, w.wall(r), w.net.now)
	}
}

func (w *rightsWorld) ask(r *rightsRegion, key string, cost int64) bool {
	w.asked += cost
	wall := w.wall(r)
	if !r.Take(w.limit, key, cost, wall, w.net.now) {
		return false
	}
	w.total += cost
	r.passed += cost
	if !isBucket(w.limit) {
		s := slot{key, wall - wall%w.limit.Window.Microseconds()}
		w.passed[s] += cost
		if n := w.passed[s]; n > w.limit.Limit {
			w.fault("%d of %d passed in a window", n, w.limit.Limit)
		}
		return true
	}
	// One bucket for all, in parts of a unit, by the true time.
	for k := range w.level {
		w.level[k] = max(0, w.level[k]-w.limit.Limit*(w.net.now-w.levelAt).Microseconds())
	}
	w.levelAt = w.net.now
	w.level[key] += cost * scale(w.limit)
	if full := w.limit.Capacity() * scale(w.limit); w.level[key] > full {
		w.fault("a bucket of %d has passed %.3f", w.limit.Capacity(), float64(w.level[key])/float64(scale(w.limit)))
	}
	return true
}

func (w *rightsWorld) fault(format string, args ...any) {
	if len(w.faults) < 5 {
		w.faults = append(w.faults, fmt.Sprintf(format, args...))
	}
}
