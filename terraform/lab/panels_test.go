package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/dashboards"
)

// A rule that refuses any load the machine can make, one in shadow that would, one that
// gives up without its Redis, one that counts separately, with an experiment, one leased and one reported.
const panelRules = `
rules:
  - {id: login, match: {paths: ["/login"]}, key: [], limit: 5, window: 1m}
  - {id: tried-out, key: [client_ip], limit: 1, window: 1m, mode: shadow}
  - {id: lenient, match: {paths: ["/open"]}, key: [client_ip], limit: 1000, window: 1s, on_store_failure: open}
  - {id: per-client, key: [client_ip], algorithm: token_bucket, limit: 1000, window: 1s, experiment: {share: 0.5, limit: 900}}
  - {id: whole-site, match: {paths: ["/", "/open"]}, key: [], algorithm: fixed_window, limit: 1000000, window: 10m, consistency: leased}
  - {id: watched, match: {paths: ["/", "/open"]}, key: [client_ip], algorithm: sliding_window, limit: 1000000, window: 10m, consistency: reported}
`

// Settings under which waiting at the origin is an overload but a busy machine is not;
// and a candidate that would shed sooner.
const panelShedder = `
patience: 1s
signals: {inflight: {low: 0, high: 4}, cpu: {low: 0.9, high: 1}, sched_latency: {low: 1s, high: 10s}}
candidates: {stricter: {start: 0.5, target: 0.4}}
`

// Four scrapes.
const panelWindow = 8 * time.Second

// load sends requests to every edge from this many clients.
func (l *lab) load(clients int, ask func(client, n int) (path, class string)) (stop func()) {
	edges := []string{l.address(1, 11), l.address(2, 11)}
	return dashboards.Load(l.t, &http.Transport{}, clients*len(edges), func(ctx context.Context, client, n int) (*http.Request, error) {
		edge, client := edges[client%len(edges)], client/len(edges)
		path, class := ask(client, n)
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+edge+":8080"+path, nil)
		if err == nil {
			// Shedding depends on the address, so no client keeps one for long.
			req.Header.Set("X-Forwarded-For", fmt.Sprintf("198.51.100.%d", 100+(client+n)%100))
			req.Header.Set("X-Weir-Class", class)
		}
		return req, err
	})
}

// Every panel shows something, including those of collapsed rows, once the lab has been
// under load, has lost parts and has recovered them.
func TestPanelsHaveData(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	began := time.Now()
	l.up("small.tfvars")
	up := `count(up == 1) == 2 + 2 + 6 + 1 and on () count(up{job="weir-edge",region="us-east",pop="iad1",node="us-east-iad1-1"}) == 1`
	l.await(began, "edges, Consuls, Redis servers and the router are scraped", up)

	eventually(t, func() bool { return l.dig("198.51.100.7/32") == l.address(1, 11) })
	l.await(began, "DNS answers are counted", `weir_dns_queries_total{answer="answer"} > 0`)
	l.dig("198.51.100.7/32")
	l.await(began, "and more of them", `increase(weir_dns_queries_total{answer="answer"}[30s]) > 0`)

	// Most keep the origin waiting, to put enough in flight even on a busy machine. The
	// others only try to log in, and are shed last: what is shed is not limited. They are
	// several, because a node of a Cluster remembers a refusal for 25 ms only.
	classes := []string{"critical", "read", "read", "test"}
	load := l.load(24, func(client, n int) (path, class string) {
		if client >= 12 {
			return "/login", "critical"
		}
		return []string{"/?wait=300ms", "/open?wait=300ms"}[n%2], classes[client%len(classes)]
	})
	l.regionctl("rules", "apply", l.write("rules.yaml", panelRules), "--yes", "--wait", "60s")
	l.regionctl("shedder", "set", l.write("shedder.yaml", panelShedder), "--yes", "--wait", "60s")
	for _, region := range []string{"eu-west", "us-east"} {
		until := func(what, metric string) {
			t.Helper()
			l.await(began, what+" in "+region, `sum(rate(`+fmt.Sprintf(metric, `region="`+region+`"`)+`[8s])) > 0`)
		}
		until("requests are limited", `weir_requests_limited_total{%s}`)
		until("refusals are remembered", `weir_decisions_total{%s,source="denied_memory"}`)
		until("a rule in shadow would limit", `weir_decisions_total{%s,outcome="shadow_limited"}`)
		until("units are leased", `weir_lease_units_total{%s,rule="whole-site"}`)
		until("units are reported", `weir_reported_units_total{%s,rule="watched"}`)
		until("an experiment is counted", `weir_experiment_checks_total{%s,variant="experiment"}`)
		until("requests are shed", `weir_shed_total{%s,reason="inflight"}`)
		until("a candidate would shed", `weir_shadow_shed_total{%s}`)
	}

	// regionctl and the console read the last hour there.
	var list struct {
		Hour struct {
			Rules map[string]struct {
				Total     struct{ Limited float64 }
				PerSecond []float64 `json:"per_second"`
			}
		} `json:"last_hour"`
	}
	prometheus := "http://" + l.address(0, 90) + ":9090"
	require.NoError(t, json.Unmarshal([]byte(l.regionctl("rules", "list", "--prometheus", prometheus, "-o", "json")), &list))
	require.Positive(t, list.Hour.Rules["login"].Total.Limited)
	require.Positive(t, slices.Max(list.Hour.Rules["login"].PerSecond))

	// One signal needs more load, which only clients that are not shed produce.
	burst := l.load(4, func(int, int) (path, class string) { return "/", "critical" })
	for _, signal := range []string{"inflight", "upstream_wait", "cpu", "sched_latency"} {
		l.await(began, signal+" is measured", fmt.Sprintf(`count(weir_shed_signal_up{signal=%q} == 1) == 2`, signal))
	}
	burst()

	// Each region loses something of every kind that panels distinguish.
	faults := time.Now()
	l.script("signal.sh", "KILL", "eu-west/redis-*", "*/origin")
	l.script("signal.sh", "STOP", "us-east/redis-2")
	for _, region := range []string{"eu-west", "us-east"} {
		missed := func(what, metric string) {
			t.Helper()
			l.await(faults, what+" in "+region, `sum(rate(`+fmt.Sprintf(metric, `region="`+region+`"`)+`[8s])) > 0`)
		}
		missed("rules fall back", `weir_decisions_total{%s,rule="per-client",source="fallback"}`)
		missed("a rule gives up", `weir_decisions_total{%s,rule="lenient",outcome="error"}`)
		missed("the origin is missed", `weir_upstream_errors_total{%s,kind="connect"}`)
	}
	// Not a rate: all may time out at once, after which the breaker spares the shard.
	timeouts := `sum(weir_store_errors_total{kind="timeout",region="us-east"}`
	l.await(faults, "a server that hangs is not waited for", fmt.Sprintf("%s) > (%s @ %d) or vector(0))", timeouts, timeouts, faults.Unix()))
	hung := `redis_up{instance="us-east/redis-2"} == 0 and on () redis_up{instance="us-east/redis-1"} == 1`
	l.await(faults, "the exporter shows which one hangs", hung)
	l.await(faults, "the alert sees it", `ALERTS{alertname="WeirStoreDown",region="eu-west",pop="ams1"}`)
	l.script("signal.sh", "CONT", "us-east/redis-2")

	// Prometheus itself is lost too.
	l.script("signal.sh", "KILL", "global/prometheus")
	eventually(t, func() bool { return l.pids()["global/prometheus"] == "" })
	l.up("small.tfvars")
	healed := time.Now()
	l.await(healed, "all are scraped again", up+` and on () min(timestamp(up)) > `+fmt.Sprint(healed.Unix()))
	l.await(faults, "earlier samples are kept", hung)
	for _, region := range []string{"eu-west", "us-east"} {
		l.await(healed, "Redis decides again in "+region, fmt.Sprintf(`sum(rate(weir_decisions_total{source="redis",region=%q}[8s])) > 0 and on () min(weir_store_up) == 1`, region))
	}
	// Before the load ends: rates of a few seconds end with it.
	loaded := dashboards.Scraped(t, l.prometheus(), panelWindow,
		fmt.Sprintf(`count(sum by (region) (rate(weir_decisions_total{outcome="limited"}[%s])) > 0) == 2`, panelWindow))
	load()

	dashboards.QueryAll(t, l.prometheus(), dashboards.Span{From: began, To: loaded, Window: panelWindow}, dashboards.Except{
		Panels: map[string]string{
			"weir-fleet/26":  "the lab has no TLS",
			"weir-fleet/44":  "a PoP that gives no clients away has no series",
			"weir-fleet/61":  "the lab has no gateway that asks",
			"weir-fleet/62":  "the lab has no gateway that asks",
			"weir-fleet/71":  "the lab follows no list",
			"weir-fleet/72":  "the lab follows no list",
			"weir-limits/61": "no rule of the lab counts across regions",
			"weir-limits/62": "no rule of the lab counts across regions",
			"weir-limits/63": "no rule of the lab counts across regions",
			"weir-limits/71": "no rule of the lab counts across regions",
			"weir-limits/73": "no rule of the lab counts across regions",
			"weir-limits/72": "no rule of the lab counts across regions",
			"weir-limits/74": "no rule of the lab counts across regions",
			"weir-limits/51": "the lab has no Envoy",
			"weir-limits/52": "the lab has no Envoy",
			"weir-limits/53": "the lab has no Envoy",
			"weir-limits/41": "the lab has no behavior policy",
			"weir-limits/42": "the lab has no behavior policy",
			"weir-limits/43": "the lab has no behavior policy",
			"weir-limits/44": "the lab has no behavior policy",
			"weir-limits/47": "the lab has no behavior policy",
		},
	})
}

func TestPrometheusIsOptional(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	out, err := l.plan(l.write("none.tfvars", grown+"prometheus = false\n"))
	require.NoError(t, err)
	require.True(t, strings.Contains(out, `module.global["dns"]`))
	require.False(t, strings.Contains(out, `module.global["prometheus"]`) || strings.Contains(out, "exporter"))
}
