package ctl

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/policy"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// stubPolicy is the part of a stub that follows behavior policies.
type stubPolicy struct {
	follows        bool
	refuses        string // the version that it refuses
	version        string
	canary         bool
	current, trial *consul.Pointer
}

// followPolicies watches the pointers until ctx ends.
func (f *testFleet) followPolicies(ctx context.Context, s *stub, watches *sync.WaitGroup) {
	docs := f.open[s.region].Documents("policy")
	for key, to := range map[string]**consul.Pointer{docs.CurrentKey(): &s.policy.current, docs.CanaryKey(s.pop): &s.policy.trial} {
		watches.Go(func() {
			f.open[s.region].Watch(ctx, key, nil, func(e *consul.Entry) {
				s.mu.Lock()
				defer s.mu.Unlock()
				s.policy.note(to, e)
			})
		})
	}
}

func (p *stubPolicy) note(to **consul.Pointer, e *consul.Entry) {
	if *to = nil; e != nil {
		if named, err := consul.ParsePointer(e.Value); err == nil {
			*to = &named
		}
	}
	wanted := p.current
	if p.canary = p.trial != nil && !p.trial.Expired(time.Now()); p.canary {
		wanted = p.trial
	}
	if wanted != nil && wanted.Version != p.refuses {
		p.version = wanted.Version
	}
}

func (s *stub) judges() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.policy.version
}

func (s *stub) policies(w http.ResponseWriter, _ *http.Request) {
	if !s.policy.follows {
		reply(w, adminapi.Policy{Node: s.id, Source: adminapi.NoVersion})
		return
	}
	answer := adminapi.Policy{
		Node: s.id, Version: s.policy.version, Mode: policy.Shadow, Since: time.Now().Add(-time.Hour), Source: adminapi.SourceConsul,
		Canary: s.policy.canary, Consul: &adminapi.Condition{OK: true},
	}
	if s.policy.refuses != "" {
		answer.Refused = &adminapi.Refusal{Version: s.policy.refuses, At: time.Now(), Errors: []string{"mode: must be another"}}
	}
	reply(w, answer)
}
