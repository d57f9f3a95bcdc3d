package edge

import (
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/edge/config"
	"github.com/weir-edge/weir/internal/testenv"
	"github.com/weir-edge/weir/pkg/certs"
)

// Dashboards and alerts rely on these names. Changing one breaks them.
var fixedMetrics = map[string][]string{
	"weir_requests_total":            {"code_class"},
	"weir_requests_limited_total":    nil,
	"weir_access_log_dropped_total":  nil,
	"weir_request_seconds":           nil,
	"weir_decisions_total":           {"outcome", "rule", "source"},
	"weir_decision_seconds":          {"source"},
	"weir_store_up":                  nil,
	"weir_store_may_evict":           nil,
	"weir_store_evicted_keys":        nil,
	"weir_store_errors_total":        {"kind"},
	"weir_store_batch_size":          nil,
	"weir_leases":                    {"rule"},
	"weir_lease_units_held":          {"rule"},
	"weir_lease_units_total":         {"fate", "rule"},
	"weir_reported_keys":             {"rule"},
	"weir_reported_units_total":      {"fate", "rule"},
	"weir_overshoot_ratio":           {"rule"},
	"weir_overshoot_bound_ratio":     {"rule"},
	"weir_clock_steps_total":         {"clock", "direction"},
	"weir_rules_info":                {"version"},
	"weir_rules_age_seconds":         nil,
	"weir_rules_rejected_total":      nil,
	"weir_rules_source_up":           nil,
	"weir_rules_stale":               nil,
	"weir_rules_bootstrapped":        nil,
	"weir_documents_unsigned":        {"document"},
	"weir_rules_apart_until_seconds": nil,
	"weir_rules_cache_errors_total":  nil,
	"weir_store_nodes":               nil,
	"weir_upstream_seconds":          {"upstream"},
	"weir_upstream_errors_total":     {"kind", "upstream"},
	"weir_upgrades_active":           nil,
	"weir_connections_refused_total": {"reason"},
	"weir_http2_connections":         nil,
	"weir_http2_streams":             nil,
	"weir_http2_refused_total":       {"reason"},
	"weir_upstream_unasked_total":    nil,
	"weir_upstream_healthy":          {"address", "upstream"},
	"weir_gateway_answers_total":     {"answer", "protocol"},
	"weir_gateway_seconds":           {"protocol"},
	"weir_panics_total":              nil,

	"weir_rls_calls_total":               {"outcome"}, // with listen.rls
	"weir_rls_call_seconds":              nil,
	"weir_rls_connections_refused_total": {"reason"},

	"weir_peer_messages_total":            {"direction", "peer", "result"}, // with listen.peer
	"weir_peer_bytes_total":               {"direction", "peer"},
	"weir_peer_round_trip_seconds":        {"peer"},
	"weir_peer_nodes_down":                nil,
	"weir_peer_connections_refused_total": nil,
	"weir_global_lag_seconds":             {"from"},
	"weir_global_overshoot_ratio":         {"rule"},
	"weir_global_overshoot_bound_ratio":   {"rule"},
	"weir_global_keys":                    {"state"},
	"weir_global_uncounted_total":         nil,
	"weir_global_parts":                   nil,
	"weir_global_rights":                  {"rule"},
	"weir_global_rights_total":            {"direction"},

	"weir_certificate_expiry_seconds":  {"file", "listener"}, // with TLS
	"weir_tls_handshakes_failed_total": {"listener", "reason"},

	"weir_shed_total":                 {"class", "reason", "upstream"},
	"weir_shed_level":                 {"upstream"},
	"weir_shed_probability":           {"class", "upstream"},
	"weir_shed_signal_up":             {"signal", "upstream"},
	"weir_utilization":                {"signal", "upstream"},
	"weir_shed_signal_value":          {"signal", "upstream"},
	"weir_shed_signal_knee":           {"knee", "signal", "upstream"},
	"weir_shed_threshold":             {"threshold", "upstream"},
	"weir_inflight":                   {"class", "upstream"},
	"weir_inflight_max":               {"class", "upstream"},
	"weir_shadow_shed_total":          {"candidate", "class", "upstream"},
	"weir_shadow_knee":                {"candidate", "upstream"},
	"weir_shed_auto_knee":             {"upstream"},
	"weir_shed_full_rate":             {"upstream"},
	"weir_shed_base_seconds":          {"upstream"},
	"weir_shed_probes_total":          {"result", "upstream"},
	"weir_shedder_info":               {"enabled", "source", "version"},
	"weir_shedder_secret_info":        {"fingerprint"},
	"weir_shedder_rejected_total":     nil,
	"weir_shedder_cache_errors_total": nil,

	"weir_experiment_checks_total":           {"outcome", "rule", "variant"}, // with an experiment
	"weir_experiment_wait_seconds_total":     {"rule", "variant"},
	"weir_experiment_decision_seconds_total": {"rule", "variant"},
	"weir_experiment_answers_total":          {"outcome", "rule", "variant"},
	"weir_experiment_worst_window":           {"rule", "variant"},

	"weir_load_followed":           {"upstream"},
	"weir_load_nodes":              {"upstream"},
	"weir_load_alone":              nil,
	"weir_rules_lowered":           {"upstream"},
	"weir_load_wanted_total":       {"upstream"},
	"weir_behavior_requests_total": {"effect", "mode", "tier"}, // with a policy
	"weir_client_blocks_total":     nil, "weir_client_networks": {"action"}, "weir_client_networks_source_up": nil, "weir_client_networks_cache_errors_total": nil,
	"weir_behavior_rises_total":               {"kind", "tier"},
	"weir_behavior_signals_total":             {"kind", "signal", "tier"},
	"weir_behavior_subjects":                  {"kind"},
	"weir_behavior_evicted_total":             {"kind"},
	"weir_behavior_untracked_total":           {"kind"},
	"weir_behavior_delayed":                   nil,
	"weir_behavior_nodes":                     nil,
	"weir_behavior_alone":                     nil,
	"weir_behavior_reported":                  {"kind"},
	"weir_behavior_region_rises_total":        {"kind", "tier"},
	"weir_behavior_policy_info":               {"mode", "version"},
	"weir_behavior_policy_rejected_total":     nil,
	"weir_behavior_policy_source_up":          nil,
	"weir_behavior_policy_cache_errors_total": nil,
}

func TestMetrics(t *testing.T) {
	redis, files, began := testenv.Redis(t, testenv.Options{}), testenv.Certificates(t), time.Now()
	n := start(t, setup{redis: redis, config: func(c *config.Config) {
		c.Shedder.Document = settings(t, calm+"candidates: {other: {start: 0.9}}\n")
		c.Listen.Decide = &config.Decide{Address: "127.0.0.1:0", From: []string{"127.0.0.1"}}
		c.Listen.RLS = &config.RLS{Address: "127.0.0.1:0"}
		c.Listen.AdminTLS = &config.MutualTLS{Pair: certs.Pair{CertFile: files.CertFile, KeyFile: files.KeyFile}}
		c.Node.Region, c.Listen.Peer = "eu-west", &config.PeerListen{Address: "127.0.0.1:0", Insecure: true}
		c.Peer.Regions = []config.PeerRegion{{Name: "eu-west"}, {Name: "us-east", Nodes: []config.PeerNode{{ID: "us-1", Address: "127.0.0.1:1"}}}}
		c.Policy.File = policyFile(t, "signals: {presence: {weight: 30, at_least: 1, share: 0.1}}")
	}, rules: `
rules:
  - {id: hard, match: {paths: ["/limited/*"]}, key: [client_ip, "header:X-Api-Key", path], limit: 3, window: 1h}
  - {id: soft, match: {paths: ["/limited/*"]}, key: [client_ip], limit: 1, window: 1h, mode: shadow}
  - {id: local, match: {paths: [/local]}, key: [client_ip], limit: 100, window: 1h, experiment: {share: 0.1, limit: 50}}
  - {id: leased, match: {paths: [/leased]}, key: [client_ip], algorithm: fixed_window, limit: 1000000, window: ` + testenv.LongWindow() + `, consistency: leased}
  - {id: reported, match: {paths: [/reported]}, key: [client_ip], algorithm: fixed_window, limit: 1000000, window: ` + testenv.LongWindow() + `, consistency: reported}
  - {id: global, match: {paths: [/global]}, key: [client_ip], algorithm: fixed_window, limit: 1000000, window: ` + testenv.LongWindow() + `, scope: global}
  - {id: escrow, match: {paths: [/escrow]}, key: [client_ip], algorithm: fixed_window, limit: 1000000, window: ` + testenv.LongWindow() + `, scope: global, global: {mode: escrow}, on_store_failure: closed}
`, origin: func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/broken" {
			panic(http.ErrAbortHandler)
		}
	}})
	for range 5 {
		n.get("/limited/hunter2", "X-Api-Key: hunter3")
	}
	n.get("/free")
	require.Equal(t, []int{400}, statuses(n.raw("bad\r\n\r\n")), "never got to a handler")
	require.Equal(t, 502, n.get("/broken").status)

	decided := func(rule, outcome, source string) float64 {
		return n.metric(`weir_decisions_total{rule="` + rule + `",outcome="` + outcome + `",source="` + source + `"}`)
	}
	for _, c := range []struct {
		rule, outcome, source string
		want                  float64
	}{
		{"hard", "allowed", "redis", 3},
		{"hard", "limited", "redis", 1},
		{"hard", "limited", "denied_memory", 1},
		{"hard", "error", "fallback", 0},
		{"soft", "allowed", "redis", 1},
		{"soft", "shadow_limited", "redis", 3}, // of four checks; memory did not ask it
		{"soft", "limited", "redis", 0},
	} {
		require.Equal(t, c.want, decided(c.rule, c.outcome, c.source), "%v", c)
	}
	// Requests are counted when they end, which may be after the client has read the
	// answer.
	eventually(t, "all requests are counted", func() bool { return n.metric("weir_request_seconds") == 7 })
	require.EqualValues(t, 4, n.metric(`weir_requests_total{code_class="2xx"}`))
	require.EqualValues(t, 3, n.metric(`weir_requests_total{code_class="4xx"}`))
	require.EqualValues(t, 1, n.metric(`weir_requests_total{code_class="5xx"}`))
	require.EqualValues(t, 2, n.metric("weir_requests_limited_total"))
	require.EqualValues(t, 4, n.metric(`weir_decision_seconds{source="redis"}`))
	require.EqualValues(t, 1, n.metric(`weir_decision_seconds{source="denied_memory"}`))
	batches := n.metric("weir_store_batch_size")
	require.GreaterOrEqual(t, batches, 4.0)
	require.LessOrEqual(t, batches, 4+1+float64(time.Since(began)/presenceEvery), "it includes the node's own presence")
	require.EqualValues(t, 1, n.metric("weir_store_up"))
	require.EqualValues(t, 1, n.metric(`weir_upstream_errors_total{kind="broken",upstream="default"}`))
	require.EqualValues(t, 4, n.metric(`weir_upstream_seconds{upstream="default"}`))

	eventually(t, "a hot key is leased", func() bool {
		n.get("/leased")
		return decided("leased", "allowed", "lease") > 0 && n.metric(`weir_leases{rule="leased"}`) == 1
	})
	require.Positive(t, n.metric(`weir_lease_units_total{fate="granted",rule="leased"}`))

	n.get("/global")
	eventually(t, "what passed is counted", func() bool { return n.metric(`weir_global_keys{state="kept"}`) == 1 })
	require.Positive(t, n.metric(`weir_global_overshoot_bound_ratio{rule="global"}`))
	require.Zero(t, n.metric(`weir_global_keys{state="traveling"}`), "one of a million is within the share")

	n.get("/reported")
	require.EqualValues(t, 1, decided("reported", "allowed", "reported"))
	eventually(t, "it is reported", func() bool { return n.metric(`weir_reported_units_total{fate="counted",rule="reported"}`) == 1 })
	require.EqualValues(t, 1, n.metric(`weir_reported_keys{rule="reported"}`))
	require.Positive(t, n.metric(`weir_overshoot_bound_ratio{rule="reported"}`))

	redis.Kill()
	n.get("/local")
	require.EqualValues(t, 1, decided("local", "allowed", "fallback"))
	n.replaceRules("rules: [")
	n.reload <- syscall.SIGHUP
	eventually(t, "the document is refused", func() bool { return n.metric("weir_rules_rejected_total") == 1 })
	eventually(t, "the shedder has sampled", func() bool {
		_, known := n.series(`weir_utilization{signal="inflight",upstream="default"}`)
		return known
	})
	n.checkMetricNames()
}

// reference returns the type, the sorted labels and the help of each metric of a node, as the reference says.
func reference(t *testing.T) map[string][3]string {
	page, err := os.ReadFile("../../docs/reference/metrics.md")
	require.NoError(t, err)
	chapter, _, _ := strings.Cut(string(page), "\n## DNS router\n")
	list := map[string][3]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(weir_[a-z0-9_]+)` \\| (\\w+) \\| \\w* \\| (.*?) \\| (.*) \\|$").FindAllStringSubmatch(chapter, -1) {
		labels := regexp.MustCompile(`\w+`).FindAllString(row[3], -1)
		slices.Sort(labels)
		list[row[1]] = [3]string{row[2], strings.Join(labels, " "), strings.ReplaceAll(row[4], `\`, "")}
	}
	require.Len(t, list, len(fixedMetrics), "metrics of the reference, and those that dashboards rely on")
	return list
}

// checkMetricNames compares everything exported with the fixed list.
func (n *node) checkMetricNames() {
	n.t.Helper()
	bounded := map[string]*regexp.Regexp{
		"document":    regexp.MustCompile(`^(rules|shedder)$`),
		"protocol":    regexp.MustCompile(`^http$`),
		"answer":      regexp.MustCompile(`^(pass|limited|shed|failed|malformed|unauthenticated|blocked)$`),
		"action":      regexp.MustCompile(`^(block|allow)$`),
		"code_class":  regexp.MustCompile(`^([1-5]xx|other)$`),
		"rule":        regexp.MustCompile(`^(hard|soft|local|leased|reported|global|escrow)$`),
		"outcome":     regexp.MustCompile(`^(allowed|limited|shadow_limited|error|ok|over_limit|invalid|unavailable|failed|canceled)$`),
		"source":      regexp.MustCompile(`^(redis|memory|denied_memory|fallback|lease|reported|config)$`),
		"kind":        regexp.MustCompile(`^[a-z_]{1,20}$`),
		"tier":        regexp.MustCompile(`^(normal|elevated|suspicious|blocked)$`),
		"effect":      regexp.MustCompile(`^(passed|delayed|refused|crowded)$`),
		"mode":        regexp.MustCompile(`^(shadow|enforce)$`),
		"enabled":     regexp.MustCompile(`^(true|false)$`),
		"class":       regexp.MustCompile(`^(critical|write|read|test)$`),
		"reason":      regexp.MustCompile(`^(cap|client|inflight|max_connections(_per_client)?|proxy_protocol|resets|control_frames|window_updates|empty_data|closed_streams|continuations|protocol|slow_headers|streams|timeout|closed|certificate|rejected|full|unauthenticated|memory|flood)$`),
		"signal":      regexp.MustCompile(`^(inflight|presence)$`),
		"knee":        regexp.MustCompile(`^(low|high)$`),
		"result":      regexp.MustCompile(`^(measured|undecided|ok|busy|unreachable|refused|version|failed)$`),
		"threshold":   regexp.MustCompile(`^(start|target)$`),
		"upstream":    regexp.MustCompile(`^default$`),
		"address":     regexp.MustCompile(`^127\.0\.0\.1:\d+$`),
		"candidate":   regexp.MustCompile(`^other$`),
		"peer":        regexp.MustCompile(`^(eu-west|us-east)$`),
		"from":        regexp.MustCompile(`^us-east$`),
		"state":       regexp.MustCompile(`^(kept|traveling)$`),
		"clock":       regexp.MustCompile(`^(store|node)$`),
		"direction":   regexp.MustCompile(`^(back|forward|in|out)$`),
		"fate":        regexp.MustCompile(`^(granted|spent|returned|stranded|counted|lost)$`),
		"version":     regexp.MustCompile(`^[0-9a-f]{12}$`),
		"listener":    regexp.MustCompile(`^(public|admin|decide|rls)$`),
		"variant":     regexp.MustCompile(`^(base|experiment)$`),
		"fingerprint": regexp.MustCompile(`^(own|none|[0-9a-f]{4})$`),
		"file":        regexp.MustCompile(`^/.*\.crt$`),
	}
	families, err := n.metrics.registry.Gather()
	require.NoError(n.t, err)
	documented := reference(n.t)
	seen := map[string]bool{}
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "weir_") {
			require.Regexp(n.t, "^(go|process)_", f.GetName())
			continue
		}
		seen[f.GetName()] = true
		labels, known := fixedMetrics[f.GetName()]
		require.True(n.t, known, "%s is not in the list", f.GetName())
		require.Equal(n.t, documented[f.GetName()], [3]string{
			strings.ToLower(f.GetType().String()), strings.Join(labels, " "), strings.TrimSuffix(f.GetHelp(), "."),
		}, "the reference says something else of %s: run make reference", f.GetName())
		for _, m := range f.Metric {
			var names []string
			for _, l := range m.Label {
				names = append(names, l.GetName())
				require.Regexp(n.t, bounded[l.GetName()], l.GetValue(), "%s of %s", l.GetName(), f.GetName())
			}
			slices.Sort(names)
			require.Equal(n.t, labels, names, f.GetName())
		}
	}
	for name := range fixedMetrics {
		require.True(n.t, seen[name], "%s is not exported", name)
	}
	text := n.operate("GET", "/metrics").body
	for _, secret := range []string{"hunter", "127.0.0.1", "/limited"} {
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "weir_upstream_healthy{") {
				continue // contains the origin's address
			}
			require.False(n.t, strings.HasPrefix(line, "weir_") && strings.Contains(line, secret), line)
		}
	}
}
