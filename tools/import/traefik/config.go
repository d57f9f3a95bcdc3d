// Package traefik translates the rateLimit and inFlightReq middlewares of a dynamic
// configuration of Traefik into rules, and models what Traefik does with them.
package traefik

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/BurntSushi/toml"
	"go.yaml.in/yaml/v3"

	"github.com/weir-edge/weir/pkg/limiter/rules"
)

// MaxBytes bounds a file.
const MaxBytes = rules.MaxBytes

// document is what a file says; other fields are not read.
type document struct {
	HTTP struct {
		Routers     map[string]router     `yaml:"routers"`
		Middlewares map[string]middleware `yaml:"middlewares"`
	} `yaml:"http"`
}

type router struct {
	Rule        string   `yaml:"rule"`
	RuleSyntax  string   `yaml:"ruleSyntax"`
	Priority    int      `yaml:"priority"`
	Middlewares []string `yaml:"middlewares"`
	EntryPoints []string `yaml:"entryPoints"`
}

type middleware struct {
	RateLimit   *rateLimit   `yaml:"rateLimit"`
	InFlightReq *inFlightReq `yaml:"inFlightReq"`
	Chain       *struct {
		Middlewares []string `yaml:"middlewares"`
	} `yaml:"chain"`
}

type rateLimit struct {
	Average         int64      `yaml:"average"`
	Period          any        `yaml:"period"` // a number of seconds, or a duration
	Burst           *int64     `yaml:"burst"`
	SourceCriterion *criterion `yaml:"sourceCriterion"`
}

type inFlightReq struct {
	Amount          int64      `yaml:"amount"`
	SourceCriterion *criterion `yaml:"sourceCriterion"`
}

type criterion struct {
	IPStrategy *struct {
		Depth       int      `yaml:"depth"`
		ExcludedIPs []string `yaml:"excludedIPs"`
		IPv6Subnet  *int     `yaml:"ipv6Subnet"`
	} `yaml:"ipStrategy"`
	RequestHeaderName string `yaml:"requestHeaderName"`
	RequestHost       bool   `yaml:"requestHost"`
}

// read decodes a file: TOML if its name ends so, otherwise YAML.
func read(name string, text []byte) (*document, error) {
	if len(text) > MaxBytes {
		return nil, fmt.Errorf("is larger than %d bytes", MaxBytes)
	}
	if strings.HasSuffix(name, ".toml") {
		var any map[string]any
		if err := toml.Unmarshal(text, &any); err != nil {
			return nil, err
		}
		var err error
		if text, err = yaml.Marshal(any); err != nil {
			return nil, err
		}
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	doc := &document{}
	if err := d.Decode(doc); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, errors.New("is empty")
		}
		return nil, errors.New(strings.ReplaceAll(err.Error(), "\n  ", " "))
	}
	if err := d.Decode(&document{}); !errors.Is(err, io.EOF) {
		return nil, errors.New("holds more than one document; import them one by one")
	}
	return doc, nil
}

func (r *rateLimit) period() (time.Duration, error) {
	switch p := r.Period.(type) {
	case nil:
		return time.Second, nil
	case int:
		return time.Duration(p) * time.Second, nil
	case string:
		d, err := time.ParseDuration(p)
		if err != nil || d <= 0 {
			return 0, fmt.Errorf("period: must be a duration such as 1m (got %q)", p)
		}
		return d, nil
	}
	return 0, fmt.Errorf("period: must be a duration such as 1m (got %v)", r.Period)
}

func (r *rateLimit) burst() int64 {
	if r.Burst == nil {
		return 1
	}
	return max(1, *r.Burst)
}

// limits returns the middlewares of a router that limit, by name, with those of its chains.
func (d *document) limits(names []string, depth int, unknown func(string)) (list []string) {
	const deepest = 8
	for _, name := range names {
		name, _, _ = strings.Cut(name, "@")
		m, ok := d.HTTP.Middlewares[name]
		switch {
		case !ok:
			unknown(name)
		case m.Chain != nil && depth < deepest:
			list = append(list, d.limits(m.Chain.Middlewares, depth+1, unknown)...)
		case (m.RateLimit != nil || m.InFlightReq != nil) && !slices.Contains(list, name):
			list = append(list, name)
		}
	}
	return list
}
