package ctl

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/shedding"
	"github.com/weir-edge/weir/pkg/limiter/rules"
	"github.com/weir-edge/weir/pkg/region/consul"
)

const shedderHelp = `Change and show the settings of the load shedder, while the edges run.

They are stored in Consul like the rules: each region keeps the newest versions, and one
pointer to the active one, which all edges of the region follow within a second. A version
is named by the first twelve digits of its SHA-256.

Settings may be temporary. Each edge keeps the time itself and returns to the previous
settings automatically, even without Consul. Where nothing was ever published, edges use
their own configuration.`

// shedderKind describes the settings of the shedder.
var shedderKind = &fleet.Kind{
	Name: "shedder", Path: adminapi.PathShedder, Answer: func() fleet.NodeAnswer { return &adminapi.Shedder{} }, Longest: shedding.MaxBytes, Temporary: true,
	Parse: func(data []byte) (any, error) {
		d, err := shedding.Parse(data)
		if err != nil {
			return nil, err
		}
		return &settings{d}, nil
	},
	Registered: func(n consul.Node) (version, refused string) { return n.ShedderVersion, n.ShedderRefused },
	Schema:     rules.Schema, Reads: func(n consul.Node) int { return n.Schema }, Remedy: update,
	What: "shedder settings", Put: "set", Did: "set", Look: "regionctl shedder show --live", Watch: "regionctl shedder show --live",
}

const shedderHistoryHelp = `Shows who activated which version, when, until when, replacing which, and why; newest
first. A change of several regions at once is one line. * marks what is active now. regionctl
undo never returns to temporary versions.

regionctl shedder show prints any version that Consul still has, and regionctl shedder
rollback --to VERSION restores it; prune --help says which those are.`

const shedderHistoryExamples = `  regionctl shedder history
  regionctl shedder history --region eu-west -n 0
  regionctl shedder history -o json | jq -r '.[] | select(.expires_at) | .version'`

func (p *program) shedderCommand() *cobra.Command {
	c := group("shedder", "tune the load shedder", shedderHelp)
	c.AddCommand(
		p.validateSettingsCommand(), p.showSettingsCommand(), p.setCommand(),
		p.historyCommand(shedderKind, shedderHistoryHelp, shedderHistoryExamples),
		p.rollbackCommand(shedderKind, strings.ReplaceAll(rollbackHelp, "regionctl rules", "regionctl shedder"), strings.ReplaceAll(rollbackExamples, "regionctl rules", "regionctl shedder")),
		p.pruneCommand(shedderKind),
	)
	return c
}

// settings is the content of a document of the shedder.
type settings struct{ *shedding.Document }

func (s *settings) compare(running any) changes {
	before, published := running.(*settings)
	if !published {
		before = &settings{shedding.Defaults()}
	}
	c := compareFields(before.fields(), s.fields())
	if !published {
		c.from("the built-in defaults") // the edges' configuration is not known here
	}
	return c
}

// fields returns all settings by their paths, in the order of the reference.
func (s *settings) fields() []fieldValue {
	text, err := json.Marshal(s.Document)
	if err != nil {
		panic(err) // a document consists of what JSON can express
	}
	var list []fieldValue
	flatten("", text, &list)
	return list
}

// flatten adds the content of a JSON value to list. Objects in an array are identified by
// their names.
func flatten(path string, value json.RawMessage, list *[]fieldValue) {
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
				*list = append(*list, fieldValue{path, anyText(value)})
				return
			}
			names[i] = named.Name
		}
		*list = append(*list, fieldValue{path, "[" + strings.Join(names, ", ") + "]"})
		for i, m := range members {
			flatten(path+"."+names[i], m, list)
		}
		// The names are already in the paths.
		*list = slices.DeleteFunc(*list, func(f fieldValue) bool {
			return slices.ContainsFunc(names, func(name string) bool { return f.name == path+"."+name+".name" })
		})
		return
	}
	*list = append(*list, fieldValue{path, anyText(value)})
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
