package dashboards

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/shedding"
)

// The rules of the community's linter (grafana/dashboard-linter), and some of our own.
// Two of its rules are left out on purpose: a variable for the instance, because all
// queries are about regions, PoPs or nodes; and ".+" for all jobs, because up of other
// jobs would count.
func TestDashboardsAreTidy(t *testing.T) {
	uids, titles := map[string]bool{}, map[string]bool{}
	for name, p := range pages(t) {
		require.Regexp(t, `^weir-[a-z-]+$`, p.UID, name)
		require.Equal(t, strings.TrimPrefix(p.UID, "weir-")+".json", name)
		require.Regexp(t, `^weir / [A-Z]`, p.Title, name)
		require.False(t, uids[p.UID] || titles[p.Title], "%s: its uid or title is taken", name)
		uids[p.UID], titles[p.Title] = true, true
		require.Greater(t, len(p.Description), 60, "%s: say what it is for", name)
		require.False(t, p.Editable, "%s: a change in Grafana would be lost", name)
		require.Equal(t, []string{"weir"}, p.Tags, name)
		require.Equal(t, grafanaSchema, p.SchemaVersion, name)
		require.NotEmpty(t, p.Refresh, name)
		require.NotEmpty(t, p.Annotations.List, name)
		for _, a := range p.Annotations.List {
			require.Equal(t, templated, a.Datasource, "%s: annotation %s", name, a.Name)
			require.True(t, a.Enable, "%s: annotation %s", name, a.Name)
			require.Equal(t, a.Expr, a.Target.Expr, "%s: annotation %s: older and newer Grafanas read one each", name, a.Name)
			requireSelectors(t, name+": annotation "+a.Name, a.Expr)
		}
	}
}

var templated = pageSource{Type: "prometheus", UID: "${datasource}"}

func TestVariables(t *testing.T) {
	for name, p := range pages(t) {
		var order []string
		uses := ""
		needed, folded := p.graphs()
		for _, panel := range append(needed, folded...) {
			for _, target := range panel.Targets {
				uses += target.Expr + "\n"
			}
		}
		for _, v := range p.Templating.List {
			order = append(order, v.Name)
			require.NotEmpty(t, v.Label, "%s: variable %s", name, v.Name)
			switch v.Type {
			case "datasource":
				require.Equal(t, `"prometheus"`, string(v.Query), name)
				continue
			case "query":
				require.Equal(t, templated, v.Datasource, "%s: variable %s", name, v.Name)
				require.Equal(t, 2, v.Refresh, "%s: variable %s: refresh when the time changes", name, v.Name)
				require.Regexp(t, labelValues, v.Definition, "%s: variable %s", name, v.Name)
				if len(order) > 2 {
					require.Contains(t, v.Definition, `job=~"$job"`, "%s: variable %s", name, v.Name)
				}
			default:
				require.Fail(t, "a kind of variable that QueryAll does not support", "%s: %s: %s", name, v.Name, v.Type)
			}
			require.Regexp(t, `\$`+v.Name+`\b`, uses, "%s: nothing uses variable %s", name, v.Name)
		}
		require.Equal(t, []string{"datasource", "job", "region", "pop"}, order[:4], name)
	}
}

func TestPanels(t *testing.T) {
	for name, p := range pages(t) {
		ids, titles := map[int]bool{}, map[string]bool{}
		needed, folded := p.graphs()
		for _, panel := range append(p.Panels, folded...) {
			require.Positive(t, panel.ID, name)
			require.False(t, ids[panel.ID], "%s: two panels have id %d", name, panel.ID)
			ids[panel.ID] = true
			require.NotEmpty(t, panel.Title, "%s: panel %d", name, panel.ID)
			require.False(t, titles[panel.Title], "%s: two panels are called %q", name, panel.Title)
			titles[panel.Title] = true
			if panel.Type == "row" {
				require.Equal(t, panel.Collapsed, len(panel.Panels) > 0, "%s: row %q", name, panel.Title)
				require.Equal(t, panel.Collapsed, strings.HasPrefix(panel.Title, "Optional: "), "%s: row %q", name, panel.Title)
			}
		}
		for i, panel := range append(needed, folded...) {
			what := name + ": panel " + panel.Title
			require.Greater(t, len(panel.Description), 80, "%s: teach how to read it", what)
			require.Regexp(t, `\.$`, panel.Description, what)
			require.Contains(t, []string{perSecond, share, seconds, plain, bytesUsed, bytesPerSecond, "ops"}, panel.FieldConfig.Defaults.Unit, "%s: Grafana's name of the unit", what)
			require.Equal(t, templated, panel.Datasource, what)
			require.NotEmpty(t, panel.Targets, what)
			require.Equal(t, i >= len(needed), strings.HasSuffix(panel.Title, "(optional)"), what)
			byName := map[string]bool{}
			for k, target := range panel.Targets {
				require.Equal(t, refID(k), target.RefID, what)
				require.Equal(t, templated, target.Datasource, what)
				require.NotContains(t, target.Expr, "{@", what)
				require.Equal(t, panel.Type == "table", target.LegendFormat == "", "%s: query %s: its legend", what, target.RefID)
				byName[target.LegendFormat] = true
				if byName["Value #"+target.RefID] = len(panel.Targets) > 1; !byName["Value #"+target.RefID] {
					byName["Value"] = true // Grafana's name for a single query
				}
				requireQuery(t, what+": query "+target.RefID, target.Expr, i >= len(needed))
				if strings.Contains(target.Expr, "weir_shadow_shed_total") {
					require.Contains(t, panel.Description, shedding.ShadowBias, what)
				}
			}
			for _, o := range panel.FieldConfig.Overrides {
				require.True(t, byName[o.Matcher.Options], "%s: an override names %q, which is no query's", what, o.Matcher.Options)
			}
		}
	}
}

var counter = regexp.MustCompile(`_(total|bucket|sum|count)$`)

func requireQuery(t *testing.T, what, expr string, optional bool) {
	t.Helper()
	if !optional {
		requireSelectors(t, what, expr)
	}
	for _, a := range selectorsOf(expr) {
		require.Contains(t, a.matchers, `region=~"$region`, what)
		switch a.function {
		case "rate", "irate":
			require.Equal(t, "[$__rate_interval]", a.window, "%s: %s", what, a.metric)
		case "increase":
			require.NotEmpty(t, a.window, "%s: %s", what, a.metric)
		default:
			if counter.MatchString(a.metric) && a.metric != "consul_rpc_query" {
				require.Fail(t, "a counter is shown as it is", "%s: %s", what, a.metric)
			}
		}
	}
}

// requireSelectors requires that every selector is limited to the chosen jobs, regions and
// PoPs.
func requireSelectors(t *testing.T, what, expr string) {
	t.Helper()
	require.NotEmpty(t, selectorsOf(expr), what)
	for _, a := range selectorsOf(expr) {
		if a.metric == "ALERTS" { // has no job, and sometimes no PoP
			require.Contains(t, a.matchers, `region=~"$region|",pop=~"$pop|"`, what)
			continue
		}
		require.True(t, strings.HasPrefix(a.matchers, selector), "%s: %s%s lacks the variables", what, a.metric, a.matchers)
	}
}

// Panels lie next to each other in the grid, without overlap.
func TestPanelsDoNotOverlap(t *testing.T) {
	for name, p := range pages(t) {
		taken := map[[2]int]string{}
		lay := func(panel pagePanel) {
			g := panel.GridPos
			require.True(t, g.W > 0 && g.H > 0 && g.X >= 0 && g.X+g.W <= rowWidth, "%s: %q is not in the grid", name, panel.Title)
			for x := g.X; x < g.X+g.W; x++ {
				for y := g.Y; y < g.Y+g.H; y++ {
					require.Empty(t, taken[[2]int{x, y}], "%s: %q lies over it", name, panel.Title)
					taken[[2]int{x, y}] = panel.Title
				}
			}
		}
		for _, panel := range p.Panels {
			lay(panel)
			for _, inner := range panel.Panels {
				lay(inner)
			}
		}
	}
}
