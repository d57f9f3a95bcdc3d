package kinds

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/shedding"
	"github.com/weir-edge/weir/pkg/limiter/rules"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// Shedder describes the settings of the shedder.
var Shedder = &fleet.Kind{
	Name: "shedder", Path: adminapi.PathShedder, Answer: func() fleet.NodeAnswer { return &adminapi.Shedder{} }, Longest: shedding.MaxBytes, Temporary: true,
	Parse: func(data []byte) (any, error) {
		d, err := shedding.Parse(data)
		if err != nil {
			return nil, err
		}
		return &Settings{d}, nil
	},
	Registered: func(n consul.Node) (version, refused string) { return n.ShedderVersion, n.ShedderRefused },
	Schema:     rules.Schema, Reads: func(n consul.Node) int { return n.Schema }, Remedy: UpdateFirst,
	What: "shedder settings", Are: "are", Put: "set", Did: "set", Look: "regionctl shedder show --live", Watch: "regionctl shedder show --live",
}

// Settings is the content of a document of the shedder.
type Settings struct{ *shedding.Document }

func (s *Settings) Compare(running any) Changes {
	before, published := running.(*Settings)
	if !published {
		before = &Settings{shedding.Defaults()}
	}
	c := compareFields(before.Fields(), s.Fields())
	if !published {
		c.from("the built-in defaults") // the edges' configuration is not known here
	}
	return c
}

// Fields returns all settings by their paths, in the order of the reference.
func (s *Settings) Fields() []FieldValue {
	text, err := json.Marshal(s.Document)
	if err != nil {
		panic(err) // a document consists of what JSON can express
	}
	var list []FieldValue
	flatten("", text, &list)
	return list
}

// flatten adds the content of a JSON value to list. Objects in an array are identified by
// their names.
func flatten(path string, value json.RawMessage, list *[]FieldValue) {
	switch value[0] {
	case '{':
		dec := json.NewDecoder(bytes.NewReader(value))
		_, _ = dec.Token() // the brace; all this is well-formed
		for dec.More() {
			name, _ := dec.Token()
			var member json.RawMessage
			_ = dec.Decode(&member)
			flatten(strings.TrimPrefix(path+"."+fmt.Sprint(name), "."), member, list)
		}
		return
	case '[':
		var members []json.RawMessage
		_ = json.Unmarshal(value, &members)
		names := make([]string, len(members))
		for i, m := range members {
			var named struct{ Name string }
			if json.Unmarshal(m, &named) != nil || named.Name == "" {
				*list = append(*list, FieldValue{path, anyText(value)})
				return
			}
			names[i] = named.Name
		}
		*list = append(*list, FieldValue{path, "[" + strings.Join(names, ", ") + "]"})
		for i, m := range members {
			flatten(path+"."+names[i], m, list)
		}
		// The names are already in the paths.
		*list = slices.DeleteFunc(*list, func(f FieldValue) bool {
			return slices.ContainsFunc(names, func(name string) bool { return f.Name == path+"."+name+".name" })
		})
		return
	}
	*list = append(*list, FieldValue{path, anyText(value)})
}

// anyText writes a JSON value without the quotes of plain words.
func anyText(value json.RawMessage) string {
	var word string
	if json.Unmarshal(value, &word) == nil {
		return word
	}
	var words []string
	if json.Unmarshal(value, &words) == nil {
		return "[" + strings.Join(words, ", ") + "]"
	}
	return string(value)
}
