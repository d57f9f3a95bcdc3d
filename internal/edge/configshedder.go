package edge

import (
	"errors"
	"path/filepath"

	"github.com/weir-edge/weir/internal/shedding"
	"github.com/weir-edge/weir/pkg/shedder"
)

const fromConfig = "config"

// ShedderConfig says how requests are shed, and who may change that.
type ShedderConfig struct {
	Source string `yaml:"source"`
	// Cache is the file that keeps the last good settings of Consul.
	Cache string `yaml:"cache"`
	// Document is what is in force without, before and after those of Consul; nil: the
	// defaults.
	Document *shedding.Document `yaml:",inline"`

	written []byte
}

// UnmarshalYAML keeps what is written for validate, which tells every fault of it.
func (s *ShedderConfig) UnmarshalYAML(text []byte) error {
	s.written = append([]byte(nil), text...)
	return nil
}

func (c *Config) validateShedder(f *faults) {
	s := &c.Shedder
	if s.written != nil {
		document, err := shedding.ParseBeside(s.written, map[string]*string{"source": &s.Source, "cache": &s.Cache})
		if err != nil {
			f.shedder(err)
			return
		}
		document.Version = shedding.VersionConfig
		s.Document = document
	}
	if s.Source == "" {
		s.Source = fromConfig
		if c.followsConsul() {
			s.Source = fromConsul
		}
	}
	switch s.Source {
	case fromConfig:
		if s.Cache != "" {
			f.add("shedder.cache", "is for shedder.source consul; remove it")
		}
	case fromConsul:
		if !c.followsConsul() {
			f.add("shedder.source", "can be consul only where rules.source is; use config")
		}
		if s.Cache == "" {
			s.Cache = filepath.Join(filepath.Dir(c.Rules.Cache), "shedder.json")
		}
		if filepath.Clean(s.Cache) == filepath.Clean(c.Rules.Cache) {
			f.add("shedder.cache", "must be another file than rules.cache, %s", c.Rules.Cache)
		}
	default:
		f.add("shedder.source", "must be config or consul (got %q)", s.Source)
	}
}

// shedder takes over faults of the document.
func (f *faults) shedder(err error) {
	var one *shedder.FieldError
	joined, many := err.(interface{ Unwrap() []error })
	switch {
	case many:
		for _, err := range joined.Unwrap() {
			f.shedder(err)
		}
	case errors.As(err, &one) && one.Field == "document":
		f.add("shedder", "%s", one.Msg)
	default:
		*f = append(*f, prefixed{err})
	}
}

// prefixed is a fault of a field within shedder.
type prefixed struct{ error }

func (p prefixed) Error() string { return "shedder." + p.error.Error() }

func (p prefixed) Unwrap() error { return p.error }

// settings are those that no one has published.
func (s *ShedderConfig) settings() *shedding.Document {
	if s.Document == nil {
		return shedding.Defaults()
	}
	return s.Document
}
