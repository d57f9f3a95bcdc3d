package behavior

import "sync"

// site tracks how the origin answers all subjects. While it fails for many of them, its
// errors say nothing about any one. Each subject counts once per window, as failing from
// its first error on, so that a subject that fails often cannot excuse itself. Where
// traffic is dense, seconds show that an origin has begun to fail; where it is sparse,
// short windows do.
type site struct {
	mu      sync.Mutex
	seconds tallies
	shorts  tallies
}

// tallies cover a window and the one before.
type tallies struct {
	window      tick
	now, before tally
}

type tally struct{ subjects, failed int }

const (
	fewSubjects  = 5   // too few to tell the origin from the subject
	failingShare = 0.2 // of the subjects
)

func (t *tallies) roll(now tick, length int32) {
	switch passed := now.since(t.window); {
	case passed >= 2*length:
		t.window, t.now, t.before = now, tally{}, tally{}
	case passed >= length:
		t.window, t.now, t.before = now, tally{}, t.now
	}
}

// answers are marks of a subject's answers.
type answers uint8

const (
	inSecond answers = 1 << iota // 5xx in the second of the last one
	inShort                      // 5xx in the short window
	proven                       // see Status.Proven
)

// hear counts an answered subject: for the first time in its window, or as failing for the
// first time in it.
func (t *tallies) hear(first, failed bool) {
	if first {
		t.now.subjects++
	}
	if failed {
		t.now.failed++
	}
}

func (t *tallies) failing() bool {
	failed, all := t.now.failed+t.before.failed, t.now.subjects+t.before.subjects
	return failed >= fewSubjects && float64(failed) >= failingShare*float64(all)
}

// hear counts an answer to a subject. begins says that this answer starts the subject's
// short window.
func (s *site) hear(c *subject, now tick, begins, fails bool) {
	second := uint16(now / ticksPerSecond)
	another := second != c.second
	if another {
		c.second, c.answers = second, c.answers&^inSecond
	}
	if begins {
		c.answers &^= inShort
	}
	failsNow, failsShort := fails && c.answers&inSecond == 0, fails && c.answers&inShort == 0
	if !another && !begins && !failsNow && !failsShort {
		return
	}
	if fails {
		c.answers |= inSecond | inShort
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seconds.roll(now, ticksPerSecond)
	s.seconds.hear(another, failsNow)
	s.shorts.roll(now, shortTicks)
	s.shorts.hear(begins, failsShort)
}

// failing reports whether 5xx are the origin's fault.
func (s *site) failing(now tick) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seconds.roll(now, ticksPerSecond)
	s.shorts.roll(now, shortTicks)
	return s.seconds.failing() || s.shorts.failing()
}
