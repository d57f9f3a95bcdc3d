package config

import (
	"fmt"
	"os"

	"github.com/weir-edge/weir/internal/policy"
	"github.com/weir-edge/weir/pkg/behavior"
	"github.com/weir-edge/weir/pkg/field"
)

// Policy says where the behavior policy comes from.
type Policy struct {
	Source   string `yaml:"source"`   // file, or consul with rules.source consul
	File     string `yaml:"file"`     // with source file: the policy; absent: clients are not evaluated
	Cache    string `yaml:"cache"`    // with source consul: the last good policy; absent: policy.json next to rules.cache
	Subjects int    `yaml:"subjects"` // how many clients to keep, 1000 to 16777152, in 256 bytes each, besides 1/128 as many routes that have answered 401 or 403; a million with their routes take 255 MiB
}

func (c *Config) validatePolicy(f *faults) {
	p := &c.Policy
	if p.Subjects < 1000 || p.Subjects > behavior.MaxSubjects {
		f.add("policy.subjects", "must be from 1000 to %d (got %d); a million take 256 MiB", behavior.MaxSubjects, p.Subjects)
	}
	f.file("policy.file", p.File)
	f.word("policy.source", p.Source, FromFile, FromConsul)
	if p.Source == FromConsul {
		if !c.FollowsConsul() {
			f.add("policy.source", "can be consul only if rules.source is consul; use file")
		}
		if p.File != "" {
			f.add("policy.file", "is only for policy.source file; remove it, and publish the policy with regionctl policy apply")
		}
	}
}

// checkPolicy reports what would prevent a policy from being active at startup.
func (c *Config) checkPolicy() error {
	p := &c.Policy
	switch {
	case p.Source == FromConsul:
		return c.checkCache("policy", p.Cache, func(document []byte) error {
			_, err := policy.Parse(document)
			return err
		})
	case p.File != "":
		data, err := p.Read()
		if err == nil {
			_, err = p.Parse(data)
		}
		return err
	}
	return nil
}

func (p *Policy) Read() ([]byte, error) {
	data, err := os.ReadFile(p.File)
	if err != nil {
		return nil, fmt.Errorf("policy.file: %w", err)
	}
	return data, nil
}

// Parse reports what is wrong with the policy.
func (p *Policy) Parse(data []byte) (*policy.Policy, error) {
	made, err := policy.Parse(data)
	if err != nil {
		return nil, field.All(err).In(p.File)
	}
	return made, nil
}
