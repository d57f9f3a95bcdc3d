package rollout

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing/synctest"
	"time"

	"github.com/weir-edge/weir/pkg/region/consul"
)

// value is a region's state of a document.
type value struct {
	text  string
	index int
}

// fakeRegion is a region in memory: a value with compare-and-set, and a lock.
type fakeRegion struct {
	mu     sync.Mutex
	now    value
	lock   *consul.Seen
	locked uint64 // the index of the last lock
	stored string

	// fault, if set, runs before an operation. If it returns an error and false, the operation
	// takes effect and only its answer is lost.
	fault func(operation string) (err error, taken bool)
}

var errLost = errors.New("the answer was lost")

// do is an operation.
func (p *fakeRegion) do(operation string, effect func()) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fault != nil {
		if err, taken := p.fault(operation); err != nil {
			if !taken {
				effect()
			}
			return err
		}
	}
	effect()
	return nil
}

// put is another writer's change, without the lock.
func (p *fakeRegion) put(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now = value{text, p.now.index + 1}
}

// actor is one operator's access to the fakes: each operation waits for its turn.
type actor struct {
	*fakeRegion
	turn func()
}

func (a *actor) Locked(context.Context, string) (seen *consul.Seen, err error) {
	a.turn()
	err = a.do("locked", func() { seen = a.seen() })
	return seen, err
}

// seen copies the lock.
func (p *fakeRegion) seen() *consul.Seen {
	if p.lock == nil {
		return nil
	}
	l := *p.lock
	return &l
}

// take replaces the lock with another holder's.
func (p *fakeRegion) take(l consul.Lock) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.locks(l)
}

func (p *fakeRegion) locks(l consul.Lock) uint64 {
	p.locked++
	p.lock = &consul.Seen{Lock: l, Index: p.locked}
	return p.locked
}

func (a *actor) Lock(_ context.Context, _ string, mine consul.Lock, over uint64) (index uint64, other *consul.Seen, err error) {
	a.turn()
	err = a.do("lock", func() {
		switch {
		case a.lock != nil && a.lock.ID == mine.ID:
			index = a.lock.Index
		case a.lock != nil && a.lock.Index != over:
			other = a.seen()
		default:
			index = a.locks(mine)
		}
	})
	return index, other, err
}

func (a *actor) Renew(_ context.Context, _ string, mine consul.Lock, _ uint64) (renewed uint64, err error) {
	var lost error
	err = a.do("renew", func() {
		switch {
		case a.lock == nil:
			lost = &consul.LockLostError{}
		case a.lock.ID != mine.ID:
			lost = &consul.LockLostError{By: &a.seen().Lock}
		default:
			renewed = a.locks(mine)
		}
	})
	return renewed, cmp.Or(err, lost)
}

func (a *actor) Unlock(_ context.Context, _ string, mine consul.Lock) error {
	a.turn()
	return a.do("unlock", func() {
		if a.lock != nil && a.lock.ID == mine.ID {
			a.lock = nil
		}
	})
}

// progress is the reports of a change.
type progress struct {
	waits  []string
	takes  []string
	locked []string
}

func (t *progress) Waits(region string, other consul.Lock) {
	t.waits = append(t.waits, region+" "+other.By)
}
func (t *progress) Takes(regions []string, from string, broken bool) {
	t.takes = append(t.takes, fmt.Sprint(regions, from, broken))
}
func (t *progress) StaysLocked(region string, _ error) { t.locked = append(t.locked, region) }

// changeTo applies text to fakes in by's name.
func changeTo(text, by string, fakes []*fakeRegion, turn func()) (*Change[value], *progress) {
	report := &progress{}
	actors := map[string]*actor{}
	c := &Change[value]{By: by, Timeout: time.Second, LockWait: time.Minute, Report: report}
	c.Subject = Subject[value]{
		Name: "rules",
		Store: func(_ context.Context, r *Region[value]) error {
			return actors[r.Name].do("store", func() { actors[r.Name].stored = text })
		},
		Look: func(_ context.Context, r *Region[value]) (now value, err error) {
			turn()
			err = actors[r.Name].do("look", func() { now = actors[r.Name].now })
			return now, err
		},
		Unchanged: func(a, b value) bool { return a.index == b.index },
		Holds:     func(_ *Region[value], now value) bool { return now.text == text },
		Write: func(_ context.Context, r *Region[value]) (done bool, err error) {
			turn()
			p := actors[r.Name].fakeRegion
			var lost error
			err = p.do("write", func() {
				if r.Fence != (consul.Fence{}) && (p.lock == nil || p.lock.Index != r.Fence.Index) {
					lost = &consul.LockLostError{}
					if p.lock != nil {
						lost = &consul.LockLostError{By: &p.seen().Lock}
					}
					return
				}
				if done = p.now.index == r.Seen.index; done {
					p.now = value{text, p.now.index + 1}
				}
			})
			return done && err == nil, cmp.Or(err, lost)
		},
	}
	for i, p := range fakes {
		name := string(rune('a' + i))
		actors[name] = &actor{p, turn}
		c.Regions = append(c.Regions, NewRegion[value](name, actors[name]))
	}
	return c, report
}

// schedule runs operations one at a time, in an order determined by its seed.
type schedule struct {
	mu      sync.Mutex
	waiting []chan struct{}
	random  *rand.Rand
}

func (s *schedule) turn() {
	mine := make(chan struct{})
	s.mu.Lock()
	s.waiting = append(s.waiting, mine)
	s.mu.Unlock()
	<-mine
}

// run grants turns until all actors have ended.
func (s *schedule) run(ended <-chan struct{}) {
	for {
		synctest.Wait()
		select {
		case <-ended:
			return
		default:
		}
		s.mu.Lock()
		if n := len(s.waiting); n > 0 {
			i := s.random.IntN(n)
			close(s.waiting[i])
			s.waiting[i] = s.waiting[n-1]
			s.waiting = s.waiting[:n-1]
		}
		idle := len(s.waiting) == 0
		s.mu.Unlock()
		if idle { // actors waiting for a lock try again
			select {
			case <-ended:
				return
			case <-time.After(time.Millisecond): // virtual time
			}
		}
	}
}

func newFakeRegions(n int) []*fakeRegion {
	fakes := make([]*fakeRegion, n)
	for i := range fakes {
		fakes[i] = &fakeRegion{now: value{"old", 1}}
	}
	return fakes
}

func ends(c *Change[value]) (list []Outcome) {
	for _, r := range c.Results() {
		list = append(list, r.Outcome)
	}
	return list
}
