package edge

import (
	"bytes"
	"sync/atomic"

	"github.com/weir-edge/weir/internal/edge/decide"
)

// shedSecret holds the active secret of the shedder.
type shedSecret struct {
	active atomic.Pointer[decide.Secret]
	key    []byte // the file's content, as last read
}

// openSecret activates the first secret. A node that shares no counters shares no choice of
// users either: a secret of its own suffices.
func (e *Edge) openSecret() error {
	key, err := e.config.Shedder.ReadSecret()
	if err != nil {
		return err
	}
	e.secret.key = key
	if key == nil && e.config.Store.Kind == "memory" {
		e.activateSecret(decide.RandomSecret(), ownSecret)
		return nil
	}
	secret := decide.NewSecret(key)
	e.activateSecret(secret, secret.Fingerprint())
	return nil
}

// ownSecret is the fingerprint of a generated secret.
const ownSecret = "own"

func (e *Edge) activateSecret(secret *decide.Secret, fingerprint string) {
	e.secret.active.Store(secret)
	e.metrics.shedderSecret.Reset()
	e.metrics.shedderSecret.WithLabelValues(fingerprint).Set(1)
	if e.secret.key != nil {
		e.log.Info("shedder secret active", "fingerprint", fingerprint)
	}
}

// reloadSecret activates a secret that was replaced on disk. After an error the active one
// stays, because without any, all users would change places.
func (e *Edge) reloadSecret() {
	if e.config.Shedder.SecretFile == "" {
		return
	}
	key, err := e.config.Shedder.ReadSecret()
	e.files.secret.Report(e.log, "reload shedder secret", err)
	if err == nil && !bytes.Equal(key, e.secret.key) {
		e.secret.key = key
		secret := decide.NewSecret(key)
		e.activateSecret(secret, secret.Fingerprint())
	}
}
