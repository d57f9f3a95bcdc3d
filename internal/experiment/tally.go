// Package experiment counts what the two variants of a rule do and compares them.
//
// Requests of one key resemble each other, so they are not independent evidence. The package
// compares slices of keys instead: a hash puts each key into one of rules.Slices equal slices,
// and each slice is entirely inside the experiment or outside. If the experiment has no effect,
// chance alone decides which slices are inside, however keys behave; Compare tests that.
package experiment

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/rules"
)

// Tally counts one node's decisions under a rule with an experiment, in fixed memory.
type Tally struct {
	Trial *rules.CompiledExperiment
	// Since is the time from which requests count: see settled.
	Since time.Time

	part   int64 // an eighth of the rule's window, in microseconds
	slices [rules.Slices]slice
}

// Counts are the figures of one slice of keys.
type Counts struct {
	Checks  int64 `json:"checks,omitempty"`
	Refused int64 `json:"refused,omitempty"` // part of Checks; in shadow mode, would-be refusals
	Failed  int64 `json:"failed,omitempty"`  // not part of Checks: the store did not answer
	// WaitMicros sums the waits that refused clients were told.
	WaitMicros int64 `json:"wait_us,omitempty"`
	// Asked counts decisions that needed the store, and TookMicros sums their durations.
	Asked      int64 `json:"asked,omitempty"`
	TookMicros int64 `json:"took_us,omitempty"`
	// Answers counts the origin's answers, and Errors the 5xx among them, including weir's
	// own answers for an unreachable origin.
	Answers int64 `json:"answers,omitempty"`
	Errors  int64 `json:"errors,omitempty"`
	// Worst is the most that a followed key passed in any window.
	Worst int64 `json:"worst,omitempty"`
	// Bytes is the memory that Keys counters take in the store.
	Bytes int64 `json:"bytes,omitempty"`
	Keys  int64 `json:"keys,omitempty"`
}

// Add adds another node's counts of the same slice. The worst window is that of the node
// with the larger figure.
func (c *Counts) Add(o *Counts) {
	c.Checks += o.Checks
	c.Refused += o.Refused
	c.Failed += o.Failed
	c.WaitMicros += o.WaitMicros
	c.Asked += o.Asked
	c.TookMicros += o.TookMicros
	c.Answers += o.Answers
	c.Errors += o.Errors
	c.Worst = max(c.Worst, o.Worst)
	c.Bytes += o.Bytes
	c.Keys += o.Keys
}

// The tally follows windows, in eighths, of a few busy keys per slice.
const (
	parts    = 8
	followed = 4
	longest  = 160 // bytes kept of a key, to query its memory
)

type slice struct {
	sync.Mutex
	counts Counts
	keys   [followed]passes
	key    [longest]byte // the counter charged last
	length uint8
}

// passes holds what one key passed in the last window.
type passes struct {
	key  uint64
	last int64 // the newest part with a pass
	sum  int64 // of in
	in   [parts]int64
}

// NewTally returns a Tally for a rule with an experiment that begins now.
func NewTally(c *rules.Compiled, now time.Time) *Tally {
	return &Tally{Trial: c.Experiment, Since: settled(c, now), part: max(1, c.Window.Microseconds()/parts)}
}

// settled returns when the variants can first be compared. At the beginning the rule's counters
// hold earlier requests, while the variant's are empty. Windows no longer differ once those of
// the beginning are over, buckets once they could have filled.
func settled(c *rules.Compiled, begin time.Time) time.Time {
	at := begin.UnixMicro()
	from := at
	for _, v := range [...]*rules.Compiled{c, c.Experiment.Variant} {
		for _, l := range append(slices.Collect(maps.Values(v.Tiers)), v.Limit) {
			if l == nil {
				continue // unlimited
			}
			window := l.Window.Microseconds()
			switch l.Algorithm {
			case limiter.FixedWindow:
				from = max(from, l.WindowStart(at)+window)
			case limiter.SlidingWindow: // which also weighs the window before
				from = max(from, l.WindowStart(at)+2*window)
			case limiter.TokenBucket, limiter.LeakyBucket:
				from = max(from, at+int64(float64(l.Capacity())/float64(l.Limit)*float64(window)))
			default:
				from = max(from, at+window)
			}
		}
	}
	return time.UnixMicro(from)
}

// Check is the outcome of one check.
type Check struct {
	Hash   uint64 // of the key
	Key    []byte
	Cost   int64
	At     time.Time
	Failed bool
	Passed bool // otherwise it was refused, unless it failed
	Wait   time.Duration
	Took   time.Duration // until the decision; negative if it was known beforehand
}

// Decided counts a check of a key in a slice. It does not allocate or retain parts of c.
func (t *Tally) Decided(slice int, c *Check) {
	if c.At.Before(t.Since) {
		return
	}
	s := &t.slices[slice]
	part := c.At.UnixMicro() / t.part
	s.Lock()
	s.count(c, part)
	s.Unlock()
}

func (s *slice) count(c *Check, part int64) {
	n := &s.counts
	if c.Failed {
		n.Failed++
		return
	}
	n.Checks++
	if c.Took >= 0 {
		n.Asked++
		n.TookMicros += c.Took.Microseconds()
	}
	if !c.Passed {
		n.Refused++
		n.WaitMicros += c.Wait.Microseconds()
		return
	}
	if len(c.Key) <= longest {
		s.length = uint8(copy(s.key[:], c.Key))
	}
	if p := s.follow(c.Hash, part); p != nil {
		n.Worst = max(n.Worst, p.pass(part, c.Cost))
	}
}

// Answered counts an answer to a request that began at a time and was admitted.
func (t *Tally) Answered(slice int, at time.Time, failed bool) {
	if at.Before(t.Since) {
		return
	}
	s := &t.slices[slice]
	s.Lock()
	s.counts.Answers++
	if failed {
		s.counts.Errors++
	}
	s.Unlock()
}

// follow returns a key's entry, or reuses that of a key idle for a window.
func (s *slice) follow(key uint64, part int64) *passes {
	var idle *passes
	for i := range s.keys {
		p := &s.keys[i]
		if p.key == key {
			return p
		}
		if part-p.last >= parts {
			idle = p
		}
	}
	if idle != nil {
		*idle = passes{key: key, last: part}
	}
	return idle
}

// pass adds admitted requests and returns the sum of the window that ends with the newest part.
func (p *passes) pass(part, cost int64) int64 {
	for p.last < part {
		p.last = max(p.last+1, part-parts+1) // earlier parts no longer matter
		p.sum -= p.in[p.last%parts]
		p.in[p.last%parts] = 0
	}
	if p.last-part < parts {
		p.in[part%parts] += cost
		p.sum += cost
	}
	return p.sum
}

// Counts returns the counts by slice.
func (t *Tally) Counts() []Counts {
	list := make([]Counts, rules.Slices)
	for i := range t.slices {
		s := &t.slices[i]
		s.Lock()
		list[i] = s.counts
		s.Unlock()
	}
	return list
}

// Keys returns the counter that each slice charged last, nil for a slice without one.
func (t *Tally) Keys() [][]byte {
	list := make([][]byte, rules.Slices)
	for i := range t.slices {
		s := &t.slices[i]
		s.Lock()
		if s.length > 0 {
			list[i] = append([]byte(nil), s.key[:s.length]...)
		}
		s.Unlock()
	}
	return list
}

// Sum adds up the slices inside the experiment, or those outside.
func Sum(list []Counts, cut int, tried bool) (sum Counts) {
	if tried {
		list = list[:cut]
	} else {
		list = list[cut:]
	}
	for i := range list {
		sum.Add(&list[i])
	}
	return sum
}
