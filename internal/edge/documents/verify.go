package documents

import (
	"cmp"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/weir-edge/weir/pkg/region/consul"
	"github.com/weir-edge/weir/pkg/sign"
)

// Verify is how a node verifies who signed its documents.
type Verify struct {
	// Keys reads the trusted keys for each document, so that replacing a key needs no
	// restart.
	Keys func() (sign.Keys, error)
	// Require refuses documents without a valid signature. Otherwise the node only reports
	// them.
	Require bool
	Region  string
	// Every is how often to look again whether what is active is still signed by a trusted
	// key; 0: once per minute.
	Every time.Duration
}

const verifyEvery = time.Minute

func (v *Verify) requires() bool { return v != nil && v.Require }

// verify returns a *sign.Fault unless the signatures allow p to activate its document,
// which is of this kind.
func (v *Verify) verify(kind string, p consul.Pointer, list []sign.Signature) error {
	if v == nil {
		return nil
	}
	keys, err := v.Keys()
	if err != nil {
		return &sign.Fault{Why: err.Error()}
	}
	return keys.Verify(sign.Subject{Kind: kind, Region: v.Region, SHA256: p.SHA256}, list, p.ExpiresAt)
}

// every returns a time around Every, so that not all nodes ask at once.
func (v *Verify) every() time.Duration {
	mean := cmp.Or(v.Every, verifyEvery)
	return mean/2 + rand.N(mean)
}

// Check verifies a cached document.
func (v *Verify) Check(kind string, c *Cached) error { return v.verify(kind, c.Pointer, c.Signatures) }

// unsigned returns why the document that Consul names, or the active one, counts as
// unsigned.
func (k *Keeper[T]) unsigned(now time.Time, active *Document[T]) error {
	for _, p := range []*pointer[T]{&k.current, &k.canary} {
		if p == &k.canary && !p.lives(now) {
			continue
		}
		if sign.IsFault(p.resolution.fault) {
			return p.resolution.fault
		}
		if good := p.resolution.document; good != nil && good.Unsigned != nil {
			return good.Unsigned
		}
	}
	if active != nil {
		return active.Unsigned
	}
	return nil
}

// accept verifies a document that does not come from Consul.
func (k *Keeper[T]) accept(d *Document[T]) error {
	d.Unsigned = k.Verify.verify(k.Name, d.Pointer, d.Signatures)
	if k.Verify.requires() && d.Unsigned != nil {
		return errors.Join(errUnsigned, d.Unsigned)
	}
	return nil
}

var errUnsigned = errors.New("documents.require_signed is set")
