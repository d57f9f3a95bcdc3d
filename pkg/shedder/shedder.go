// Package shedder decides which requests to refuse when a site is overloaded, so
// that what it can do is done for those that matter most.
//
// Signals say how busy the site is, each as a utilization of 0 to 1 (signal.go). Ten
// times a second the highest of them and the demand go through a control law (law.go),
// which moves one number, the level: 0 sheds nothing, and each whole step sheds one
// class more, the last one first. Between samples Admit only reads what the last one
// decided. What a level cannot do in the first moments, hard caps on the requests in
// flight do.
//
// The package knows no HTTP. There is one Shedder for each thing that can be
// overloaded by itself, such as an upstream.
package shedder

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// Interval is how often Tick is to be called.
const Interval = 100 * time.Millisecond

// Shedder decides for one upstream. Its methods are safe for concurrent use.
type Shedder struct {
	name     string
	verdicts atomic.Pointer[verdicts]
	_        [40]byte // what every request writes is apart from what it reads

	held    atomic.Int64 // permits
	waiting atomic.Int64 // of them, those sent and not answered
	served  atomic.Uint64
	_       [40]byte

	classes [MaxClasses]counters

	mu     sync.Mutex // what Tick and Configure share
	ticker ticker
}

// counters of one class, since the start. They take a cache line.
type counters struct {
	admitted, sent, byLevel, byCap atomic.Uint64
	held                           atomic.Int64
	_                              [24]byte
}

// verdicts are what a sample decided. They are immutable.
type verdicts struct {
	enabled    bool
	classes    int
	shed       [MaxClasses]uint64 // of 1<<32 users
	caps       [MaxClasses]int64
	byLevel    [MaxClasses]*Reason
	byCap      [MaxClasses]*Reason
	nanos      int64 // when
	rotate     int64
	candidates []*candidate
}

// Reason is why a request was refused. It is shared and must not be changed.
type Reason struct {
	Upstream, Class string
	Kind            string // KindLevel or KindCap
	// Signal is the one that speaks for the refusal. Value and Threshold are in its
	// unit; Threshold is the value that Settings.Start stands for, or of a cap,
	// MaxInFlight.
	Signal             string
	Value, Threshold   float64
	Utilization, Level float64
	Version            string // of the settings
}

// The kinds of a Reason.
const (
	KindLevel = "level"
	KindCap   = "cap"
)

// New returns a Shedder that sheds nothing before its first Tick, but for the caps.
// name says what it stands in front of. The error is that of Settings.Validate.
func New(name string, settings Settings) (*Shedder, error) {
	s := &Shedder{name: name}
	if err := s.Configure(settings); err != nil {
		return nil, err
	}
	return s, nil
}

// Configure changes the settings, at once. The error is that of Settings.Validate, and
// then nothing has changed. What the law has learned stays as long as it is the same
// law.
func (s *Shedder) Configure(settings Settings) error {
	if err := settings.Validate(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ticker.configure(settings.clone())
	s.verdicts.Store(s.ticker.verdicts(s.name))
	return nil
}

// Permit is what an admitted request holds until Done. A refused one holds nothing but
// its Reason. It is for one goroutine at a time, and not to be copied while it is held.
type Permit struct {
	shedder *Shedder
	class   *counters
	stage   stage
	reason  *Reason
	held    int64 // by others, when a cap refused
}

type stage uint8

const (
	over stage = iota // or refused
	admitted
	sent
	answered
)

// Admit decides about one request. class is its index in Settings.Classes; one that is
// out of range counts as the last. user is a hash of who asks: which users are shed
// depends on it, and rotates. Admit never blocks and allocates nothing.
func (s *Shedder) Admit(class int, user uint64) (Permit, bool) {
	v := s.verdicts.Load()
	if class < 0 || class >= v.classes {
		class = v.classes - 1
	}
	c := &s.classes[class]
	place := v.place(user)
	if len(v.candidates) > 0 {
		held := s.held.Load() // a racy read by design: others count before this one shows in it
		for _, shadow := range v.candidates {
			shadow.see(class, place, held)
		}
	}
	limit := v.caps[class]
	switch {
	case !v.enabled:
		limit = math.MaxInt64
	case place < v.shed[class]:
		c.byLevel.Add(1)
		return Permit{reason: v.byLevel[class]}, false
	}
	held := s.held.Load() // so that a flood of refusals does not even seem to hold permits
	if held < limit {
		if held = s.held.Add(1) - 1; held >= limit {
			s.held.Add(-1)
		}
	}
	if held >= limit {
		c.byCap.Add(1)
		return Permit{reason: v.byCap[class], held: held}, false
	}
	c.held.Add(1)
	c.admitted.Add(1)
	return Permit{shedder: s, class: c, stage: admitted}, true
}

// Sent says that the request now goes to what the Shedder stands in front of. What is
// never sent counts neither as demand nor for the signals.
func (p *Permit) Sent() {
	if p.stage == admitted {
		p.stage = sent
		p.class.sent.Add(1)
		p.shedder.waiting.Add(1)
	}
}

// Withdraw takes Sent back: something was wrong with the request, and it never got there.
func (p *Permit) Withdraw() {
	if p.stage == sent {
		p.stage = admitted
		p.class.sent.Add(^uint64(0))
		p.shedder.waiting.Add(-1)
	}
}

// Answered says that the answer has begun. How long a client takes to read it, or how
// long a stream lasts, says nothing of how busy its origin is. The cap counts the
// request until Done.
func (p *Permit) Answered() {
	if p.stage == sent {
		p.stage = answered
		p.shedder.waiting.Add(-1)
		p.shedder.served.Add(1)
	}
}

// Done says that the request is over. More calls do nothing.
func (p *Permit) Done() {
	if p.stage == over {
		return
	}
	if p.stage == sent {
		p.shedder.waiting.Add(-1)
	}
	p.stage = over
	p.class.held.Add(-1)
	p.shedder.held.Add(-1)
}

// Reason is why a request was refused; the zero Reason if it was not.
func (p *Permit) Reason() Reason {
	if p.reason == nil {
		return Reason{}
	}
	r := *p.reason
	if r.Kind == KindCap {
		r.Value = float64(p.held)
	}
	return r
}

// place is where a user stands among 1<<32: those below a class's share are shed. It
// is another one every rotation, for each user at a moment of its own, so that who is
// shed changes little by little.
func (v *verdicts) place(user uint64) uint64 {
	turn := uint64(v.nanos+int64(user%uint64(v.rotate))) / uint64(v.rotate)
	h := user ^ turn*0x9e3779b97f4a7c15
	h ^= h >> 30 // the finalizer of SplitMix64
	h *= 0xbf58476d1ce4e5b9
	h ^= h >> 27
	h *= 0x94d049bb133111eb
	return (h ^ h>>31) >> 32
}
