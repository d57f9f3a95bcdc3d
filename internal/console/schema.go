package console

import (
	"encoding"
	"encoding/json"
	"reflect"
	"strings"
	"time"
)

// schemas describes Go types as JSON Schema, as encoding/json writes them.
type schemas struct{ named object }

var (
	timeType = reflect.TypeFor[time.Time]()
	rawType  = reflect.TypeFor[json.RawMessage]()
	textType = reflect.TypeFor[encoding.TextMarshaler]()
)

// of returns a type's schema. Named structs go into components.
func (s *schemas) of(t reflect.Type) object {
	switch {
	case t == timeType:
		return object{"type": "string", "format": "date-time"}
	case t == rawType:
		return object{}
	case t.Implements(textType), reflect.PointerTo(t).Implements(textType):
		return object{"type": "string"}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return orNull(s.of(t.Elem()))
	case reflect.String:
		return object{"type": "string"}
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Float32, reflect.Float64:
		return object{"type": "number"}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return object{"type": "integer"}
	case reflect.Slice, reflect.Array:
		list := object{"type": "array", "items": s.of(t.Elem())}
		if t.Kind() == reflect.Slice {
			return orNull(list)
		}
		return list
	case reflect.Map:
		return orNull(object{"type": "object", "additionalProperties": s.of(t.Elem())})
	case reflect.Struct:
		return s.structure(t)
	}
	return object{} // an interface accepts anything
}

func orNull(schema object) object {
	if len(schema) == 0 {
		return schema
	}
	return object{"anyOf": []object{schema, {"type": "null"}}}
}

func (s *schemas) structure(t reflect.Type) object {
	name := strings.NewReplacer("/", ".", "github.com.weir-edge.weir.", "").Replace(t.PkgPath())
	name = name[strings.LastIndex(name, ".")+1:] + "." + t.Name()
	ref := object{"$ref": "#/components/schemas/" + name}
	if t.Name() != "" {
		if s.named[name] != nil {
			return ref
		}
		s.named[name] = object{} // it may contain itself
	}
	properties, required := object{}, []string{}
	s.fields(t, false, properties, &required)
	schema := object{"type": "object", "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		schema["required"] = required
	}
	if t.Name() == "" {
		return schema
	}
	s.named[name] = schema
	return ref
}

// fields adds a struct's fields and those of embedded structs. An embedded pointer may be nil,
// so its fields are optional.
func (s *schemas) fields(t reflect.Type, optional bool, properties object, required *[]string) {
	for i := range t.NumField() {
		f := t.Field(i)
		tag, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		inner := f.Type
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		switch {
		case tag == "-":
			continue
		case f.Anonymous && tag == "" && inner.Kind() == reflect.Struct:
			s.fields(inner, optional || f.Type.Kind() == reflect.Pointer, properties, required)
			continue
		case !f.IsExported():
			continue
		case tag == "":
			tag = f.Name
		}
		if _, nearer := properties[tag]; nearer {
			continue
		}
		properties[tag] = s.of(f.Type)
		if !optional && !strings.Contains(options, "omit") {
			*required = append(*required, tag)
		}
	}
}
