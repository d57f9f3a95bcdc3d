package main

import (
	"fmt"
	"reflect"
	"regexp"
	"strings"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/edge/admin"
	"github.com/weir-edge/weir/internal/edge/config"
	"github.com/weir-edge/weir/internal/shedding"
)

// configurationPage lists the fields of a node's configuration file.
func configurationPage(root string) (string, error) {
	defaults := config.Defaults()
	defaults.Node.ID = "" // this machine's name
	defaults.Shedder.Document = shedding.Defaults()
	f := fields{root: root, tag: "yaml", comments: map[string]string{}}
	if err := f.add(reflect.ValueOf(defaults), ""); err != nil {
		return "", err
	}
	return begin("Configuration fields", reflect.TypeFor[config.Config]().PkgPath()) +
		"All fields of an edge's configuration file. [CONFIG](../CONFIG.md) explains them and shows examples,\n" +
		"[SHEDDING](../SHEDDING.md) those of `shedder`. `[]` stands for each item of a list. Durations have units\n" +
		"(`250ms`, `1h30m`) and are over 0, integers are at least 1, unless a row says otherwise.\n" + sections(f.rows.String()), nil
}

var topLevel = regexp.MustCompile("^\\| `([a-z_]+)")

// sections makes a table of the rows of each field at the top of a file.
func sections(rows string) string {
	var b strings.Builder
	section := ""
	for row := range strings.Lines(rows) {
		if name := topLevel.FindStringSubmatch(row)[1]; name != section {
			section = name
			fmt.Fprintf(&b, "\n## %s\n\n| field | value | default | meaning |\n|---|---|---|---|\n", name)
		}
		b.WriteString(row)
	}
	return b.String()
}

// adminPage lists the endpoints of a node's admin listener, and the fields of its answers.
func adminPage(root string) (string, error) {
	b := begin("Admin endpoints", "internal/edge/admin") +
		"What the admin listener of a node answers. [CONFIG](../CONFIG.md#admin-endpoints) has credentials, limits and examples.\n\n" +
		code("", admin.Endpoints)
	for _, answer := range []struct {
		title, text string
		fields      any
	}{
		{"Readiness", "Fields of `/readyz` that have nothing to report are left out.", adminapi.Readiness{}},
		{"Rules", "Fields of `/v1/rules`:", adminapi.Rules{}},
		{"Shedder", "Fields of `/v1/shedder`:", adminapi.Shedder{}},
	} {
		f := fields{root: root, tag: "json", flat: true, comments: map[string]string{}}
		if err := f.add(reflect.ValueOf(answer.fields), ""); err != nil {
			return "", err
		}
		b += fmt.Sprintf("\n## %s\n\n%s\n\n| field | meaning |\n|---|---|\n%s", answer.title, answer.text,
			valueAndDefault.ReplaceAllString(f.rows.String(), "$1| "))
	}
	return b, nil
}

// valueAndDefault are the columns that answers do without.
var valueAndDefault = regexp.MustCompile(`(?m)^(\| [^|]+ )\| [^|]*\| [^|]*\| `)
