package ctl

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/internal/shedding"
	"github.com/weir-edge/weir/pkg/region"
)

const shedderHelp = `Change and show the settings of the load shedder, while the edges run.

They live in Consul as the rules do: each region keeps every version that was ever in
force, and one pointer to the one that is, which all edges of the region follow within
a second. A version is named by the first twelve digits of its SHA-256.

Settings may be put in force for a time. What was in force before returns by itself
when that is over: each edge keeps the time, so nobody needs to be there, and neither
does Consul. Where nothing was ever published, edges have what their configuration says.`

// shedderKind are the settings of the shedder.
var shedderKind = &kind{
	name: "shedder", what: "shedder settings", put: "set", did: "set", path: "/v1/shedder", longest: shedding.MaxBytes, temporary: true,
	look: "regionctl shedder show --live", watch: "regionctl shedder show --live",
	parse: func(data []byte) (body, error) {
		d, err := shedding.Parse(data)
		if err != nil {
			return nil, err
		}
		return &settings{d}, nil
	},
	registered: func(n region.Node) (version, refused string) { return n.ShedderVersion, n.ShedderRefused },
}

const shedderHistoryHelp = `Shows who put which version in force, when, until when, instead of which, and why; the
newest first. A change of several regions at once is one line. * marks what is in force
now. Versions that were in force for a time return by no rollback without --to.

The versions stay in Consul, so any of them can be looked at with regionctl shedder show
and brought back with regionctl shedder rollback --to VERSION.`

const shedderHistoryExamples = `  regionctl shedder history
  regionctl shedder history --region eu-west -n 0
  regionctl shedder history -o json | jq -r '.[] | select(.expires_at) | .version'`

const shedderRollbackHelp = `Ends what is in force for a time, so that what was in force before returns at once.
Otherwise puts the version in force again that the present one replaced, or that of
--to. It is applied like any other document, in the same steps and with the same exit
status.

If only some of the regions have something in force for a time, or if they would go back
to different versions, nothing is changed, and --to or --region must say what is meant.`

const shedderRollbackExamples = `  regionctl shedder rollback
  regionctl shedder rollback --to 3f2a0c1b9d4e --yes
  regionctl shedder rollback --region us-east`

func (p *program) shedderCommand() *cobra.Command {
	c := group("shedder", "tune the load shedder", shedderHelp)
	c.AddCommand(
		p.showSettingsCommand(), p.setCommand(),
		p.historyCommand(shedderKind, shedderHistoryHelp, shedderHistoryExamples),
		p.rollbackCommand(shedderKind, shedderRollbackHelp, shedderRollbackExamples),
	)
	return c
}

// settings are what a document of the shedder says.
type settings struct{ *shedding.Document }

// settingsChanges are the fields that change.
type settingsChanges struct {
	Fields    []fieldChange `json:"fields"`
	Unchanged int           `json:"unchanged"`
	// FromDefaults: nothing was published, so this is what differs from the built-in
	// defaults; what the edges' configuration says is not known here.
	FromDefaults bool `json:"from_defaults,omitempty"`
}

func (s *settings) compare(running body) changes {
	before, published := running.(*settings)
	if !published {
		before = &settings{shedding.Defaults()}
	}
	now := s.fields()
	changed := changedFields(before.fields(), now)
	added := 0
	for _, f := range changed {
		if f.New != none {
			added++
		}
	}
	return &settingsChanges{append([]fieldChange{}, changed...), len(now) - added, !published}
}

func (c *settingsChanges) write(b *bytes.Buffer, s style, most int) {
	if c.FromDefaults {
		b.WriteString("  compared with the built-in defaults:\n")
	}
	if len(c.Fields) == 0 {
		b.WriteString("  no setting differs\n")
		return
	}
	for i, f := range c.Fields {
		if most > 0 && i == most {
			fmt.Fprintf(b, "  … and %s\n", plural(len(c.Fields)-most, "more change"))
			break
		}
		fmt.Fprintf(b, "  %s: %s → %s\n", printable(f.Field), s.red(printable(f.Old)), s.green(printable(f.New)))
	}
	fmt.Fprintf(b, "  %d changed, %d as before\n", len(c.Fields), c.Unchanged)
}

// fields are all settings by their paths, in the order of the reference.
func (s *settings) fields() []fieldValue {
	text, err := json.Marshal(s.Document)
	if err != nil {
		panic(err) // a document consists of what JSON can say
	}
	var list []fieldValue
	flatten("", text, &list)
	return list
}

// flatten adds what a JSON value holds to list. Objects in an array go by their names.
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
		// The names are in the paths already.
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
