package ctl

import (
	"net/http"
	"time"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/shedding"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// stubShedder is the part of a stub that follows the shedder's settings.
type stubShedder struct {
	pointer *consul.Pointer
	stays   string // the version that it keeps, whatever is published
	refuses string // the version that it refuses
	last    string // the last version that it accepted
	status  []shedding.UpstreamStatus
	off     bool
}

// followSettings processes what a watch found.
func (s *stub) followSettings(e *consul.Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e == nil {
		return
	}
	if p, err := consul.ParsePointer(e.Value); err == nil {
		s.shedder.pointer = &p
	}
}

// version returns what it runs at now.
func (s *stubShedder) version() string {
	if s.stays != "" {
		return s.stays
	}
	version := shedding.VersionConfig
	if s.pointer != nil {
		if n := s.pointer.ActiveAt(time.Now()); n != nil {
			version = n.Version
		}
	}
	if version == s.refuses {
		return s.last
	}
	s.last = version
	return version
}

func (s *stub) sheds() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shedder.version()
}

func (s *stub) shedding(w http.ResponseWriter, _ *http.Request) {
	answer := adminapi.Shedder{
		Node: s.id, Version: s.shedder.version(), Source: adminapi.SourceConsul, Since: time.Now().Add(-time.Hour), Consul: &adminapi.Condition{OK: true},
		Document: map[string]any{"enabled": !s.shedder.off}, Upstreams: s.shedder.status, ShadowBias: shedding.ShadowBias,
	}
	if s.shedder.refuses != "" {
		answer.Refused = &adminapi.Refusal{Version: s.shedder.refuses, At: time.Now(), Errors: []string{"law: must be another"}}
	}
	reply(w, answer)
}
