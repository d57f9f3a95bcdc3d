package load

import (
	"bytes"
	"log/slog"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-edge/weir/internal/edge/config"
	"github.com/weir-edge/weir/internal/edge/decide"
	"github.com/weir-edge/weir/internal/logs"
	"github.com/weir-edge/weir/internal/metric"
)

// Secret is the secret of the shedder, which hides who is shed.
type Secret struct {
	config *config.Shedder
	log    *slog.Logger
	info   *prometheus.GaugeVec
	active atomic.Pointer[decide.Secret]
	key    []byte // the file's content, as last read
	fault  logs.Fault
}

// ownSecret is the fingerprint of a generated secret.
const ownSecret = "own"

// OpenSecret activates the first secret. A node that shares no counters shares no choice of
// users either: a secret of its own suffices.
func OpenSecret(c *config.Config, log *slog.Logger, registry metric.Registry) (*Secret, error) {
	key, err := c.Shedder.ReadSecret()
	if err != nil {
		return nil, err
	}
	s := &Secret{config: &c.Shedder, log: log, key: key}
	s.info = registry.Gauges("weir_shedder_secret_info",
		"1 for the fingerprint of the secret that decides which users are shed; none without one, own if the node generated it. It must be the same on all nodes.", "fingerprint")
	if key == nil && c.Store.Kind == "memory" {
		s.activate(decide.RandomSecret(), ownSecret)
	} else {
		secret := decide.NewSecret(key)
		s.activate(secret, secret.Fingerprint())
	}
	return s, nil
}

// Active returns the active secret, for requests.
func (s *Secret) Active() *decide.Secret { return s.active.Load() }

func (s *Secret) activate(secret *decide.Secret, fingerprint string) {
	s.active.Store(secret)
	s.info.Reset()
	s.info.WithLabelValues(fingerprint).Set(1)
	if s.key != nil {
		s.log.Info("shedder secret active", "fingerprint", fingerprint)
	}
}

// Reload activates a secret that was replaced on disk. After an error the active one
// stays, because without any, all users would change places.
func (s *Secret) Reload() {
	if s.config.SecretFile == "" {
		return
	}
	key, err := s.config.ReadSecret()
	s.fault.Report(s.log, "reload shedder secret", err)
	if err == nil && !bytes.Equal(key, s.key) {
		s.key = key
		secret := decide.NewSecret(key)
		s.activate(secret, secret.Fingerprint())
	}
}
