package shedding

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"go.yaml.in/yaml/v3"
)

// Duration is rendered with units: 1m30s.
type Duration time.Duration

// String omits units that are zero: 1m, not 1m0s.
func (d Duration) String() string {
	text := time.Duration(d).String()
	for _, zero := range []string{"m0s", "h0m"} {
		if n := len(text) - len(zero); n > 0 && text[n:] == zero {
			text = text[:n+1]
		}
	}
	return text
}

func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(d.String()) }

func (d Duration) MarshalYAML() (any, error) { return d.String(), nil }

// written returns the knee's document form: a duration, a number, or the estimate's bounds.
func (k Knee) written() any {
	switch {
	case k.Auto != nil && *k.Auto == Bounds{}:
		return auto
	case k.Auto != nil:
		return *k.Auto
	case k.IsTime:
		return Duration(math.Round(k.Value * float64(time.Second))).String()
	case k.Value == math.Trunc(k.Value) && math.Abs(k.Value) < 1<<53:
		return int64(k.Value)
	}
	return k.Value
}

func (k Knee) MarshalJSON() ([]byte, error) { return json.Marshal(k.written()) }

func (k Knee) MarshalYAML() (any, error) { return k.written(), nil }

// off marks a signal that is not in use.
const off = "off"

type writtenKnees struct {
	Low  *Knee `json:"low,omitempty" yaml:"low,omitempty"`
	High *Knee `json:"high,omitempty" yaml:"high,omitempty"`
}

func (k Knees) written() any {
	if k.Off {
		return off
	}
	return writtenKnees{k.Low, k.High}
}

func (k Knees) MarshalJSON() ([]byte, error) { return json.Marshal(k.written()) }

func (k Knees) MarshalYAML() (any, error) { return k.written(), nil }

// YAML renders the document with every field, as Parse reads it.
func (d *Document) YAML() ([]byte, error) {
	var text bytes.Buffer
	enc := yaml.NewEncoder(&text)
	enc.SetIndent(2)
	if err := enc.Encode(d); err != nil {
		return nil, fmt.Errorf("write shedder settings: %w", err)
	}
	return text.Bytes(), nil
}
