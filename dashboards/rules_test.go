package dashboards

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/weir-edge/weir/docs"
)

// rule is one recording or alert rule.
type rule struct {
	Record, Alert, Expr, For string
	Labels, Annotations      map[string]string
}

type group struct {
	Name  string
	Rules []rule
}

// groups are those of rules/recording.yaml, then those of rules/alerts.yaml.
func groups(t testing.TB) (list []group) {
	t.Helper()
	for _, name := range []string{"rules/recording.yaml", "rules/alerts.yaml"} {
		var file struct{ Groups []group }
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		require.NoError(t, yaml.Unmarshal(text, &file), name)
		list = append(list, file.Groups...)
	}
	return list
}

func rules(t testing.TB) (list []rule) {
	t.Helper()
	for _, g := range groups(t) {
		list = append(list, g.Rules...)
	}
	return list
}

func promtool(t testing.TB, args ...string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), program(t, "promtool"), args...).CombinedOutput()
	require.NoError(t, err, "promtool %s\n%s", strings.Join(args, " "), out)
}

func program(t testing.TB, name string) string {
	t.Helper()
	file, err := exec.LookPath(name)
	if err != nil {
		t.Fatalf("%s not found: make deps", name)
	}
	return file
}

func TestRulesAreGood(t *testing.T) {
	promtool(t, "check", "rules", "--lint=all", "--lint-fatal", "rules/recording.yaml", "rules/alerts.yaml")
	for _, g := range groups(t) {
		require.LessOrEqual(t, len(g.Rules), 20, "%s: Mimir often allows no more in a group", g.Name)
	}
	file := filepath.Join(t.TempDir(), "prometheus.yaml")
	require.NoError(t, os.WriteFile(file, []byte(exampleConfig(t, "targets.json")), 0o600))
	promtool(t, "check", "config", "--syntax-only", "--lint=all", "--lint-fatal", file)
}

// exampleConfig is prometheus.yaml with file targets instead of Consul's: Debian's
// Prometheus, which tests start, is built without that discovery. Everything after it,
// above all the targets' labels, is unchanged.
func exampleConfig(t testing.TB, targets string) string {
	t.Helper()
	text, err := os.ReadFile("prometheus.yaml")
	require.NoError(t, err)
	const discovery = "    consul_sd_configs:\n      - server: 127.0.0.1:8500\n        services: [weir-edge]\n"
	require.Contains(t, string(text), discovery)
	return strings.Replace(string(text), discovery, fmt.Sprintf("    file_sd_configs:\n      - {files: [%q], refresh_interval: 1s}\n", targets), 1)
}

// Each alert fires on its case, and is silent on a healthy fleet and on near misses.
func TestRules(t *testing.T) {
	files, err := filepath.Glob("rules/*_test.yaml")
	require.NoError(t, err)
	var all strings.Builder
	var names []string
	for _, g := range groups(t) {
		names = append(names, g.Name)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		all.Write(text)
		// Without it, promtool evaluates groups in a random order: alerts may see what was
		// recorded an evaluation earlier.
		require.Contains(t, string(text), "\ngroup_eval_order: ["+strings.Join(names, ", ")+"]\n", name)
		t.Run(filepath.Base(name), func(t *testing.T) {
			t.Parallel()
			promtool(t, "test", "rules", name)
		})
	}
	for _, rule := range rules(t) {
		if rule.Alert != "" {
			require.Contains(t, all.String(), fmt.Sprintf("alertname=%q", rule.Alert), "no case of rules/*_test.yaml expects %s to fire", rule.Alert)
		}
	}
}

// Only the first rules name jobs. After the commands of the README, all rules work for a fleet scraped as
// another job, also if series have more labels, such as those of clusters in Thanos and Mimir, and links
// need no external labels.
func TestRulesForAnotherJob(t *testing.T) {
	named := 0
	for _, rule := range rules(t) {
		if strings.Contains(rule.Expr, "job=") {
			require.Regexp(t, `^instance:weir_[a-z]+:up$`, rule.Record, "%s%s names a job: %s", rule.Alert, rule.Record, rule.Expr)
			named++
		}
	}
	require.Equal(t, 3, named)

	dir := t.TempDir()
	page, err := os.ReadFile("README.md")
	require.NoError(t, err)
	commands := regexp.MustCompile(`(?m)^    sed (.*\\\n)*.*$`).FindAllString(string(page), -1)
	require.Len(t, commands, 2)
	for _, command := range commands {
		command = strings.ReplaceAll(command, ">", ">"+dir+"/")
		out, err := exec.CommandContext(t.Context(), "sh", "-c", "cd .. && "+command).CombinedOutput()
		require.NoError(t, err, "%s: %s", command, out)
	}
	alerts, err := os.ReadFile(filepath.Join(dir, "alerts.yaml"))
	require.NoError(t, err)
	require.NotContains(t, string(alerts), "$externalLabels")

	rename := strings.NewReplacer(`job="weir-edge"`, `job="edge"`, "job: weir-edge", "job: edge",
		"https://grafana.test", "https://grafana.example.com", "https://wiki.test", "https://wiki.example.com",
		"dashboard_url: /", "dashboard_url: https://grafana.example.com/", "runbook_url: docs/RUNBOOKS.md", "runbook_url: https://wiki.example.com/weir/RUNBOOKS")
	series := regexp.MustCompile(`(series: '\w+\{)`)
	for _, name := range []string{"nodes_test.yaml", "budgets_test.yaml", "stores_test.yaml", "traffic_test.yaml", "behavior_test.yaml", "dns_test.yaml"} {
		text, err := os.ReadFile("rules/" + name)
		require.NoError(t, err)
		file := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(file, []byte(series.ReplaceAllString(rename.Replace(string(text)), `${1}cluster="prod", `)), 0o600))
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			promtool(t, "test", "rules", file)
		})
	}
}

var link = regexp.MustCompile(`^\{\{ \$externalLabels\.grafana_url \}\}/d/([a-z-]+)\?viewPanel=(\d+)((?:&var-[a-z]+=\{\{ \$labels\.[a-z]+ \}\})*)$`)

// Each alert says what to do, and links its runbook and a panel that exists.
func TestAlertsLeadSomewhere(t *testing.T) {
	panels := map[string]bool{}
	for _, p := range pages(t) {
		needed, folded := p.graphs()
		for _, panel := range append(needed, folded...) {
			panels[p.UID+"/"+strconv.Itoa(panel.ID)] = true
		}
	}
	for _, rule := range rules(t) {
		if rule.Alert == "" {
			continue
		}
		require.Regexp(t, `^Weir[A-Z]\w+$`, rule.Alert)
		require.Len(t, rule.Labels, 1, "%s: only severity; the operator decides whom to notify", rule.Alert)
		require.Contains(t, []string{"critical", "warning"}, rule.Labels["severity"], rule.Alert)
		require.Len(t, rule.Annotations, 4, rule.Alert)
		require.NotEmpty(t, rule.Annotations["summary"], rule.Alert)
		require.Less(t, len(rule.Annotations["summary"]), 120, rule.Alert)
		require.Greater(t, len(rule.Annotations["description"]), 120, "%s: say what to do", rule.Alert)
		m := link.FindStringSubmatch(rule.Annotations["dashboard_url"])
		require.NotNil(t, m, "%s: %s", rule.Alert, rule.Annotations["dashboard_url"])
		require.True(t, panels[m[1]+"/"+m[2]], "%s links panel %s of %s, which does not exist", rule.Alert, m[2], m[1])
		require.Equal(t, `{{ or $externalLabels.runbooks_url "docs/RUNBOOKS.md" }}#`+strings.ToLower(rule.Alert), rule.Annotations["runbook_url"])
	}
}

// Each alert has a runbook, in the same order and of its severity, and each runbook an alert. Metrics
// that runbooks name exist.
func TestEveryAlertHasARunbook(t *testing.T) {
	var alerts, runbooks []string
	for _, rule := range rules(t) {
		if rule.Alert != "" {
			alerts = append(alerts, rule.Alert+" "+rule.Labels["severity"])
		}
	}
	names := known(t)
	for _, r := range docs.Runbooks() {
		runbooks = append(runbooks, r.Alert+" "+r.Severity)
		for _, name := range regexp.MustCompile(`\bweir_[a-z0-9_]+`).FindAllString(r.Text, -1) {
			require.True(t, names[name], "%s: no metric %s", r.Alert, name)
		}
	}
	require.Equal(t, alerts, runbooks)
}

// promtool checks that the expressions of dashboards, METRICS and runbooks are PromQL by accepting them as rules.
func TestQueriesAreGood(t *testing.T) {
	type recorded struct {
		Record string `yaml:"record"`
		Expr   string `yaml:"expr"`
	}
	var list []recorded
	add := func(p *page, expr string) {
		values := map[string]string{"__rate_interval": "1m", "__interval": "15s", "__range": "3h"}
		for _, v := range p.Templating.List {
			values[v.Name] = "0.5" // a regular expression, and a number
		}
		filled, err := fill(expr, values)
		require.NoError(t, err, p.Title)
		list = append(list, recorded{fmt.Sprint("query", len(list)), filled})
	}
	for _, p := range pages(t) {
		needed, folded := p.graphs()
		for _, panel := range append(needed, folded...) {
			for _, target := range panel.Targets {
				add(p, target.Expr)
			}
		}
		for _, a := range p.Annotations.List {
			add(p, a.Expr)
		}
	}
	page, err := os.ReadFile("../docs/METRICS.md")
	require.NoError(t, err)
	_, block, _ := strings.Cut(string(page), "```promql\n")
	block, _, _ = strings.Cut(block, "```")
	var examples []string
	for _, example := range strings.Split(block, "\n\n") {
		_, expr, _ := strings.Cut(example, "\n") // after its comment
		examples = append(examples, expr)
	}
	for _, r := range docs.Runbooks() {
		for _, m := range regexp.MustCompile(`promtool query instant http://PROMETHEUS:9090 '(.*?)'`+"`").FindAllStringSubmatch(r.Text, -1) {
			examples = append(examples, m[1])
		}
	}
	require.Greater(t, len(examples), 15)
	names := known(t)
	for _, expr := range examples {
		list = append(list, recorded{fmt.Sprint("query", len(list)), expr})
		for _, a := range selectorsOf(expr) {
			require.True(t, names[a.metric], "no metric %s: %s", a.metric, expr)
		}
	}
	text, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "queries", "rules": list}}})
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "queries.yaml")
	require.NoError(t, os.WriteFile(file, text, 0o600))
	promtool(t, "check", "rules", file)
}
