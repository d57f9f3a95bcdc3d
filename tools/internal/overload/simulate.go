package overload

import (
	"container/heap"
	"math/rand/v2"
	"time"

	"github.com/weir-edge/weir/pkg/shedder"
)

// Simulate runs a plan in virtual time: the Shedder is the real one, the origin a queue
// and its workers. The same seed gives the same run.
func Simulate(plan []Step, contender Contender, seed uint64, changes ...Change) Run {
	return simulate(plan, contender, seed, Workers, changes)
}

// simulate is Simulate with an origin of this many workers.
func simulate(plan []Step, contender Contender, seed uint64, workers int, changes []Change) Run {
	s := &simulation{times: ServiceTimes(seed), workers: workers, slowness: 1, settings: contender.Node(changes), rand: rand.New(rand.NewPCG(seed, Classes+1))}
	s.join(1)
	for _, step := range plan {
		s.end += step.For
	}
	for _, c := range changes {
		s.push(c.At, func() { s.change(c) })
	}
	s.push(0, s.tick)
	arrivals := Schedule(plan, seed)
	for s.events.Len() > 0 || len(arrivals) > 0 {
		if len(arrivals) > 0 && (s.events.Len() == 0 || arrivals[0].Due <= s.events[0].at) {
			s.now = arrivals[0].Due
			s.request(arrivals[0], false)
			arrivals = arrivals[1:]
			continue
		}
		e := heap.Pop(&s.events).(event)
		s.now = e.at
		e.do()
	}
	return s.run
}

// simulation is the state of one run.
type simulation struct {
	rand     *rand.Rand
	settings shedder.Settings
	nodes    []*shedder.Shedder
	now      time.Duration
	end      time.Duration
	events   events
	order    int
	run      Run

	times    []time.Duration
	slowness float64
	delay    time.Duration
	workers  int
	busy     int // workers
	begun    int // requests that a worker has started
	queue    []func()
}

// change makes a Change.
func (s *simulation) change(c Change) {
	if c.Slowness > 0 {
		s.slowness = c.Slowness
	}
	if c.Delay > 0 {
		s.delay = c.Delay
	}
	if c.Nodes > 0 {
		s.join(c.Nodes)
	}
}

// join changes the number of nodes to n. Nodes that leave take no more requests; new ones know
// nothing.
func (s *simulation) join(n int) {
	for len(s.nodes) < n {
		node, err := shedder.New("origin", s.settings)
		if err != nil {
			panic(err) // the contenders are constants
		}
		s.nodes = append(s.nodes, node)
	}
	s.nodes = s.nodes[:n]
}

// event happens at a time; simultaneous events happen in the order of their creation.
type event struct {
	at    time.Duration
	order int
	do    func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].order < e[j].order
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }

func (e *events) Push(x any) { *e = append(*e, x.(event)) }

func (e *events) Pop() any {
	last := len(*e) - 1
	x := (*e)[last]
	*e = (*e)[:last]
	return x
}

func (s *simulation) push(at time.Duration, do func()) {
	s.order++
	heap.Push(&s.events, event{at, s.order, do})
}

// request asks the shedder and, if admitted, the origin.
func (s *simulation) request(a Arrival, retry bool) {
	at := Attempt{Due: a.Due, Class: a.Class, Retry: retry}
	node := s.nodes[0]
	if len(s.nodes) > 1 {
		node = s.nodes[s.rand.IntN(len(s.nodes))]
	}
	permit, ok := node.Admit(a.Class, userHash(a.User))
	switch {
	case !ok:
		at.Outcome, at.Capped = Shed, permit.Reason().Kind != shedder.KindLevel
		s.finish(a, at)
	case len(s.queue) >= QueueLimit:
		permit.Sent()
		permit.Done()
		at.Outcome, at.Took = Failed, Deadline
		s.finish(a, at)
	default:
		permit.Sent()
		s.queue = append(s.queue, func() {
			permit.Answered()
			permit.Done()
			at.Took = s.now - a.Due
			if at.Took > Deadline {
				at.Outcome = Failed
			}
			s.finish(a, at)
		})
		s.serve()
	}
}

// finish records an attempt, and schedules a retry if its client makes one. A client abandons an
// attempt at its deadline; the origin does not notice.
func (s *simulation) finish(a Arrival, at Attempt) {
	s.run.Attempts = append(s.run.Attempts, at)
	if at.Outcome == Answered || a.Retries == 0 {
		return
	}
	a.Retries--
	later := max(s.now, a.Due+min(at.Took, Deadline)+RetryDelay+time.Duration(s.rand.Int64N(int64(RetryDelay))))
	a.Due = later
	s.push(later, func() { s.request(a, true) })
}

// serve gives free workers the requests that have waited longest.
func (s *simulation) serve() {
	for s.busy < s.workers && len(s.queue) > 0 {
		done := s.queue[0]
		s.queue = s.queue[1:]
		s.busy++
		service := time.Duration(float64(s.times[s.begun%len(s.times)]) * s.slowness)
		s.push(s.now+service, func() {
			s.busy--
			if s.delay > 0 {
				s.push(s.now+s.delay, done)
			} else {
				done()
			}
			s.serve()
		})
		s.begun++
	}
}

// tick makes the shedders sample. With several nodes, level and probabilities are the means.
func (s *simulation) tick() {
	sample := Sample{At: s.now, Probability: make([]float64, Classes)}
	for _, node := range s.nodes {
		node.Tick(time.Unix(1_000_000_000, 0).Add(s.now), nil)
		st := node.Status()
		sample.Level += st.Level / float64(len(s.nodes))
		for i, class := range st.Classes {
			sample.InFlight += class.InFlight
			sample.Probability[i] += class.Probability / float64(len(s.nodes))
		}
		for _, signal := range st.Signals {
			if signal.Name == shedder.SignalInFlight {
				sample.Knee += signal.Knees.High
			}
		}
		sample.Nodes = append(sample.Nodes, st.Estimate)
		sample.Base, sample.Rate = max(sample.Base, st.Estimate.Base), sample.Rate+st.Estimate.Rate
	}
	s.run.Samples = append(s.run.Samples, sample)
	if s.now < s.end {
		s.push(s.now+shedder.Interval, s.tick)
	}
}

// userHash stands in for the hash of a user's name.
func userHash(user int) uint64 {
	h := uint64(user+1) * 0x9e3779b97f4a7c15
	h ^= h >> 32
	return h * 0xd6e8feb86659fd93
}
