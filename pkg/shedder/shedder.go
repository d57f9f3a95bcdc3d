// Package shedder decides which requests to refuse when a site is overloaded, so that its
// capacity goes to those that matter most.
//
// Signals say how busy the site is, each as a utilization of 0 to 1 (signal.go). Ten
// times per second, the highest of them and the demand go through a control law (law.go),
// which moves one number, the level: 0 sheds nothing, and each whole step sheds one more
// class, starting with the last. Between samples, Admit reads the last decision
// and counts. Until the level reacts, hard caps on the requests in flight protect the site.
//
// The package does not depend on HTTP. Each thing that can be overloaded separately, such as an
// upstream group, has its own Shedder.
package shedder

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// Interval is how often to call Tick.
const Interval = 100 * time.Millisecond

// Shedder decides for one upstream. Its methods are safe for concurrent use.
type Shedder struct {
	name     string
	verdicts atomic.Pointer[verdicts]
	_        [40]byte // keeps what every request writes off the cache line of what it reads

	held    atomic.Int64 // permits
	waiting atomic.Int64 // permits sent and not yet answered, without those that wait for their clients
	served  atomic.Uint64
	wanted  atomic.Uint64
	_       [32]byte

	classes [MaxClasses]counters
	clients clients

	mu     sync.Mutex // guards what Tick and Configure share
	ticker ticker
}

// counters count one class since the start. They fill a cache line.
type counters struct {
	admitted, sent, byLevel, byCap atomic.Uint64
	held                           atomic.Int64
	_                              [24]byte
}

// verdicts are the decisions of one sample. They are immutable.
type verdicts struct {
	enabled    bool
	classes    int
	shed       [MaxClasses]uint64 // of 1<<32 users
	caps       [MaxClasses]int64
	byLevel    [MaxClasses]*Reason
	byCap      [MaxClasses]*Reason
	byClient   [MaxClasses]*Reason
	nanos      int64 // time of the sample
	rotate     int64
	candidates []*candidate
}

// Reason explains a refusal. It is shared and must not be changed.
type Reason struct {
	Upstream, Class string
	Kind            string // KindLevel, KindCap, KindProbe or KindClient
	// Signal is the one that caused the refusal. Value and Threshold are in its unit;
	// Threshold corresponds to Settings.Start, or otherwise to the requests in flight that
	// are allowed: of all clients, or for KindClient of this one.
	Signal             string
	Value, Threshold   float64
	Utilization, Level float64
	Version            string // of the settings
}

// The kinds of Reason.
const (
	KindLevel  = "level"
	KindCap    = "cap"
	KindProbe  = "probe"  // a cap while an Estimate probes
	KindClient = "client" // one client's part of a cap
)

// New returns a Shedder that enforces only the caps until its first Tick. name identifies
// what it protects. The error is that of Settings.Validate.
func New(name string, settings Settings) (*Shedder, error) {
	s := &Shedder{name: name}
	if err := s.Configure(settings); err != nil {
		return nil, err
	}
	return s, nil
}

// Configure replaces the settings immediately. On an error, which is that of
// Settings.Validate, nothing changes. If the law is the same, it keeps its state.
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

// Wanted counts a request that a rule refused only because its limit had been lowered to
// protect the upstream. Users want it, so it is demand; but the laws do not see it, because
// the level could not shed it and would shed other requests instead.
func (s *Shedder) Wanted() { s.wanted.Add(1) }

// Utilization returns the highest utilization of any signal at the last sample; false if
// none counts.
func (s *Shedder) Utilization() (float64, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ticker.utilization(), s.ticker.winner != nil
}

// Permit represents an admitted request until Done. A refused one holds only its Reason.
// Use it from one goroutine at a time, and do not copy it while it is held.
type Permit struct {
	shedder *Shedder
	class   *counters
	stage   stage
	counted bool // for client
	reason  *Reason
	held    int64 // by other requests, when a cap refused; by the client's, when its part did
	most    int64 // that a client's part allowed
	client  uint64
}

type stage uint8

const (
	over stage = iota // or refused
	admitted
	sent
	paused // sent, and waiting for the client
	answered
)

// Admit decides about one request. class is its index in Settings.Classes; an index out
// of range counts as the last class. user is a hash that identifies the user: it selects
// which users are shed, and that selection rotates. Admit never blocks or allocates.
func (s *Shedder) Admit(class int, user uint64) (Permit, bool) { return s.admit(class, user, 0, false) }

// AdmitFrom is Admit for a request of one client, which a hash identifies. Clients decide how long
// they send and read, so each may have only a third as many requests in flight as its class's cap
// leaves free, but always six (dynamic thresholds; Choudhury and Hahne, 1998). One client gets a
// quarter of a cap, the next a quarter of the rest: n clients leave 0.75^n of it. Unlike Admit, it
// takes a lock, one of 16, to count the client.
func (s *Shedder) AdmitFrom(class int, user, client uint64) (Permit, bool) {
	return s.admit(class, user, client, true)
}

func (s *Shedder) admit(class int, user, client uint64, counts bool) (Permit, bool) {
	v := s.verdicts.Load()
	class = v.class(class)
	c := &s.classes[class]
	position := v.position(user)
	if len(v.candidates) > 0 {
		held := s.held.Load() // a racy read by design: others may count before this request is included
		for _, shadow := range v.candidates {
			shadow.see(class, position, held)
		}
	}
	limit := v.caps[class]
	switch {
	case !v.enabled:
		limit = math.MaxInt64
	case position < v.shed[class]:
		c.byLevel.Add(1)
		return Permit{reason: v.byLevel[class]}, false
	}
	held := s.held.Load() // refusals must not hold permits, not even for an instant
	if held < limit {
		if most := max(clientLeast, (limit-held)/clientShare); counts {
			if own, entered := s.clients.enter(client, most); !entered {
				return Permit{reason: v.byClient[class], held: own, most: most}, false
			}
		}
		if held = s.held.Add(1) - 1; held >= limit {
			s.held.Add(-1)
			if counts {
				s.clients.leave(client)
			}
		}
	}
	if held >= limit {
		c.byCap.Add(1)
		return Permit{reason: v.byCap[class], held: held}, false
	}
	c.held.Add(1)
	c.admitted.Add(1)
	return Permit{shedder: s, class: c, stage: admitted, counted: counts, client: client}, true
}

// Sent records that the request goes to the upstream. One that is never sent counts
// neither as demand nor for the signals.
func (p *Permit) Sent() {
	if p.stage == admitted {
		p.stage = sent
		p.class.sent.Add(1)
		p.shedder.waiting.Add(1)
	}
}

// UndoSent undoes Sent: the request never got to the upstream.
func (p *Permit) UndoSent() {
	p.AwaitClient(false)
	if p.stage == sent {
		p.stage = admitted
		p.class.sent.Add(^uint64(0))
		p.shedder.waiting.Add(-1)
	}
}

// Answered records that the response has begun. How long a client reads it, or how long a
// stream lasts, does not show how busy the origin is. The caps count the request until
// Done.
func (p *Permit) Answered() {
	p.AwaitClient(false)
	if p.stage == sent {
		p.stage = answered
		p.shedder.waiting.Add(-1)
		p.shedder.served.Add(1)
	}
}

// Done ends the request. Further calls do nothing.
func (p *Permit) Done() {
	if p.stage == over {
		return
	}
	if p.stage == sent {
		p.shedder.waiting.Add(-1)
	}
	if p.counted {
		p.shedder.clients.leave(p.client)
	}
	p.stage = over
	p.class.held.Add(-1)
	p.shedder.held.Add(-1)
}

// Reason returns why a request was refused; the zero Reason if it was not.
func (p *Permit) Reason() Reason {
	if p.reason == nil {
		return Reason{}
	}
	r := *p.reason
	if r.Kind != KindLevel {
		r.Value = float64(p.held)
	}
	if r.Kind == KindClient {
		r.Threshold = float64(p.most)
	}
	return r
}

// class returns the index of a class; one out of range is the last.
func (v *verdicts) class(index int) int {
	if index < 0 || index >= v.classes {
		return v.classes - 1
	}
	return index
}

// position returns a user's position among 1<<32; users below a class's share are shed. It
// changes once per rotation, for each user at a different moment, so that the set of shed
// users changes gradually.
func (v *verdicts) position(user uint64) uint64 {
	turn := uint64(v.nanos+int64(user%uint64(v.rotate))) / uint64(v.rotate)
	h := user ^ turn*0x9e3779b97f4a7c15
	h ^= h >> 30 // the finalizer of SplitMix64
	h *= 0xbf58476d1ce4e5b9
	h ^= h >> 27
	h *= 0x94d049bb133111eb
	return (h ^ h>>31) >> 32
}
