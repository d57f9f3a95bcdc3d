package redirect

import (
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// forgetAfter is how long connections stay open without a redirect.
const forgetAfter = time.Minute

// Servers are connections to the servers that redirects name. The cluster's client does not
// know a master without slots, and its connections are for decisions.
type Servers struct {
	options func(addr string) *redis.Options

	mu     sync.Mutex
	known  map[string]*redis.Client
	used   map[string]time.Time
	closed bool
}

// NewServers returns connections with these options.
func NewServers(options func(addr string) *redis.Options) *Servers {
	return &Servers{options: options, known: map[string]*redis.Client{}, used: map[string]time.Time{}}
}

// at returns the client of a server.
func (s *Servers) at(addr string) (*redis.Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, redis.ErrClosed
	}
	c := s.known[addr]
	if c == nil {
		c = redis.NewClient(s.options(addr))
		s.known[addr] = c
	}
	s.used[addr] = time.Now()
	return c, nil
}

// Forget closes the connections to servers that no redirect has named for a while.
func (s *Servers) Forget(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for addr, c := range s.known {
		if now.Sub(s.used[addr]) > forgetAfter {
			delete(s.known, addr)
			delete(s.used, addr)
			_ = c.Close()
		}
	}
}

// Close closes all connections.
func (s *Servers) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.Forget(time.Now().Add(time.Hour))
}
