package ctl

import (
	"context"
	"sync"

	"github.com/weir-edge/weir/internal/clientlist"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// stubClients is the part of a stub that follows the client lists.
type stubClients struct {
	follows bool
	version string
}

// followClients registers what the index names until ctx ends.
func (f *testFleet) followClients(ctx context.Context, s *stub, watches *sync.WaitGroup) {
	watches.Go(func() {
		c := f.open[s.region]
		c.Watch(ctx, clientlist.CurrentKey(c), nil, func(e *consul.Entry) {
			if e == nil {
				return
			}
			p, err := consul.ParsePointer(e.Value)
			if err != nil {
				return
			}
			s.mu.Lock()
			if !s.stays {
				s.clients.version = p.Version
			}
			s.mu.Unlock()
			_, _ = f.enroll(s) // until it succeeds, regionctl sees a node that is behind
		})
	})
}
