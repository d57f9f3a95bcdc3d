// Command reference writes docs/reference from what the programs know: regionctl's commands, the
// types of documents and of an edge's configuration with their comments, the metrics, the alert rules, and the packages.
// It also copies the rules into the chart.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/weir-edge/weir/internal/ctl"
	"github.com/weir-edge/weir/internal/policy"
	"github.com/weir-edge/weir/pkg/limiter/rules"
	"github.com/weir-edge/weir/pkg/region"
)

const (
	folder      = "docs/reference"
	runbookPage = "docs/RUNBOOKS.md"
	alertRules  = "dashboards/rules/alerts.yaml"
	chartFiles  = "deploy/chart/files"
)

func main() {
	root := flag.String("root", "..", "the `FOLDER` of the repository")
	flag.Parse()
	if err := write(*root); err != nil {
		fmt.Fprintln(os.Stderr, "reference:", err)
		os.Exit(1)
	}
}

func write(root string) error {
	all, err := pages(root)
	if err != nil {
		return err
	}
	for name, text := range all {
		if err := os.WriteFile(filepath.Join(root, folder, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	text, err := runbooks(root)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(root, runbookPage), []byte(text), 0o644); err != nil {
		return err
	}
	copies, err := chartRules(root)
	for name, text := range copies {
		err = errors.Join(err, os.WriteFile(filepath.Join(root, chartFiles, name), []byte(text), 0o644))
	}
	return err
}

// chartRules returns the chart's copies of rules and alerts by their names. Flux drops symbolic links.
func chartRules(root string) (map[string]string, error) {
	copies := map[string]string{}
	for _, name := range []string{"alerts.yaml", "recording.yaml"} {
		text, err := os.ReadFile(filepath.Join(root, filepath.Dir(alertRules), name))
		if err != nil {
			return nil, err
		}
		copies[name] = "# Copied from dashboards/rules by make reference; do not edit.\n" + string(text)
	}
	return copies, nil
}

// pages returns the text of each page by its name.
func pages(root string) (map[string]string, error) {
	commands := ctl.Commands()
	topology, _, err := commands.Find([]string{"topology"})
	if err != nil {
		return nil, err
	}
	sample, err := os.ReadFile(filepath.Join(root, "internal/edge/config/sample-rules.yaml"))
	if err != nil {
		return nil, err
	}
	all := map[string]string{"regionctl.md": commandPage(commands)}
	for _, d := range []struct {
		name, title, intro, example string
		defaults                    any
	}{
		{"fleet.md", "The fleet file", "It names the regions and how to reach each one's Consul. `regionctl --fleet FILE` reads it, or `WEIR_FLEET` names it.\n" +
			"File names in it are relative to it. [OPERATIONS](../OPERATIONS.md#the-first-hour-with-consul) shows how to begin.",
			example(commands.Long, "regions:"), region.Fleet{}},
		{"rules.md", "Rules", "They say what is limited. [RULES](../RULES.md) explains them;\n" +
			"[`regionctl rules apply`](regionctl.md#regionctl-rules-apply) publishes them.",
			string(sample), rules.Document{}},
		{"topology.md", "The topology", "It lists all regions with their PoPs, to which [DNS](../DNS.md) sends clients.\n" +
			"[`regionctl topology apply`](regionctl.md#regionctl-topology-apply) publishes it.",
			example(topology.Long, "zone:"), region.Topology{}},
		{"policy.md", "The behavior policy", "It weighs what clients do. [BEHAVIOR](../BEHAVIOR.md) explains it;\n" +
			"[`regionctl policy apply`](regionctl.md#regionctl-policy-apply) publishes it. The example is the shipped policy.",
			policy.Example, *policy.Defaults()},
	} {
		f := fields{root: root, tag: "yaml", leaf: reflect.TypeFor[rules.Experiment](), comments: map[string]string{}}
		if err := f.add(reflect.ValueOf(d.defaults), ""); err != nil {
			return nil, err
		}
		all[d.name] = begin(d.title, reflect.TypeOf(d.defaults).PkgPath()) + d.intro + "\n\n## Fields\n\n" +
			"`[]` stands for each item of a list.\n\n| field | value | default | meaning |\n|---|---|---|---|\n" + f.rows.String() +
			"\n## Example\n\n" + code("yaml", d.example)
	}
	if all["admin.md"], err = adminPage(root); err != nil {
		return nil, err
	}
	if all["configuration.md"], err = configurationPage(root); err != nil {
		return nil, err
	}
	if all["metrics.md"], err = metricPage(root); err != nil {
		return nil, err
	}
	if all["packages.md"], err = packagePage(root); err != nil {
		return nil, err
	}
	all["alerts.md"], err = alertPage(root)
	return all, err
}

func begin(title, source string) string {
	source = strings.TrimPrefix(source, "github.com/weir-edge/weir/")
	return "<!-- Generated from " + source + " by make reference; do not edit. -->\n\n# " + title + "\n\n"
}

func code(language, text string) string {
	return "```" + language + "\n" + strings.Trim(text, "\n") + "\n```\n"
}

// escape prevents Markdown in text.
var escape = strings.NewReplacer(`\`, `\\`, "*", `\*`, "_", `\_`, "<", `\<`, "[", `\[`, "`", "\\`", "|", `\|`).Replace

func commandPage(root *cobra.Command) string {
	var b strings.Builder
	b.WriteString(begin("regionctl", "internal/ctl"))
	describe(&b, root)
	return b.String()
}

// describe writes a command and those below it.
func describe(b *strings.Builder, c *cobra.Command) {
	if c.HasParent() {
		fmt.Fprintf(b, "\n## %s\n\n", c.CommandPath())
	}
	if !c.HasSubCommands() {
		b.WriteString(code("", c.UseLine()) + "\n")
	}
	b.WriteString(help(c.Long))
	if c.Example != "" {
		b.WriteString("\n" + code("sh", dedent(c.Example)))
	}
	if flags := c.NonInheritedFlags().FlagUsages(); flags != "" {
		b.WriteString("\n" + code("", dedent(flags)))
	}
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			describe(b, sub)
		}
	}
}

var indented = regexp.MustCompile(`(?m)^  .*\n(?:\n*  .*\n)*`)

// help makes Markdown of a text for terminals: what is indented becomes code.
func help(text string) string {
	text += "\n"
	b, at := "", 0
	for _, m := range indented.FindAllStringIndex(text, -1) {
		b += strings.Trim(escape(text[at:m[0]]), "\n") + "\n\n" + code("", dedent(text[m[0]:m[1]])) + "\n"
		at = m[1]
	}
	return strings.TrimSpace(b+strings.TrimLeft(escape(text[at:]), "\n")) + "\n"
}

func dedent(text string) string {
	return regexp.MustCompile(`(?m)^  `).ReplaceAllString(strings.Trim(text, "\n"), "")
}

// example returns the indented block of a help text that begins with start.
func example(text, start string) string {
	_, block, _ := strings.Cut(text, "\n\n  "+start)
	block, _, _ = strings.Cut(block, "\n\n")
	return dedent("  " + start + block)
}

type alert struct {
	Alert, Expr, For    string
	Labels, Annotations map[string]string
}

type alertGroup struct {
	Name  string
	Rules []alert
}

func alertGroups(root string) ([]alertGroup, error) {
	data, err := os.ReadFile(filepath.Join(root, alertRules))
	if err != nil {
		return nil, err
	}
	var doc struct{ Groups []alertGroup }
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return nil, fmt.Errorf("%s: %w", alertRules, err)
	}
	return doc.Groups, nil
}

// alertPage lists the alerts.
func alertPage(root string) (string, error) {
	groups, err := alertGroups(root)
	if err != nil {
		return "", err
	}
	b := begin("Alerts", alertRules) + "Critical alerts page; warnings wait until morning. Words in capitals are labels of the alert, VALUE is that of its\n" +
		"expression. [Metrics](metrics.md) describes the metrics, [recording.yaml](../../dashboards/rules/recording.yaml) those with a colon.\n"
	for _, g := range groups {
		b += "\n## " + g.Name + "\n"
		for _, a := range g.Rules {
			b += fmt.Sprintf("\n### %s\n\n%s ([runbook](../RUNBOOKS.md#%s)).\n\n%s", a.Alert, a.says(), strings.ToLower(a.Alert), code("promql", a.Expr))
		}
	}
	return b, nil
}

// says returns how urgent the alert is, after what time it fires, and its summary.
func (a *alert) says() string {
	when := map[string]string{"critical": "Critical", "warning": "Warning"}[a.Labels["severity"]]
	if a.For != "" {
		when += " after " + a.For
	}
	return when + ": " + escape(filled(a.Annotations["summary"]))
}

// runbooks returns the page of runbooks, whose sections begin with what their alerts say.
func runbooks(root string) (string, error) {
	groups, err := alertGroups(root)
	if err != nil {
		return "", err
	}
	data, err := os.ReadFile(filepath.Join(root, runbookPage))
	if err != nil {
		return "", err
	}
	text := string(data)
	for _, g := range groups {
		for _, a := range g.Rules {
			begins, ends := "\n### "+a.Alert+"\n\n<!-- make reference -->\n", "\n<!-- end -->\n"
			before, after, found := strings.Cut(text, begins)
			_, after, ended := strings.Cut(after, ends)
			if !found || !ended {
				return "", fmt.Errorf("%s: the section of %s must begin with %q and %q", runbookPage, a.Alert, "<!-- make reference -->", "<!-- end -->")
			}
			text = before + begins + a.says() + "." + ends + after
		}
	}
	return text, nil
}

// filled replaces the template's values by words in capitals.
func filled(text string) string {
	text = regexp.MustCompile(`{{ with \$labels\.(\w+) }}(.*?){{ \. }}{{ end }}`).ReplaceAllString(text, "$2{{ $$labels.$1 }}")
	text = regexp.MustCompile(`{{ \$value.*?}}`).ReplaceAllString(text, "VALUE")
	return regexp.MustCompile(`{{ \$labels\.(\w+) }}`).ReplaceAllStringFunc(text, func(s string) string {
		return strings.ToUpper(strings.Trim(strings.TrimPrefix(s, "{{ $labels."), " }"))
	})
}
