package access

import (
	"maps"
	"sync"
	"time"
)

// spent remembers IDs that must not be used again, until they would expire anyway.
type spent struct {
	mu    sync.Mutex
	until map[string]time.Time
}

// mostSpent bounds the memory.
const mostSpent = 100_000

// spend reports whether id is used for the first time. When the memory is full, it reports
// false.
func (s *spent) spend(id string, until, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.until) >= mostSpent {
		maps.DeleteFunc(s.until, func(_ string, until time.Time) bool { return now.After(until) })
	}
	if _, used := s.until[id]; used || len(s.until) >= mostSpent {
		return false
	}
	if s.until == nil {
		s.until = map[string]time.Time{}
	}
	s.until[id] = until
	return true
}

func (s *spent) has(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, used := s.until[id]
	return used
}
