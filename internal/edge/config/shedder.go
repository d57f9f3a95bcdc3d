package config

import (
	"fmt"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/disk"
	"github.com/weir-edge/weir/internal/shedding"
	"github.com/weir-edge/weir/pkg/field"
	"github.com/weir-edge/weir/pkg/shedder"
)

const FromConfig = adminapi.SourceConfig

// Shedder says how requests are shed, and who may change that.
type Shedder struct {
	Source     string `yaml:"source"`      // config or consul; absent: consul with rules.source consul
	Cache      string `yaml:"cache"`       // with source consul: the last good settings; absent: shedder.json next to rules.cache
	SecretFile string `yaml:"secret_file"` // holds a secret of at least 16 bytes, the same on all nodes, which decides when a user is shed
	// Document is active while Consul names none; nil: the defaults.
	Document *shedding.Document `yaml:",inline"`
	// Custom replaces any document's law. Only a program can set it, to compare laws.
	Custom shedder.Law `yaml:"-"`
}

// UnmarshalField reads the fields of the document from the same map as the others.
func (s *Shedder) UnmarshalField(d *field.Decoder, n *field.Node) {
	type plain Shedder
	s.Document = shedding.Defaults()
	s.Document.Version = shedding.VersionConfig
	d.Decode(n, (*plain)(s))
}

func (c *Config) validateShedder(f *faults) {
	s := &c.Shedder
	if s.Document != nil {
		f.list.Take("shedder", s.Document.Check().Err())
	}
	f.file("shedder.secret_file", s.SecretFile)
	if s.Source == "" {
		s.Source = FromConfig
		if c.FollowsConsul() {
			s.Source = FromConsul
		}
	}
	switch {
	case s.Source == FromConsul && !c.FollowsConsul():
		f.add("shedder.source", "can be consul only if rules.source is consul; use config")
	case s.Source != FromConsul && s.Source != FromConfig:
		f.add("shedder.source", "must be config or consul (got %q)", s.Source)
	}
}

// Settings returns the settings of this file.
func (s *Shedder) Settings() *shedding.Document {
	if s.Document == nil {
		return shedding.Defaults()
	}
	return s.Document
}

// ReadSecret reads shedder.secret_file. It returns nil if there is none.
func (s *Shedder) ReadSecret() ([]byte, error) {
	if s.SecretFile == "" {
		return nil, nil
	}
	key, err := disk.Secret(s.SecretFile)
	if err != nil {
		return nil, fmt.Errorf("shedder.secret_file: %w", err)
	}
	return key, nil
}
