package shedding

import (
	"cmp"
	"strings"
	"time"

	"github.com/weir-edge/weir/pkg/field"
	"github.com/weir-edge/weir/pkg/limiter/rules"
	"github.com/weir-edge/weir/pkg/region/consul"
	"github.com/weir-edge/weir/pkg/shedder"
)

// form describes valid documents.
var form = field.Form{MaxBytes: MaxBytes, Empty: "write {} for the defaults", Exponents: true}

// Parse reads a YAML or JSON document of at most MaxBytes. Absent fields are as in Defaults.
// The error is field.Errors: every fault, with the path of its field and a remedy.
func Parse(data []byte) (*Document, error) {
	root, err := field.Read(data, &form)
	if err != nil {
		return nil, err
	}
	d, faults := decode(root)
	if faults != nil {
		return nil, faults
	}
	d.Version = consul.NewPointer(data, "", time.Time{}).Version
	return d, nil
}

func decode(root *field.Node) (*Document, field.Errors) {
	d := Defaults()
	faults := root.Decode(d, &form)
	if faults == nil { // avoids reporting unreadable values twice
		faults = d.Check()
	}
	if faults != nil {
		return nil, root.Locate(faults)
	}
	return d, nil
}

// word reports whether a name can be a metric label: of a signal, class, group or candidate.
func word(name string) bool {
	return name != "" && len(name) <= 64 && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_-") == ""
}

func (t *Duration) UnmarshalField(d *field.Decoder, n *field.Node) { d.Decode(n, (*time.Duration)(t)) }

// UnmarshalField merges knees: signals that are not named keep theirs.
func (s *Signals) UnmarshalField(d *field.Decoder, n *field.Node) {
	if *s == nil {
		*s = Signals{}
	}
	d.Each(n, func(name string, value *field.Node) {
		if !word(name) || strings.Contains(name, "-") {
			d.Fault("must have a name of 1 to 64 characters of a-z, 0-9 and _")
			return
		}
		k := (*s)[name]
		k.read(d, value, name)
		(*s)[name] = k
	})
}

func (k *Knees) read(d *field.Decoder, n *field.Node, signal string) {
	switch {
	case n.Kind == field.Null || n.Kind == field.Text && n.Text == off:
		*k = Knees{Off: true}
	case n.Kind != field.Map:
		d.Fault("must be {low: …, high: …}, or off (got %s)", n)
	default:
		k.Off = false
		d.Each(n, func(name string, value *field.Node) {
			switch name {
			case "low":
				k.Low = readKnee(d, value, signal)
			case "high":
				k.High = readHigh(d, value, signal, k.High)
			default:
				d.Unknown(name, "low", "high")
			}
		})
	}
}

// auto marks an estimated knee.
const auto = "auto"

// readHigh reads a knee, auto, or the bounds of an estimate. below is the knee that it
// replaces, and the default of Max.
func readHigh(d *field.Decoder, n *field.Node, signal string, below *Knee) *Knee {
	isAuto := n.Kind == field.Text && n.Text == auto
	if !isAuto && n.Kind != field.Map {
		return readKnee(d, n, signal)
	}
	if signal != shedder.SignalInFlight {
		d.Fault("can be estimated only for %s; write a value (got %s)", shedder.SignalInFlight, n)
		return below
	}
	k := &Knee{Auto: &Bounds{}}
	if !isAuto {
		d.Each(n, func(name string, value *field.Node) {
			bound := &k.Auto.Min
			switch name {
			case "min":
			case "max":
				bound = &k.Auto.Max
			default:
				d.Unknown(name, "min", "max")
				return
			}
			if d.Decode(value, bound); !(*bound >= 1) {
				d.Fault("must be at least 1 (got %s)", value)
			}
		})
	}
	if b := k.Auto; below != nil {
		if b.Max == 0 {
			if b.Max = below.Value; below.Auto != nil {
				b.Max = below.Auto.Max
			}
		}
		b.Min = cmp.Or(b.Min, min(leastKnee, b.Max))
	}
	return k
}

// readKnee reads a duration for a timed signal, a number for any other built-in one, and either
// for a signal measured elsewhere.
func readKnee(d *field.Decoder, n *field.Node, signal string) *Knee {
	_, measured := shedder.Defaults().Signals[signal]
	if timed[signal] || !measured && n.Kind == field.Text {
		var t time.Duration
		d.Decode(n, &t)
		return &Knee{Value: t.Seconds(), IsTime: true}
	}
	k := &Knee{}
	d.Decode(n, &k.Value)
	return k
}

// UnmarshalField implements field.Unmarshaler. An empty value means absent, which is how it is
// rendered.
func (o *Overrides) UnmarshalField(d *field.Decoder, n *field.Node) {
	all := Overrides{}
	d.Each(n, func(name string, value *field.Node) {
		if !word(name) || strings.Contains(name, "_") {
			d.Fault("must have a name of 1 to 64 characters of a-z, 0-9 and -")
			return
		}
		var own Override
		d.Decode(value, &own)
		if len(own.Signals) == 0 {
			own.Signals = nil
		}
		if len(own.MaxInFlight) == 0 {
			own.MaxInFlight = nil
		}
		all[name] = own
	})
	if *o = nil; len(all) > 0 {
		*o = all
	}
}

// Alternatives are conditions of which one must hold.
type Alternatives []rules.Conditions

func (a *Alternatives) UnmarshalField(d *field.Decoder, n *field.Node) {
	var list []rules.Conditions
	if d.Decode(n, &list); len(list) > 0 {
		*a = list
	}
}
