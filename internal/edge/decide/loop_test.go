package decide

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/redisstore"
	"github.com/weir-edge/weir/pkg/shedder"
)

// site is a node before an origin of a few workers, in virtual time: real decisions, a real
// shedder, and limits that follow what it measures.
type site struct {
	*Decider
	t        *testing.T
	r        *rand.Rand
	workers  int
	service  time.Duration // mean of a request
	inFlight []*job
	served   float64
	wanted   float64
	shed     float64
	followed redisstore.Following
	clients  []*client
}

type client struct {
	rate    float64 // requests per second
	addr    string
	limited float64
	good    float64 // served in time
}

// job is a request at the origin.
type job struct {
	shedder.Permit
	client *client
	began  time.Time
}

// inTime is how long a client waits for an answer.
const inTime = 500 * time.Millisecond

const loopStep = 10 * time.Millisecond

const followsLoad = ", under_load: {from: 0.5, share: 0.2}"

func newSite(t *testing.T, seed uint64, algorithm, more, settings string) *site {
	d, _ := decider(t, "rules: [{id: clients, key: [client_ip], algorithm: "+algorithm+", limit: 100, window: 10s"+more+"}]", settings)
	s := &site{Decider: d, t: t, r: rand.New(rand.NewPCG(seed, 1)), workers: 20, service: 50 * time.Millisecond}
	d.UnderLoad = NewUnderLoad(1, func() int { return 1 }, func(int) { d.Shedders[0].Wanted(); s.wanted++ })
	return s
}

// add adds clients that ask so often per second.
func (s *site) add(n int, rate float64) (added []*client) {
	for range n {
		k := len(s.clients)
		c := &client{rate: rate, addr: fmt.Sprintf("198.51.%d.%d", k/256, k%256)}
		s.clients, added = append(s.clients, c), append(added, c)
	}
	return added
}

// second passes a second: clients ask, the origin answers, the shedder takes its samples, and
// limits follow. It returns the mean utilization.
func (s *site) second() (mean float64) {
	for i := range int(time.Second / loopStep) {
		time.Sleep(loopStep)
		s.answer()
		for _, c := range s.clients {
			for n := s.arrivals(c.rate); n > 0; n-- {
				s.request(c)
			}
		}
		if (i+1)%int(shedder.Interval/loopStep) == 0 {
			s.Shedders[0].Tick(time.Now(), nil)
			u, _ := s.Shedders[0].Utilization()
			mean += u * shedder.Interval.Seconds()
		}
	}
	s.followed = redisstore.FollowLoad(s.followed, int64(mean*limiter.FullLoad))
	s.UnderLoad.Set(0, s.followed.Value)
	return mean
}

func (s *site) arrivals(rate float64) (n int) {
	for p := rate * loopStep.Seconds(); p > 0; p-- {
		if s.r.Float64() < p {
			n++
		}
	}
	return n
}

func (s *site) request(c *client) {
	r := &Request{}
	s.ask(s.t, r, c.addr, []byte("/"), nil)
	switch s.Decide(r) {
	case Pass:
		r.Permit.Sent()
		s.inFlight = append(s.inFlight, &job{r.Permit, c, time.Now()})
	case Limited:
		c.limited++
		r.Permit.Done()
	case Shed:
		s.shed++
	default:
		s.t.Fatal("neither passed, limited nor shed")
	}
}

// answer ends requests: each worker is on one, of exponential length.
func (s *site) answer() {
	p := loopStep.Seconds() / s.service.Seconds()
	kept := s.inFlight[:0]
	for i, j := range s.inFlight {
		if i < s.workers && s.r.Float64() < p {
			j.Answered()
			j.Done()
			s.served++
			if time.Since(j.began) <= inTime {
				j.client.good++
			}
			continue
		}
		kept = append(kept, j)
	}
	s.inFlight = kept
}

const loopSettings = "signals: {inflight: {low: 0, high: 40}, cpu: off, sched_latency: off, upstream_wait: off}\n"

// The limits of 60 clients that all ask for more than they may would let through 1.7 times what
// the origin can serve. They are lowered until the rest fits, stay about there, and are full
// again after the clients have calmed down.
func TestLimitsUnderLoadSettle(t *testing.T) {
	f := func(algorithm, settings string) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			s := newSite(t, 1, algorithm, followsLoad, settings)
			light, heavy := s.add(80, 1), s.add(60, 14)
			for range 110 {
				s.second()
			}
			const measured = 100
			low, high, changes, before, wanted, shed := limiter.LoadSteps, 0, 0, s.served, s.wanted, s.shed
			var utilization, demand float64
			for range measured {
				was := s.step()
				utilization += s.second() / measured
				demand += s.Shedders[0].Status().Demand / measured
				low, high = min(low, s.step()), max(high, s.step())
				if s.step() != was {
					changes++
				}
			}
			served := (s.served - before) / measured
			t.Logf("%s: steps %d to %d, %d changes, %.0f served per second of %.0f, utilization %.2f, demand %.0f, wanted %.0f",
				algorithm, low, high, changes, served, s.capacity(), utilization, demand, (s.wanted-wanted)/measured)
			require.LessOrEqual(t, high-low, 6, "limits swing")
			require.LessOrEqual(t, changes, measured/4, "limits swing")
			require.Greater(t, low, 0)
			require.Less(t, high, limiter.LoadSteps)
			require.InDelta(t, 0.7, utilization, 0.15)
			require.Greater(t, served, 0.8*s.capacity())
			// Full limits would let 600 + 80 per second pass; what clients ask for beyond is no demand.
			require.InDelta(t, 680, served+(s.wanted-wanted+s.shed-shed)/measured, 100)
			require.InDelta(t, 680, demand, 150)
			for _, c := range light {
				require.Zero(t, c.limited, "one within the floor is never limited")
			}

			for _, c := range heavy {
				c.rate = 1
			}
			full := 0
			for at := 1; at <= 150 && full == 0; at++ {
				was := s.step()
				s.second()
				require.LessOrEqual(t, s.step(), was, "limits fall while nothing is busy")
				if s.step() == 0 {
					full = at
				}
			}
			t.Logf("full again after %d s", full)
			require.NotZero(t, full)
		})
	}
	f("sliding_window", loopSettings+"enabled: false\n")
	f("token_bucket", loopSettings)
}

func (s *site) step() int { return s.Rules().Set().Rules()[0].Limit.UnderLoad.Step(s.followed.Value) }

// capacity is how many requests the origin can serve per second.
func (s *site) capacity() float64 { return float64(s.workers) / s.service.Seconds() }
