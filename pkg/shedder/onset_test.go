package shedder

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// backend is an origin behind a Shedder, with so many workers that take 400 ms a request.
type backend struct {
	*Shedder
	rng     *rand.Rand
	now     time.Time
	workers int
	waiting []*Permit
	served  []time.Time // when each worker's request is answered
	serving []*Permit
}

const (
	answerTime = 400 * time.Millisecond
	simStep    = 2 * time.Millisecond
)

// second admits rate requests at random times and returns the refused share.
func (q *backend) second(rate float64) float64 {
	asked, refused := 0, 0
	for range time.Second / simStep {
		q.now = q.now.Add(simStep)
		for i := 0; i < len(q.serving); {
			if q.now.Before(q.served[i]) {
				i++
				continue
			}
			q.serving[i].Answered()
			q.serving[i].Done()
			last := len(q.serving) - 1
			q.serving[i], q.served[i] = q.serving[last], q.served[last]
			q.serving, q.served = q.serving[:last], q.served[:last]
		}
		for range poisson(q.rng, rate*simStep.Seconds()) {
			asked++
			p, ok := q.Admit(2, q.rng.Uint64())
			if !ok {
				refused++
				continue
			}
			p.Sent()
			q.waiting = append(q.waiting, &p)
		}
		for len(q.serving) < q.workers && len(q.waiting) > 0 {
			q.serving, q.served = append(q.serving, q.waiting[0]), append(q.served, q.now.Add(answerTime))
			q.waiting = q.waiting[1:]
		}
		if q.now.Sub(start)%Interval == 0 {
			q.Tick(q.now, nil)
		}
	}
	return float64(refused) / float64(asked)
}

// When demand steps from half of an origin's capacity to 1.3 times it, a shedder refuses only
// the excess, even if a few seconds bring only some hundred requests.
func TestWhatIsRefusedAtAStep(t *testing.T) {
	for _, workers := range []int{28, 280, 2800} {
		for _, patience := range []time.Duration{time.Second, Defaults().Patience} {
			t.Run(fmt.Sprint(workers, " workers, patience ", patience), func(t *testing.T) {
				capacity := float64(workers) / answerTime.Seconds()
				var first, later, estimate float64
				runs := float64(max(1, 140/workers)) // chance matters with few requests
				for seed := range uint64(runs) {
					settings := Defaults()
					settings.Patience = patience
					settings.Signals = map[string]Knees{SignalInFlight: {0, float64(workers) * 50 / 28}}
					for i := range settings.Classes {
						settings.Classes[i].MaxInFlight = int64(workers) * 10
					}
					q := &backend{Shedder: newShedder(t, settings), rng: rand.New(rand.NewPCG(seed, 1)), now: start, workers: workers}
					for range 15 {
						require.Zero(t, q.second(capacity/2))
					}
					q.second(1.3 * capacity)
					for range 5 {
						first += q.second(1.3*capacity) / 5 / runs
					}
					estimate += q.Status().Capacity / capacity / runs
					for range 20 {
						later += q.second(1.3*capacity) / 20 / runs
					}
				}
				const much = 1 - 1/1.3
				t.Logf("refused from the 2nd to the 6th second %.1f%%, then %.1f%%, where %.1f%% are too much; capacity by then %.2f", 100*first, 100*later, 100*much, estimate)
				require.Less(t, first, much+0.1)
				require.InDelta(t, much, later, 0.08)
				require.InDelta(t, 1, estimate, 0.1)
			})
		}
	}
}
