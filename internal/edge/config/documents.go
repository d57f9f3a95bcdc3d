package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weir-edge/weir/internal/edge/documents"
	"github.com/weir-edge/weir/pkg/field"
	"github.com/weir-edge/weir/pkg/sign"
)

// Documents says whose signatures make rules and shedder settings of Consul acceptable.
type Documents struct {
	VerifyKeys    []string `yaml:"verify_keys"`    // files with Ed25519 public keys in PEM, one or several in each
	RequireSigned bool     `yaml:"require_signed"` // refuse documents that none of the keys has signed, and keep the active ones
}

func (c *Config) validateDocuments(f *faults) {
	d := &c.Documents
	for i, name := range d.VerifyKeys {
		path := field.Index("documents.verify_keys", i)
		if name == "" {
			f.add(path, "must name a file with a public key")
		}
		f.file(path, name)
	}
	switch {
	case d.RequireSigned && len(d.VerifyKeys) == 0:
		f.add("documents.verify_keys", "must name a file with a public key when documents.require_signed is true")
	case len(d.VerifyKeys) > 0 && !c.FollowsConsul():
		f.add("documents.verify_keys", "is for rules.source consul; remove it")
	}
	if d.RequireSigned && c.Rules.Bootstrap != "" && c.Rules.BootstrapSignatures == "" {
		f.add("rules.bootstrap_signatures", "must be a URL of the signatures of rules.bootstrap when documents.require_signed is true")
	}
}

// Verify returns how this node verifies documents, nil if it does not.
func (c *Config) Verify() *documents.Verify {
	if len(c.Documents.VerifyKeys) == 0 {
		return nil
	}
	return &documents.Verify{Keys: c.Documents.Keys, Require: c.Documents.RequireSigned, Region: c.Node.Region}
}

// Keys reads the keys, which may change while the node runs.
func (d *Documents) Keys() (sign.Keys, error) {
	keys, err := sign.ReadPublic(d.VerifyKeys)
	if err != nil {
		return nil, fmt.Errorf("documents.verify_keys: %w", err)
	}
	return keys, nil
}

// SignedBy returns the keys that the node registers, "" if it requires none. Consul takes
// 512 characters: of more keys, the first in order are named.
func (d *Documents) SignedBy() string {
	if !d.RequireSigned {
		return ""
	}
	keys, err := d.Keys()
	if err != nil {
		return ""
	}
	ids := slices.Sorted(maps.Keys(keys))
	return strings.Join(ids[:min(len(ids), 30)], ",")
}
