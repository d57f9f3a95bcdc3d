// Package envoy translates the configuration of Envoy's reference rate limit service
// (envoyproxy/ratelimit) into rules.
package envoy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/weir-edge/weir/pkg/limiter/rules"
)

// MaxBytes bounds a file.
const MaxBytes = rules.MaxBytes

// File is a configuration file.
type File struct {
	Name string
	Text []byte
}

// config is a file as the service reads it.
type config struct {
	Domain      string  `yaml:"domain"`
	Descriptors []entry `yaml:"descriptors"`
}

type entry struct {
	Key            string  `yaml:"key"`
	Value          string  `yaml:"value"`
	RateLimit      *limit  `yaml:"rate_limit"`
	Descriptors    []entry `yaml:"descriptors"`
	ShadowMode     bool    `yaml:"shadow_mode"`
	QuotaMode      bool    `yaml:"quota_mode"`
	DetailedMetric bool    `yaml:"detailed_metric"`
	ValueToMetric  bool    `yaml:"value_to_metric"`
	ShareThreshold bool    `yaml:"share_threshold"`
}

type limit struct {
	Unit            string `yaml:"unit"`
	UnitMultiplier  *int64 `yaml:"unit_multiplier"`
	RequestsPerUnit int64  `yaml:"requests_per_unit"`
	Unlimited       bool   `yaml:"unlimited"`
	Name            string `yaml:"name"`
	Replaces        []struct {
		Name string `yaml:"name"`
	} `yaml:"replaces"`
}

// Translate returns the rules that decide as the files do, and a line for each field that
// cannot be kept.
func Translate(files []File) (*rules.Document, []string, error) {
	t := &translator{ids: map[string]bool{}, doc: &rules.Document{Rules: []rules.Rule{}}}
	domains := map[string]string{}
	for _, f := range files {
		c, err := read(f.Text)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", f.Name, err)
		}
		if other, twice := domains[c.Domain]; twice {
			return nil, nil, fmt.Errorf("%s: the domain %s is in %s, too; import one of them, or join them", f.Name, c.Domain, other)
		}
		domains[c.Domain] = f.Name
		t.file, t.domain = f.Name, c.Domain
		if err := t.level(c.Descriptors, "descriptors", nil); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", f.Name, err)
		}
	}
	if _, err := rules.Compile(t.doc); err != nil {
		return nil, nil, fmt.Errorf("these rules would be refused: %w", err)
	}
	return t.doc, t.report, nil
}

func read(text []byte) (*config, error) {
	if len(text) > MaxBytes {
		return nil, fmt.Errorf("is larger than %d bytes; split it by domain", MaxBytes)
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	c := &config{}
	if err := d.Decode(c); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, errors.New("is empty")
		}
		return nil, errors.New(strings.ReplaceAll(err.Error(), "\n  ", " "))
	}
	if err := d.Decode(&config{}); !errors.Is(err, io.EOF) {
		return nil, errors.New("holds more than one document; import one file for each domain")
	}
	if c.Domain == "" {
		return nil, errors.New("domain: is empty")
	}
	return c, nil
}
