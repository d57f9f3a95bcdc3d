package dashboards

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/collectors"

	client "github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
)

// exported returns the names of all metrics that the programs export, from the reference, which is made
// from the source: a series that nothing has counted yet is in no scrape. true marks a histogram.
func exported(t testing.TB) map[string]bool {
	t.Helper()
	names := exportedBy(t, "")
	require.Contains(t, names, "weir_requests_total")
	require.True(t, names["weir_request_seconds"])
	require.Contains(t, names, "weir_shed_level")
	return names
}

var ownMetric = regexp.MustCompile("(?m)^\\| `(weir_[a-z0-9_]+)` \\| (counter|gauge|histogram) \\|")

// exportedBy returns those of one chapter of the reference, or of all.
func exportedBy(t testing.TB, chapter string) map[string]bool {
	t.Helper()
	page, err := os.ReadFile("../docs/reference/metrics.md")
	require.NoError(t, err)
	text := string(page)
	if chapter != "" {
		_, text, _ = strings.Cut(text, "\n## "+chapter+"\n")
		text, _, _ = strings.Cut(text, "\n## ")
	}
	names := map[string]bool{}
	for _, m := range ownMetric.FindAllStringSubmatch(text, -1) {
		names[m[1]] = m[2] == "histogram"
	}
	require.NotEmpty(t, names)
	return names
}

// known returns every name that a query may use, including the parts of each histogram.
func known(t testing.TB) map[string]bool {
	t.Helper()
	names := map[string]bool{"up": true, "ALERTS": true} // Prometheus's own
	for name, histogram := range exported(t) {
		if !histogram {
			names[name] = true
			continue
		}
		for _, part := range []string{"_bucket", "_sum", "_count"} {
			names[name+part] = true
		}
	}
	registry := client.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, f := range families {
		names[f.GetName()] = true
	}
	for _, rule := range rules(t) {
		if rule.Record != "" {
			names[rule.Record] = true
		}
	}
	return names
}

// optional are metrics of other programs and of regionctl dns, which only collapsed rows and alerts may use.
var optional = []string{
	"weir_dns_queries_total", "weir_dns_pop_up", "weir_dns_pop_drained", "weir_dns_pop_demand", "weir_dns_pop_capacity", "weir_dns_pop_gives", "weir_dns_region_known",
	"weir_dns_ready", "weir_dns_yields", "weir_dns_steers", "weir_dns_geoip_faulty", "weir_dns_topology_unsigned", "weir_dns_documents_unreadable", "weir_dns_pop_answers", "weir_dns_region_facts_age_seconds", "weir_dns_moves_total", "weir_dns_state_save_failures_total",
	"weir_rls_calls_total", "weir_rls_call_seconds_bucket", "weir_rls_connections_refused_total",
	"weir_peer_messages_total", "weir_peer_bytes_total", "weir_peer_round_trip_seconds_bucket", "weir_peer_nodes_down", "weir_peer_connections_refused_total",
	"weir_global_lag_seconds", "weir_global_overshoot_ratio", "weir_global_overshoot_bound_ratio", "weir_global_keys", "weir_global_uncounted_total", "weir_global_rights_total", "weir_global_rights", "weir_global_parts",
	"redis_up", "redis_commands_processed_total", "redis_cpu_sys_seconds_total", "redis_cpu_user_seconds_total",
	"redis_memory_used_bytes", "redis_memory_max_bytes", "redis_evicted_keys_total", "redis_connected_clients", // oliver006/redis_exporter, docs/ and exporter/
	"consul_autopilot_healthy", "consul_kvs_apply_count", "consul_rpc_query", // developer.hashicorp.com/consul/docs/reference/agent/telemetry
}

// Dashboards and alerts use only existing metrics.
func TestMetricsExist(t *testing.T) {
	names := known(t)
	for file, p := range pages(t) {
		needed, folded := p.graphs()
		for _, panel := range needed {
			for _, target := range panel.Targets {
				for _, a := range selectorsOf(target.Expr) {
					require.True(t, names[a.metric], "%s: panel %d %q asks for %s, which nothing exports", file, panel.ID, panel.Title, a.metric)
				}
			}
		}
		for _, panel := range folded {
			for _, target := range panel.Targets {
				for _, a := range selectorsOf(target.Expr) {
					require.True(t, names[a.metric] || slices.Contains(optional, a.metric), "%s: panel %d %q asks for %s, which nothing exports", file, panel.ID, panel.Title, a.metric)
				}
			}
		}
		for _, a := range p.Annotations.List {
			for _, s := range selectorsOf(a.Expr) {
				require.True(t, names[s.metric], "%s: annotation %q asks for %s", file, a.Name, s.metric)
			}
		}
		for _, v := range p.Templating.List {
			if v.Definition != "" {
				metric, _, _ := strings.Cut(labelValues.FindStringSubmatch(v.Definition)[1], "{")
				require.True(t, names[metric], "%s: variable %s asks for %s", file, v.Name, metric)
			}
		}
	}
	for _, rule := range rules(t) {
		require.NotEmpty(t, selectorsOf(rule.Expr))
		for _, a := range selectorsOf(rule.Expr) {
			require.True(t, names[a.metric] || rule.Alert != "" && slices.Contains(optional, a.metric), "rule %s%s asks for %s, which nothing exports", rule.Alert, rule.Record, a.metric)
		}
	}
}

// The reference, which is generated, has the only table of metrics: one by hand would grow stale.
func TestOnlyTheReferenceListsMetrics(t *testing.T) {
	files, err := filepath.Glob("../docs/*.md")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, name := range files {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		require.NotRegexp(t, "(?m)^\\| `weir_[a-z0-9_]+` \\|", string(text), name)
	}
}

// A panel shows every metric that weir exports.
func TestMetricsAreShown(t *testing.T) {
	shown := map[string]bool{}
	for _, p := range pages(t) {
		needed, folded := p.graphs()
		for _, panel := range append(needed, folded...) {
			for _, target := range panel.Targets {
				for _, a := range selectorsOf(target.Expr) {
					shown[a.metric] = true
				}
			}
		}
	}
	for name, histogram := range exported(t) {
		require.True(t, shown[name] || histogram && shown[name+"_bucket"], "no panel shows %s", name)
	}
}
