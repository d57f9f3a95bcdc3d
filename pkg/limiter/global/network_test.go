package global

import (
	"math/rand/v2"
	"os"
	"time"
)

// tick is the step of a simulated world.
const tick = 10 * time.Millisecond

// worlds returns how many random worlds a test tries.
func worlds(short int) int {
	if os.Getenv("WEIR_SOAK") == "1" {
		return 10_000
	}
	return short
}

// network delivers messages between regions in virtual time: late, duplicated, reordered, or
// not at all.
type network[M any] struct {
	random  *rand.Rand
	now     time.Duration
	delay   [][]time.Duration // one way
	jitter  time.Duration
	loss    float64
	double  float64
	cut     []time.Duration // until when a region is isolated
	arrival map[time.Duration][]parcel[M]
}

type parcel[M any] struct {
	to int
	m  M
}

func newNetwork[M any](random *rand.Rand, regions int) *network[M] {
	n := &network[M]{random: random, arrival: map[time.Duration][]parcel[M]{}, cut: make([]time.Duration, regions)}
	n.now = time.Duration(1 + random.Int64N(int64(time.Hour))).Truncate(tick)
	for range regions {
		row := make([]time.Duration, regions)
		for i := range row {
			row[i] = time.Duration(5+random.IntN(150)) * time.Millisecond
		}
		n.delay = append(n.delay, row)
	}
	return n
}

// disturb makes it lose, duplicate and reorder messages.
func (n *network[M]) disturb() {
	n.jitter = time.Duration(n.random.IntN(400)) * time.Millisecond
	n.loss, n.double = n.random.Float64()*0.3, n.random.Float64()*0.3
}

func (n *network[M]) reaches(a, b int) bool { return n.now >= n.cut[a] && n.now >= n.cut[b] }

func (n *network[M]) send(from, to int, m M) {
	copies := 1
	if n.random.Float64() < n.double {
		copies = 2
	}
	for range copies {
		if !n.reaches(from, to) || n.random.Float64() < n.loss {
			continue
		}
		at := n.now + n.delay[from][to]
		if n.jitter > 0 {
			at += time.Duration(n.random.Int64N(int64(n.jitter)))
		}
		at = at.Truncate(tick) + tick
		n.arrival[at] = append(n.arrival[at], parcel[M]{to, m})
	}
}

// step advances the time and delivers the messages that are due.
func (n *network[M]) step(deliver func(to int, m M)) {
	n.now += tick
	for _, p := range n.arrival[n.now] {
		deliver(p.to, p.m)
	}
	delete(n.arrival, n.now)
}
