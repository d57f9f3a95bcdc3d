package config

import (
	"context"
	"fmt"
	"os"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/edge/documents"
	"github.com/weir-edge/weir/pkg/sign"
)

// Where rules come from.
const (
	FromFile   = adminapi.SourceFile
	FromConsul = adminapi.SourceConsul
)

// Rules says where the rules come from.
type Rules struct {
	Source string `yaml:"source"` // file or consul
	File   string `yaml:"file"`   // with source file: the rule document
	// Cache is the file that keeps the last good rules of Consul, so that the node can start
	// while Consul is unreachable. Each node needs a separate one.
	Cache string `yaml:"cache"`
	// Bootstrap is the URL of rules for a node that starts without a cached copy while Consul
	// is unreachable: https://, or http:// to this machine.
	Bootstrap           string `yaml:"bootstrap"`
	BootstrapSignatures string `yaml:"bootstrap_signatures"` // URL of its signatures; required with documents.require_signed
	// Required means 503 to all requests until Consul has named rules; without it, all pass until
	// then.
	Required bool `yaml:"required"`
}

func (c *Config) FollowsConsul() bool { return c.Rules.Source == FromConsul }

func (c *Config) validateRules(f *faults) {
	switch c.Rules.Source {
	case FromFile:
		if c.Rules.File == "" {
			f.add("rules.file", "must name a rule document when rules.source is file")
		}
		if c.Rules.Bootstrap != "" || c.Rules.BootstrapSignatures != "" {
			f.add("rules.bootstrap", "is for rules.source consul; remove it")
		}
	case FromConsul:
		if c.Rules.File != "" {
			f.add("rules.file", "is only for rules.source file; while Consul is unreachable, the node uses rules.cache; remove it")
		}
		if c.Rules.Cache == "" {
			f.add("rules.cache", "must name a file when rules.source is consul: without it the node cannot start while Consul is unreachable")
		}
		if c.Rules.Bootstrap != "" && !documents.IsTrustedURL(c.Rules.Bootstrap) {
			f.add("rules.bootstrap", "must be an https:// URL such as https://bucket.s3.eu-west-1.amazonaws.com/rules.yaml; http:// is for this machine only")
		}
		if c.Rules.BootstrapSignatures != "" && (c.Rules.Bootstrap == "" || !documents.IsTrustedURL(c.Rules.BootstrapSignatures)) {
			f.add("rules.bootstrap_signatures", "must be an https:// URL such as https://bucket.s3.eu-west-1.amazonaws.com/rules.yaml.sig, alongside rules.bootstrap; http:// is for this machine only")
		}
		c.validateConsul(f)
	default:
		f.add("rules.source", "must be file or consul (got %q)", c.Rules.Source)
	}
}

func (r *Rules) Read() ([]byte, error) {
	data, err := os.ReadFile(r.File)
	if err != nil {
		return nil, fmt.Errorf("rules.file: %w", err)
	}
	return data, nil
}

// Fetch gets the document at rules.bootstrap, with its signatures if they are configured.
func (r *Rules) Fetch(ctx context.Context) ([]byte, []sign.Signature, error) {
	document, err := documents.Fetch(ctx, "rules.bootstrap", r.Bootstrap)
	if err != nil || r.BootstrapSignatures == "" {
		return document, nil, err
	}
	text, err := documents.Fetch(ctx, "rules.bootstrap_signatures", r.BootstrapSignatures)
	if err != nil {
		return nil, nil, err
	}
	list, err := sign.Parse(text)
	if err != nil {
		return nil, nil, fmt.Errorf("rules.bootstrap_signatures: %w", err)
	}
	return document, list, nil
}
