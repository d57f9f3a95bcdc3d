package field

import (
	"fmt"
	"math"
	"net/netip"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// MaxFaults bounds the faults of a document: more than anyone repairs at a time.
const MaxFaults = 1_000

// Load reads a document into the struct that v points to, which holds the defaults. It
// reports all faults of form, each with its line. The returned tree locates the lines of
// faults found later.
//
// Fields are named by their yaml tags; "inline" adds the fields of a struct to the map
// around it. The tag required:"remedy" marks a required field, as:"duration" a string that
// holds a duration, and as:"number" a string that may also be a number.
func Load(data []byte, v any, form *Form) (*Node, Errors) {
	root, err := Read(data, form)
	if err != nil {
		return nil, All(err)
	}
	return root, root.Locate(root.Decode(v, form))
}

// Decode is Load for a tree.
func (n *Node) Decode(v any, form *Form) Errors {
	d := &Decoder{form: form, shapes: make(map[reflect.Type]*shape)}
	d.Decode(n, v)
	if d.more > 0 {
		d.faults.addRest(d.more)
	}
	return d.faults
}

// Unmarshaler is implemented by types with a form of their own in documents.
type Unmarshaler interface {
	// UnmarshalField reads n and reports faults to d.
	UnmarshalField(d *Decoder, n *Node)
}

// Decoder reads values and collects their faults.
type Decoder struct {
	form   *Form
	faults Errors
	more   int    // faults beyond MaxFaults
	path   []step // to the value being read
	shapes map[reflect.Type]*shape
}

// step leads to a member of a map or, without a name, to an item of a list.
type step struct {
	name  string
	index int
}

// Fault reports what is wrong with the value being read.
func (d *Decoder) Fault(format string, args ...any) {
	if len(d.faults) == MaxFaults {
		d.more++
		return
	}
	path := ""
	for _, s := range d.path {
		if s.index >= 0 {
			path = Index(path, s.index)
		} else {
			path = Join(path, Name(s.name))
		}
	}
	d.faults.Add(path, format, args...)
}

// Decode reads n into the value that v points to.
func (d *Decoder) Decode(n *Node, v any) {
	to := reflect.ValueOf(v).Elem()
	d.value(n, to, d.shapeOf(to.Type()), "")
}

// Each reads the members of a map, in order. It reads only the first of a duplicate name.
func (d *Decoder) Each(n *Node, read func(name string, member *Node)) {
	if n.Kind != Map {
		d.Fault("must be a map (got %s)", n)
		return
	}
	seen := make(map[string]bool, len(n.Items))
	for i, name := range n.Names {
		d.within(step{name, -1}, func() {
			if seen[name] {
				d.twice()
				return
			}
			seen[name] = true
			read(name, &n.Items[i])
		})
	}
}

func (d *Decoder) within(s step, read func()) {
	d.path = append(d.path, s)
	read()
	d.path = d.path[:len(d.path)-1]
}

func (d *Decoder) twice() { d.Fault("is written twice; keep one") }

// Unknown reports that the map member being read is not one of the known ones.
func (d *Decoder) Unknown(name string, known ...string) {
	d.Fault("unknown field%s", SuggestOr(name, known...))
}

// shape is how to read values of a type.
type shape struct {
	custom bool // it implements Unmarshaler
	fields []member
	elem   *shape
}

type member struct {
	name     string
	index    []int
	as       string
	required string // the remedy if it is absent
	shape    *shape
}

func (d *Decoder) shapeOf(t reflect.Type) *shape {
	s := d.shapes[t]
	if s != nil {
		return s
	}
	s = &shape{custom: reflect.PointerTo(t).Implements(reflect.TypeFor[Unmarshaler]())}
	d.shapes[t] = s
	switch {
	case s.custom:
	case t.Kind() == reflect.Struct:
		s.fields = d.members(t, nil)
	case t.Kind() == reflect.Pointer, t.Kind() == reflect.Slice, t.Kind() == reflect.Map:
		s.elem = d.shapeOf(t.Elem())
	}
	return s
}

func (d *Decoder) members(t reflect.Type, index []int) (list []member) {
	for i := range t.NumField() {
		f := t.Field(i)
		at := append(index[:len(index):len(index)], i)
		name, option, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		switch {
		case option == "inline":
			inner := f.Type
			if inner.Kind() == reflect.Pointer { // set by the caller
				inner = inner.Elem()
			}
			list = append(list, d.members(inner, at)...)
		case name != "" && name != "-":
			list = append(list, member{name, at, f.Tag.Get("as"), f.Tag.Get("required"), d.shapeOf(f.Type)})
		}
	}
	return list
}

var (
	durationType = reflect.TypeFor[time.Duration]()
	addrType     = reflect.TypeFor[netip.Addr]()
	prefixType   = reflect.TypeFor[netip.Prefix]()
)

func (d *Decoder) value(n *Node, v reflect.Value, s *shape, as string) {
	switch t := v.Type(); {
	case s.custom:
		v.Addr().Interface().(Unmarshaler).UnmarshalField(d, n)
		return
	case t == durationType:
		v.SetInt(int64(d.duration(n)))
		return
	case t == addrType || t == prefixType:
		d.address(n, v)
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		d.fields(n, v, s)
	case reflect.Pointer:
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		d.value(n, v.Elem(), s.elem, as)
	case reflect.Slice:
		d.list(n, v, s, as)
	case reflect.Map:
		d.table(n, v, s, as)
	case reflect.String:
		v.SetString(d.text(n, as))
	case reflect.Bool:
		if n.Kind != Bool {
			d.Fault("must be true or false (got %s)", n)
			return
		}
		v.SetBool(strings.EqualFold(n.Text, "true"))
	case reflect.Int, reflect.Int64:
		v.SetInt(d.integer(n))
	case reflect.Float64:
		v.SetFloat(d.float(n))
	default:
		panic(fmt.Sprintf("field: %s cannot be read", v.Type()))
	}
}

// fields reads a map with known names.
func (d *Decoder) fields(n *Node, v reflect.Value, s *shape) {
	if n.Kind != Map {
		d.Fault("must be a map of fields (got %s)", n)
		return
	}
	var few [32]bool // most structs are small
	seen := few[:]
	if len(s.fields) > len(few) {
		seen = make([]bool, len(s.fields))
	}
	for i, name := range n.Names {
		d.path = append(d.path, step{name, -1})
		if k := s.find(name); k < 0 {
			d.unknown(name, s, seen)
		} else if seen[k] {
			d.twice()
		} else {
			seen[k] = true
			d.field(&n.Items[i], v.FieldByIndex(s.fields[k].index), &s.fields[k])
		}
		d.path = d.path[:len(d.path)-1]
	}
	for k := range s.fields {
		if f := &s.fields[k]; f.required != "" && !seen[k] {
			d.within(step{f.name, -1}, func() { d.Fault("is required; %s", f.required) })
		}
	}
}

func (s *shape) find(name string) int {
	for k := range s.fields {
		if s.fields[k].name == name {
			return k
		}
	}
	return -1
}

// unknown reports an unknown field. In the document's top level, the field that was
// probably meant counts as seen: the remedy for its absence could be to write an empty one.
func (d *Decoder) unknown(name string, s *shape, seen []bool) {
	if d.form.Later {
		return
	}
	if len(d.faults) == MaxFaults { // finding the nearest name takes time
		d.more++
		return
	}
	names := make([]string, len(s.fields))
	for k := range s.fields {
		names[k] = s.fields[k].name
		seen[k] = seen[k] || len(d.path) == 1 && Suggest(name, names[k]) != ""
	}
	d.Unknown(name, names...)
}

func (d *Decoder) field(n *Node, v reflect.Value, f *member) {
	switch {
	case n.Kind != Null:
		d.value(n, v, f.shape, f.as)
	case f.required != "":
		d.Fault("has no value; %s", f.required)
	case !d.form.Lenient:
		d.Fault("has no value; give one, or remove the field")
	}
}

func (d *Decoder) list(n *Node, v reflect.Value, s *shape, as string) {
	if n.Kind != List {
		d.Fault("must be a list (got %s); put brackets around it", n)
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.Items), len(n.Items)))
	for i := range n.Items {
		d.path = append(d.path, step{index: i})
		d.value(&n.Items[i], v.Index(i), s.elem, as)
		d.path = d.path[:len(d.path)-1]
	}
}

// table reads a map with arbitrary names.
func (d *Decoder) table(n *Node, v reflect.Value, s *shape, as string) {
	if n.Kind == Map {
		v.Set(reflect.MakeMapWithSize(v.Type(), len(n.Items)))
	}
	d.Each(n, func(name string, item *Node) {
		value := reflect.New(v.Type().Elem()).Elem()
		d.value(item, value, s.elem, as)
		v.SetMapIndex(reflect.ValueOf(name).Convert(v.Type().Key()), value)
	})
}

func (d *Decoder) text(n *Node, as string) string {
	scalar := n.Kind == Number || n.Kind == Bool
	switch {
	case n.Kind == Number && as == "number":
		before := len(d.faults)
		if d.integer(n); len(d.faults) > before {
			return ""
		}
	case n.Kind == Number && as == "duration":
		d.unitless(n)
	case scalar && !d.form.Lenient:
		d.Fault("must be a string (got %s); put it in quotes", n)
	case !scalar && n.Kind != Text:
		d.Fault("must be a string (got %s)", n)
	case n.Text == "" && !d.form.Lenient:
		d.Fault("must not be empty; give a value, or remove it")
	}
	return n.Text
}

func (d *Decoder) unitless(n *Node) {
	d.Fault("must be a duration with a unit (got %s); write %ss for seconds", n, n.Text)
}

func (d *Decoder) duration(n *Node) time.Duration {
	v, err := time.ParseDuration(n.Text)
	switch {
	case n.Kind == Number && n.Text != "0":
		d.unitless(n)
	case n.Kind != Number && n.Kind != Text, err != nil:
		d.Fault("must be a duration such as 250ms, 10s or 1h30m (got %s)", n)
	}
	return v
}

// integer reads a whole number. It rejects 0100, which some YAML readers take for 64 and
// others for 100.
func (d *Decoder) integer(n *Node) (v int64) {
	digits := strings.TrimPrefix(n.Text, "-")
	decimal := digits != "" && strings.Trim(digits, "0123456789") == ""
	switch {
	case decimal && len(digits) > 18: // YAML treats such a number as a string
		d.Fault("is too large (got %s)", n.Text)
	case n.Kind == Text && decimal && !d.form.Lenient:
		d.Fault("must be a whole number (got %s); remove the quotes", n)
	case n.Kind != Number && !(n.Kind == Text && decimal):
		d.Fault("must be a whole number (got %s)", n)
	case !decimal || len(digits) > 1 && digits[0] == '0':
		f, err := strconv.ParseFloat(n.Text, 64)
		if d.form.Exponents && err == nil && jsonNumber(n.Text) && f == math.Trunc(f) && math.Abs(f) < 1<<53 {
			return int64(f)
		}
		d.Fault("must be a whole number in plain decimal digits (got %s)", n)
	default:
		v, _ = strconv.ParseInt(n.Text, 10, 64) // at most 18 digits
	}
	return v
}

// float reads a number in JSON notation.
func (d *Decoder) float(n *Node) float64 {
	v, err := strconv.ParseFloat(n.Text, 64)
	if n.Kind != Number || err != nil || !jsonNumber(n.Text) {
		d.Fault("must be a number such as 0.8 (got %s)", n)
	}
	return v
}

func (d *Decoder) address(n *Node, v reflect.Value) {
	if v.Type() == addrType {
		a, err := netip.ParseAddr(n.Text)
		if n.Kind != Text || err != nil {
			d.Fault("must be an IP address such as 203.0.113.10 (got %s)", n)
		}
		v.Set(reflect.ValueOf(a))
		return
	}
	p, err := netip.ParsePrefix(n.Text)
	if n.Kind != Text || err != nil {
		d.Fault("must be a network such as 198.51.100.0/24 (got %s)", n)
	}
	v.Set(reflect.ValueOf(p))
}
