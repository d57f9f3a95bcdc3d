package behavior

import "sync"

// site knows how the origin answers everyone. While it fails for many subjects, its errors
// say nothing about any of them. Each subject counts once in a short window, so that one
// that fails often does not excuse itself.
type site struct {
	mu     sync.Mutex
	window tick
	now    tally
	before tally
}

type tally struct{ subjects, failed int }

const (
	fewSubjects  = 5   // too few to tell the origin from the subject
	failingShare = 0.2 // of the subjects
)

func (s *site) roll(now tick) {
	switch passed := now.since(s.window); {
	case passed >= 2*shortTicks:
		s.window, s.now, s.before = now, tally{}, tally{}
	case passed >= shortTicks:
		s.window, s.now, s.before = now, tally{}, s.now
	}
}

func (s *site) answered(now tick, failed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.roll(now)
	s.now.subjects++
	if failed {
		s.now.failed++
	}
}

// failing reports whether 5xx are the origin's fault.
func (s *site) failing(now tick) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.roll(now)
	failed, all := s.now.failed+s.before.failed, s.now.subjects+s.before.subjects
	return failed >= fewSubjects && float64(failed) >= failingShare*float64(all)
}
