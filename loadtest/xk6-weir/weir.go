// Package weir is the k6 extension k6/x/weir: a client of virtual regions, key
// generators, and an oracle that judges the limiter's answers.
package weir

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/grafana/sobek"
	"go.k6.io/k6/js/common"
	"go.k6.io/k6/js/modules"
	"go.k6.io/k6/metrics"

	"github.com/weir-edge/weir/loadtest/xk6-weir/keys"
	"github.com/weir-edge/weir/loadtest/xk6-weir/oracle"
)

func init() { modules.Register("k6/x/weir", New()) }

// Root is shared by all VUs of the process: the oracle and the replayed logs.
type Root struct {
	mu       sync.Mutex
	oracle   *oracle.Oracle
	options  string // as the first VU stated them
	declared map[string]declared
	costs    map[string]int64 // of the rules in their current form
	exempt   map[string]*exemption
	seen     map[[2]string]bool // region and rule with a sample
	logs     map[[sha256.Size]byte]*keys.Log
	phase    string
	began    time.Time
	unsent   []oracle.Verdict // of interrupted VUs
}

// New returns the extension.
func New() *Root {
	return &Root{declared: map[string]declared{}, costs: map[string]int64{}, exempt: map[string]*exemption{}, seen: map[[2]string]bool{}, logs: map[[sha256.Size]byte]*keys.Log{}}
}

// Module is one VU's instance.
type Module struct {
	vu      modules.VU
	root    *Root
	metrics *ownMetrics
}

var (
	_ modules.Module   = (*Root)(nil)
	_ modules.Instance = (*Module)(nil)
)

// ownMetrics are the metrics of this extension.
type ownMetrics struct {
	overadmitted, wronglyRefused, retryAfterError *metrics.Metric
	dnsDuration, connectErrors                    *metrics.Metric
}

// NewModuleInstance is called by k6 for each VU, in its init context.
func (r *Root) NewModuleInstance(vu modules.VU) modules.Instance {
	m := &Module{vu: vu, root: r}
	var err error
	if m.metrics, err = register(vu.InitEnv().Registry); err != nil {
		common.Throw(vu.Runtime(), err)
	}
	return m
}

func register(registry *metrics.Registry) (*ownMetrics, error) {
	var errs []error
	add := func(name string, kind metrics.MetricType, unit ...metrics.ValueType) *metrics.Metric {
		m, err := registry.NewMetric(name, kind, unit...)
		errs = append(errs, err)
		return m
	}
	m := &ownMetrics{
		overadmitted:    add("weir_overadmitted", metrics.Counter),
		wronglyRefused:  add("weir_wrongly_refused", metrics.Counter),
		retryAfterError: add("weir_retry_after_error", metrics.Trend, metrics.Time),
		dnsDuration:     add("weir_dns_duration", metrics.Trend, metrics.Time),
		connectErrors:   add("weir_connect_errors", metrics.Counter),
	}
	return m, errors.Join(errs...)
}

// Exports returns what a script imports.
func (m *Module) Exports() modules.Exports {
	named := map[string]any{
		"Client":        m.construct(func(options sobek.Value) (any, error) { return newClient(m, options) }),
		"Keys":          m.construct(func(options sobek.Value) (any, error) { return newKeys(m, options) }),
		"Behavior":      m.construct(func(options sobek.Value) (any, error) { return newBehavior(options) }),
		"behaviorKinds": kinds,
		"oracle":        m.oracle,
	}
	return modules.Exports{Default: named, Named: named}
}

// construct makes a constructor of one argument.
func (m *Module) construct(f func(sobek.Value) (any, error)) func(sobek.ConstructorCall) *sobek.Object {
	return func(call sobek.ConstructorCall) *sobek.Object {
		rt := m.vu.Runtime()
		made, err := f(call.Argument(0))
		if err != nil {
			common.Throw(rt, err)
		}
		return rt.ToValue(made).ToObject(rt)
	}
}

// decode reads a script's options, and refuses unknown fields.
func decode(v sobek.Value, what string, into any) error {
	if common.IsNullish(v) {
		return nil
	}
	text, err := json.Marshal(v.Export())
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	whole := strictly(text, into)
	if whole == nil {
		return nil
	}
	// Not every error names its field.
	var fields map[string]json.RawMessage
	_ = json.Unmarshal(text, &fields)
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		alone := fmt.Appendf(nil, "{%q:%s}", name, fields[name])
		if err := strictly(alone, reflect.New(reflect.TypeOf(into).Elem()).Interface()); err != nil {
			return fmt.Errorf("%s: %s: %w", what, name, err)
		}
	}
	return fmt.Errorf("%s: %w", what, whole)
}

func strictly(text []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	return d.Decode(into)
}

// duration is a number with a unit: "250ms", "10s", "1h30m".
type duration time.Duration

func (d *duration) UnmarshalJSON(b []byte) error {
	if string(b) == "null" { // undefined: as if it were missing
		return nil
	}
	var text string
	_ = json.Unmarshal(b, &text)
	v, err := time.ParseDuration(text)
	if err != nil || v < 0 {
		return fmt.Errorf("a duration is text with a unit, such as \"10s\", and not negative (got %s)", b)
	}
	*d = duration(v)
	return nil
}

// emit sends one sample with the VU's tags and the given ones. It returns false if the VU
// has ended.
func (m *Module) emit(metric *metrics.Metric, value float64, tags map[string]string, metadata map[string]string) bool {
	state := m.vu.State()
	if state == nil {
		return false
	}
	ctm := state.Tags.GetCurrentValues()
	for name, v := range tags {
		if v != "" {
			ctm.SetTag(name, v)
		}
	}
	for name, v := range metadata {
		ctm.SetMetadata(name, v)
	}
	return metrics.PushIfNotDone(m.vu.Context(), state.Samples, metrics.Sample{
		TimeSeries: metrics.TimeSeries{Metric: metric, Tags: ctm.Tags},
		Time:       time.Now(), Metadata: ctm.Metadata, Value: value,
	})
}

// since is how long the load has been running.
func (r *Root) since() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.began.IsZero() {
		r.began = time.Now()
	}
	return time.Since(r.began)
}
