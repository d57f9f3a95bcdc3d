package weir

import (
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/grafana/sobek"
	"go.k6.io/k6/js/common"

	"github.com/weir-edge/weir/loadtest/xk6-weir/keys"
)

type keysOptions struct {
	Kind     string   `json:"kind"`
	Seed     uint64   `json:"seed"`
	Stream   *uint64  `json:"stream"`
	N        int64    `json:"n"`
	Prefix   string   `json:"prefix"`
	CIDR     string   `json:"cidr"`
	Exponent *float64 `json:"exponent"`
	Start    duration `json:"start"`
	Ramp     duration `json:"ramp"`
	Hold     duration `json:"hold"`
	Decay    duration `json:"decay"`
	Hot      int64    `json:"hot"`
	Peak     float64  `json:"peak"`
	Surge    float64  `json:"surge"`
	Vary     string   `json:"vary"`
	Policy   string   `json:"policy"`
	Early    float64  `json:"early"`
	Base     duration `json:"base"`
	Max      duration `json:"max"`
	Day      duration `json:"day"`
	PeakHour *float64 `json:"peakHour"`
	Low      float64  `json:"low"`
	Bots     *float64 `json:"bots"`
	Log      string   `json:"log"`
	Speed    float64  `json:"speed"`
}

// Keys is a generator as a script sees it. It belongs to one VU.
type Keys struct {
	m      *Module
	config keys.Config
	own    bool // the script chose the stream
	g      keys.Generator
	early  bool // g was made in the init context, where no VU has a number
}

func newKeys(m *Module, v sobek.Value) (*Keys, error) {
	var o keysOptions
	if err := decode(v, "keys", &o); err != nil {
		return nil, err
	}
	k := &Keys{m: m, own: o.Stream != nil, config: keys.Config{
		Kind: o.Kind, Seed: o.Seed, N: o.N, Prefix: o.Prefix, CIDR: o.CIDR,
		Start: time.Duration(o.Start), Ramp: time.Duration(o.Ramp), Hold: time.Duration(o.Hold), Decay: time.Duration(o.Decay),
		Hot: o.Hot, Peak: o.Peak, Surge: o.Surge, Vary: o.Vary, Policy: o.Policy, Early: o.Early,
		Base: time.Duration(o.Base), Max: time.Duration(o.Max), Day: time.Duration(o.Day), PeakHour: o.PeakHour, Low: o.Low,
		Bots: o.Bots, Speed: o.Speed,
	}}
	if o.Exponent != nil {
		k.config.Exponent = *o.Exponent
	}
	if k.own {
		k.config.Stream = *o.Stream
	}
	if o.Kind == "replay" {
		var err error
		if k.config.Log, err = m.log(o.Log); err != nil {
			return nil, fmt.Errorf("keys: %w", err)
		}
	}
	if _, err := keys.New(k.config); err != nil { // a mistake must show in the init context
		return nil, fmt.Errorf("keys: %w", err)
	}
	return k, nil
}

// log parses a log once for all VUs.
func (m *Module) log(text string) (*keys.Log, error) {
	r, id := m.root, sha256.Sum256([]byte(text))
	r.mu.Lock()
	defer r.mu.Unlock()
	if l := r.logs[id]; l != nil {
		return l, nil
	}
	l, err := keys.ParseLog(text)
	if err != nil {
		return nil, err
	}
	r.logs[id] = l
	if l.Skipped > 0 {
		m.vu.InitEnv().Logger.Warnf("replay: %d lines of the log could not be read, %d could", l.Skipped, len(l.Entries))
	}
	return l, nil
}

// generator returns the generator, made at first use: the VU's number, the default
// stream, is unknown in the init context. One used there is made again.
func (k *Keys) generator() keys.Generator {
	state := k.m.vu.State()
	if k.g == nil || (k.early && state != nil && !k.own) {
		if k.early = state == nil; !k.early && !k.own {
			k.config.Stream = state.VUIDGlobal
		}
		g, err := keys.New(k.config)
		if err != nil {
			common.Throw(k.m.vu.Runtime(), err)
		}
		k.g = g
	}
	return k.g
}

// at returns the time that a script gives in seconds, or how long the load has been
// running.
func (k *Keys) at(v sobek.Value) time.Duration {
	if common.IsNullish(v) {
		return k.m.root.since()
	}
	return time.Duration(v.ToFloat() * float64(time.Second))
}

// Next returns the next request.
func (k *Keys) Next(at sobek.Value) map[string]any {
	r := k.generator().Next(k.at(at))
	return map[string]any{
		"key": r.Key, "kind": r.Kind, "path": r.Path, "method": r.Method, "wait": r.Wait.Seconds(), "done": r.Done,
	}
}

// Answered tells a retrying bot the outcome; other kinds ignore it.
func (k *Keys) Answered(status int, retryAfter float64) {
	if bot, ok := k.generator().(*keys.RetryingBot); ok {
		bot.Answered(status, time.Duration(retryAfter*float64(time.Second)))
	}
}

// Intensity is the traffic, as a multiple of the usual.
func (k *Keys) Intensity(at sobek.Value) float64 { return k.generator().Intensity(k.at(at)) }

// Stages returns the stages of an executor that ramps its rate with the intensity.
func (k *Keys) Stages(rate float64, length string, steps int) []map[string]any {
	d, err := time.ParseDuration(length)
	if err != nil {
		common.Throw(k.m.vu.Runtime(), fmt.Errorf("stages: %w", err))
	}
	g, err := keys.New(k.config)
	if err != nil {
		common.Throw(k.m.vu.Runtime(), err)
	}
	stages := []map[string]any{}
	for _, s := range keys.Stages(g, rate, d, steps) {
		stages = append(stages, map[string]any{"target": s.Target, "duration": s.Duration.String()})
	}
	return stages
}
