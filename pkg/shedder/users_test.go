package shedder

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// idle is an origin that answers everything when it is due, however much is in flight.
type idle struct {
	*Shedder
	rng     *rand.Rand
	now     time.Time
	waiting []unanswered
	held    map[uint64]int // slow requests
}

type unanswered struct {
	*Permit
	user uint64
	slow bool
	due  time.Time
}

func newIdle(t *testing.T, settings Settings) *idle {
	return &idle{Shedder: newShedder(t, settings), rng: rand.New(rand.NewPCG(1, 2)), now: start, held: map[uint64]int{}}
}

const fast, slow = 20 * time.Millisecond, 5 * time.Second

func (o *idle) request(user uint64, took time.Duration) (admitted bool) {
	p, ok := o.Admit(2, user)
	if ok {
		p.Sent()
		o.waiting = append(o.waiting, unanswered{&p, user, took == slow, o.now.Add(took)})
		if took == slow {
			o.held[user]++
		}
	}
	return ok
}

// run passes time: others send rate requests per second, and each of some users keeps many slow
// requests in flight. It returns the refused share of the others' requests.
func (o *idle) run(lasting time.Duration, rate float64, many int, users ...uint64) float64 {
	asked, refused := 0, 0
	for range lasting / simStep {
		o.now = o.now.Add(simStep)
		o.waiting = slices.DeleteFunc(o.waiting, func(w unanswered) bool {
			if o.now.Before(w.due) {
				return false
			}
			w.Answered()
			w.Done()
			if w.slow {
				o.held[w.user]--
			}
			return true
		})
		for range poisson(o.rng, rate*simStep.Seconds()) {
			asked++
			if !o.request(o.rng.Uint64(), fast) {
				refused++
			}
		}
		if o.now.Sub(start)%Interval != 0 {
			continue
		}
		for _, user := range users {
			for range many - o.held[user] {
				o.request(user, slow)
			}
		}
		o.Tick(o.now, nil)
	}
	return float64(refused) / float64(max(asked, 1))
}

// Slow requests of one user shed nobody else, whether they come alone or with others.
func TestSlowRequestsOfOneUserShedOnlyThatUser(t *testing.T) {
	for _, alone := range []time.Duration{0, 2 * time.Second, 5 * time.Second, 40 * time.Second} {
		o := newIdle(t, Defaults())
		require.Zero(t, o.run(20*time.Second, 50, 0))
		o.run(10*time.Second, 0, 0) // a pause
		o.run(alone, 0, 20, 7)
		require.Zero(t, o.run(60*time.Second, 50, 20, 7), "others that come after %s", alone)
		require.InDelta(t, 0, o.Status().Utilization, 0.1)
	}
}

// Long requests of one user are no queue, and leave room below the estimated knee.
func TestLongRequestsOfOneUserAreNotInTheEstimate(t *testing.T) {
	settings := Defaults()
	settings.AutoFrom = 10
	o := newIdle(t, settings)
	require.Zero(t, o.run(20*time.Second, 50, 0))
	require.Zero(t, o.run(3*time.Minute, 50, 30, 7))
	e := o.Status().Estimate
	require.InDelta(t, 0.02, e.Base, 0.005)
	require.False(t, e.Queued())
}

// Of a user that alone sends more than the origin can serve, the excess is shed, and nothing
// of others.
func TestOneUserThatSendsTooMuch(t *testing.T) {
	const workers = 28
	settings := Defaults()
	settings.Signals = map[string]Knees{SignalInFlight: {0, workers * 50 / 28}}
	q := &backend{Shedder: newShedder(t, settings), rng: rand.New(rand.NewPCG(1, 1)), now: start, workers: workers}
	capacity := workers / answerTime.Seconds()
	for range 15 {
		require.Zero(t, q.second(capacity/2))
	}
	q.heavy = 1.5 * capacity
	for range 10 {
		q.second(capacity / 2)
	}
	refused, served := 0.0, q.Shedder.served.Load()
	for range 60 {
		refused += q.second(capacity/2) / 60
	}
	require.Less(t, refused, 0.01)
	require.Greater(t, float64(q.Shedder.served.Load()-served)/60, 0.9*capacity)
}
