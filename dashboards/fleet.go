package dashboards

// Words and colors that several dashboards use.
const (
	green, yellow, orange, red = "green", "yellow", "orange", "red"
	blue, purple, gray         = "blue", "purple", "gray"

	perSecond, share, seconds = "reqps", "percentunit", "s"
	plain, bytesUsed          = "short", "bytes"
	bytesPerSecond            = "Bps"
)

func downUp() map[int]any {
	return map[int]any{0: object{"text": "down", "color": red, "index": 0}, 1: object{"text": "up", "color": green, "index": 1}}
}

func noYes(no, yes string) map[int]any {
	return map[int]any{0: object{"text": "no", "color": no, "index": 0}, 1: object{"text": "yes", "color": yes, "index": 1}}
}

// The terms of WeirUpstreamErrors, see rules/recording.yaml: an attempt either fails or
// has a duration.
const (
	failures = `rate(weir_upstream_errors_total{@,kind!~"client|too_large|bad_request|unsupported"}[$__rate_interval])`
	answered = `sum by (region, pop) (rate(weir_upstream_seconds_count{@}[$__rate_interval]))`
	failed   = "(sum by (region, pop) (" + failures + ") or 0 * " + answered + ")"
	attempts = "(" + failed + " + " + answered + ")"
)

// shareOf is the share of a part in a total, both counters: 0 while nothing of the part
// has been counted, and absent while the total is 0.
func shareOf(by, part, total string) string {
	sum := func(counter string) string {
		if by == "" {
			return "sum(rate(" + counter + "[$__rate_interval]))"
		}
		return "sum by (" + by + ") (rate(" + counter + "[$__rate_interval]))"
	}
	return "(" + sum(part) + " or 0 * " + sum(total) + ") / (" + sum(total) + " > 0)"
}

// burn is a budget's burn rate over the four windows of its alerts.
func burn(share, budget string) (list []query) {
	for _, window := range []string{"5m", "30m", "1h", "6h"} {
		list = append(list, query{window + " {{region}} {{pop}}", share + ":ratio_rate" + window + "{@} / " + budget})
	}
	return list
}

// fleet shows all regions at a glance: where to look first.
func fleet() dashboard {
	return dashboard{
		uid: "weir-fleet", title: "weir / Fleet",
		text: "Regions and PoPs at a glance. Start here: read the table row by row, then follow anything unusual to Limits, Shedder, or Redis and Consul.",
		rows: []row{
			{id: 1, title: "At a glance", panels: []panel{
				{
					id: 2, kind: stat, title: "Alerts firing", unit: plain, width: 6, height: 4, steps: []step{{1, red}},
					text:    "weir's alerts now firing for these regions and PoPs. Their annotations say what to do and link the panel to look at. Also 0 when the rules in dashboards/rules are not loaded.",
					queries: []query{{"firing", `count(ALERTS{alertname=~"Weir.+",alertstate="firing",region=~"$region|",pop=~"$pop|"}) or vector(0)`}},
				},
				{
					id: 3, kind: stat, title: "Nodes up", unit: plain, width: 6, height: 4,
					text:    "Edge nodes that answer Prometheus. Fewer than yesterday with the same deployment means that nodes died; Nodes up by PoP shows where.",
					queries: []query{{"up", `sum(up{@})`}},
				},
				{
					id: 4, kind: stat, title: "Requests", unit: perSecond, width: 6, height: 4,
					text:    "Requests answered each second by all selected nodes, whatever the answer. A sudden fall with all nodes up means that clients no longer arrive: check DNS.",
					queries: []query{{"requests", `sum(rate(weir_requests_total{@}[$__rate_interval]))`}},
				},
				{
					id: 5, kind: stat, title: "Answered 5xx", unit: share, width: 6, height: 4, steps: []step{{0.01, yellow}, {0.05, red}},
					text:    "Share of requests answered 5xx: the origin failed (502, 504), or the shedder refused (503). Compare with Shed share below to distinguish the two.",
					queries: []query{{"5xx", shareOf("", `weir_requests_total{@,code_class="5xx"}`, `weir_requests_total{@}`)}},
				},
				{
					id: 6, kind: table, title: "PoPs", unit: plain, width: 24, height: 9,
					text: "One row for each PoP, as of now. Read across: few nodes up explains a high utilization; a high utilization explains shedding; shedding or a failing origin explains 5xx. A PoP that limits far more than its neighbors has an attacker, or other rules.",
					columns: []column{
						{"Nodes up", plain}, {"Requests", perSecond}, {"Limited", share}, {"Shed", share}, {"5xx", share},
						{"p99", seconds}, {"Utilization", share}, {"Shed level", plain}, {"Store up", share},
					},
					queries: []query{
						{"", `sum by (region, pop) (up{@})`},
						{"", `sum by (region, pop) (rate(weir_requests_total{@}[$__rate_interval]))`},
						{"", shareOf("region, pop", `weir_requests_limited_total{@}`, `weir_requests_total{@}`)},
						{"", shareOf("region, pop", `weir_shed_total{@}`, `weir_requests_total{@}`)},
						{"", shareOf("region, pop", `weir_requests_total{@,code_class="5xx"}`, `weir_requests_total{@}`)},
						{"", `histogram_quantile(0.99, sum by (region, pop, le) (rate(weir_request_seconds_bucket{@}[$__rate_interval])))`},
						{"", `max by (region, pop) (weir_utilization{@})`},
						{"", `max by (region, pop) (weir_shed_level{@})`},
						{"", `avg by (region, pop) (weir_store_up{@})`},
					},
				},
			}},
			{id: 10, title: "Traffic", panels: []panel{
				{
					id: 11, kind: series, title: "Requests by PoP", unit: perSecond, stacked: true,
					text:    "How much each PoP carries. When a PoP fails or is drained, its traffic should appear at its neighbors within about the TTL of the DNS answers, and the sum should not change.",
					queries: []query{{"{{region}} {{pop}}", `sum by (region, pop) (rate(weir_requests_total{@}[$__rate_interval]))`}},
				},
				{
					id: 12, kind: series, title: "Requests by status", unit: perSecond, stacked: true,
					text:    "4xx includes the rules' 429, 5xx the shedder's 503 and the origin's failures. When 4xx or 5xx grows while 2xx stays, the growth is being refused and the site is healthy.",
					queries: []query{{"{{code_class}}", `sum by (code_class) (rate(weir_requests_total{@}[$__rate_interval]))`}},
				},
				{
					id: 13, kind: series, title: "Time to answer", unit: seconds,
					text: "From a request's header to the end of its response, origin included. Half of the requests are faster than p50, and one in a hundred is slower than p99. When p99 rises without p50, requests wait: see Utilization.",
					queries: []query{
						{"p99 {{region}}", `histogram_quantile(0.99, sum by (region, le) (rate(weir_request_seconds_bucket{@}[$__rate_interval])))`},
						{"p50 {{region}}", `histogram_quantile(0.5, sum by (region, le) (rate(weir_request_seconds_bucket{@}[$__rate_interval])))`},
					},
				},
				{
					id: 14, kind: series, title: "Limited share", unit: share,
					text:    "Share of requests that a rule refused with 429. Most sites have a steady share, from bots and broken clients; look for a change. Limits shows it against its own past, and by rule.",
					queries: []query{{"{{region}} {{pop}}", shareOf("region, pop", `weir_requests_limited_total{@}`, `weir_requests_total{@}`)}},
				},
				{
					id: 15, kind: series, title: "Shed share", unit: share,
					text:    "Share of requests that the load shedder refused with 503. It should be 0 except in an overload. If it is not, Shedder shows which signal and which classes.",
					queries: []query{{"{{region}} {{pop}}", shareOf("region, pop", `weir_shed_total{@}`, `weir_requests_total{@}`)}},
				},
				{
					id: 16, kind: series, title: "Utilization", unit: share, atMost: 1,
					text:  "The busiest signal of the busiest node in each PoP. The dashed lines are where shedding starts (red) and what it then holds (green), the lowest of the active settings. All nodes of one PoP high: too much traffic for its origin. One node high: that node.",
					lines: []line{{"start", red}, {"target", green}},
					queries: []query{
						{"{{region}} {{pop}}", `max by (region, pop) (weir_utilization{@})`},
						{"start", `min(weir_shed_threshold{@,threshold="start"})`},
						{"target", `min(weir_shed_threshold{@,threshold="target"})`},
					},
				},
				{
					id: 17, kind: series, title: "Burn rate: refused by fault", unit: plain, width: 12, steps: []step{{6, yellow}, {14.4, red}},
					text:    "How many times faster than a month's error budget allows weir refuses requests by its own fault, or that of its Redis; the budget is 0.1% of the requests. At 1 it lasts 30 days. The alerts need both of their windows above a dashed line: 5 m and 1 h above 14.4, or 30 m and 6 h above 6. Needs the recording rules.",
					queries: burn("pop:weir_faults", "0.001"),
				},
				{
					id: 18, kind: series, title: "Burn rate: decided late", unit: plain, width: 12, steps: []step{{6, yellow}, {14.4, red}},
					text:    "As beside it, for decisions that take over 10 ms; the budget is 1% of the decisions, without remembered refusals and clients that a behavior policy delays. When it rises, Redis is slow, or the nodes lack CPU: see Redis and Consul.",
					queries: burn("pop:weir_late", "0.01"),
				},
			}},
			{id: 20, title: "Nodes and origins", panels: []panel{
				{
					id: 21, kind: series, title: "Nodes up by PoP", unit: plain,
					text:    "Nodes that answer Prometheus. A line at 0 is a PoP that is down; a line that ends is a PoP whose nodes have left Consul, ten minutes after they died or when they were removed.",
					queries: []query{{"{{region}} {{pop}}", `sum by (region, pop) (up{@})`}},
				},
				{
					id: 22, kind: series, title: "Upstream errors", unit: share, steps: []step{{0.05, red}},
					text: "Share of all attempts that got no answer from an origin: in total, which the alert uses (dashed: its threshold), and by kind: connect (refused or unreachable), timeout, broken (hung up), bad_response, unavailable (all connections in use). 1 is an origin that is down. Attempts that clients aborted are not counted.",
					queries: []query{
						{"{{region}} {{pop}} total", failed + " / (" + attempts + " > 0)"},
						{"{{region}} {{pop}} {{kind}}", "sum by (region, pop, kind) (" + failures + ") / on (region, pop) group_left () (" + attempts + " > 0)"},
					},
				},
				{
					id: 23, kind: series, title: "Origin's time", unit: seconds,
					text: "Time until the origin's response headers. Time to answer exceeds it by what weir adds and by sending the body.",
					queries: []query{
						{"p99 {{region}}", `histogram_quantile(0.99, sum by (region, le) (rate(weir_upstream_seconds_bucket{@}[$__rate_interval])))`},
						{"p50 {{region}}", `histogram_quantile(0.5, sum by (region, le) (rate(weir_upstream_seconds_bucket{@}[$__rate_interval])))`},
					},
				},
				{
					id: 24, kind: series, title: "Nodes by version of the rules", unit: plain, stacked: true,
					text: "After a change, all of a region's nodes move to the new version within a second or two. Two versions that stay are a canary, a wave, regions with rules of their own, or nodes that refused the new one. Apart: nodes that differ from others on purpose.",
					queries: []query{
						{"{{region}} {{version}}", `count by (region, version) (weir_rules_info{@})`},
						{"{{region}} apart", `sum by (region) (weir_rules_apart_until_seconds{@} > bool time())`},
					},
				},
				{
					id: 25, kind: series, title: "Nodes by version of the shedder's settings", unit: plain, stacked: true,
					text:    "As for rules. Source admin is a node with temporary settings made by hand; with config and builtin, nodes follow their own file because nothing is published.",
					queries: []query{{"{{region}} {{version}} {{source}}", `count by (region, version, source) (weir_shedder_info{@})`}},
				},
				{
					id: 26, kind: series, title: "Certificates, time left", unit: seconds,
					text:    "Time until a certificate of the public or the admin listener expires, for the node and the file where that is soonest. A new pair of files is loaded within a second, so a line below two weeks means that renewal fails. Empty without TLS.",
					queries: []query{{"{{region}} {{pop}}", `min by (region, pop) (weir_certificate_expiry_seconds{@}) - time()`}},
				},
				{
					id: 163, kind: series, title: "TLS handshakes that fail", unit: perSecond,
					text:    "Failed handshakes by listener and reason. certificate is a gateway, node or operator without a valid client certificate; rejected a client that does not accept ours: check its expiry and its chain. On the public listener the Internet causes some of each. Empty without TLS.",
					queries: []query{{"{{region}} {{pop}} {{listener}} {{reason}}", `sum by (region, pop, listener, reason) (rate(weir_tls_handshakes_failed_total{@}[$__rate_interval]))`}},
				},
				{
					id: 27, kind: series, title: "Unrequested bytes", unit: perSecond,
					text:    "How often an origin sent bytes that answer no request: a body after HEAD or 304, more than its Content-Length, 408 to an idle connection. Each time it loses keep-alive for a minute, so every request makes a new connection. Should be 0; the log names the address.",
					queries: []query{{"{{region}} {{pop}}", `sum by (region, pop) (rate(weir_upstream_unasked_total{@}[$__rate_interval]))`}},
				},
				{
					id: 28, kind: series, title: "WebSockets open", unit: plain,
					text:    "Connections that have switched to another protocol. Each holds a permit of the shedder and a connection to an upstream (upstream.max_conns) until it ends. A sudden fall is an origin or a node that stopped; the rise after it is clients reconnecting.",
					queries: []query{{"{{region}} {{pop}}", `sum by (region, pop) (weir_upgrades_active{@})`}},
				},
				{
					id: 29, kind: series, title: "Connections refused", unit: perSecond,
					text:    "Connections closed without an answer, by the field of server or listen that refuses them: max_connections is a full node, max_connections_per_client is single clients, proxy_protocol is a load balancer without valid PROXY headers. The log names one client and one balancer a second.",
					queries: []query{{"{{region}} {{pop}} {{reason}}", `sum by (region, pop, reason) (rate(weir_connections_refused_total{@}[$__rate_interval]))`}},
				},
				{
					id: 161, kind: series, title: "HTTP/2 requests in progress", unit: plain,
					text:    "Streams of HTTP/2 that are being served. One connection may have listen.http2.max_streams of them, all of a node server.max_connections.",
					queries: []query{{"{{region}} {{pop}}", `sum by (region, pop) (weir_http2_streams{@})`}, {"{{region}} {{pop}} connections", `sum by (region, pop) (weir_http2_connections{@})`}},
				},
				{
					id: 162, kind: series, title: "HTTP/2 floods", unit: perSecond,
					text:    "Connections of HTTP/2 closed because they sent more frames of a kind than requests explain, by kind; streams counts requests that got 503 because too many were open. Should be 0; see Floods of frames in docs/CONFIG.md. protocol alone may be a broken client.",
					queries: []query{{"{{region}} {{pop}} {{reason}}", `sum by (region, pop, reason) (rate(weir_http2_refused_total{@}[$__rate_interval]))`}},
				},
				{
					id: 38, kind: series, title: "Upstream errors by group", unit: share, steps: []step{{0.05, red}},
					text:    "As Upstream errors, for each upstream group: the failure of a group with little traffic hardly shows in its PoP.",
					queries: []query{{"{{region}} {{pop}} {{upstream}}", `upstream:weir_upstream_errors:ratio_rate5m{@}`}},
				},
				{
					id: 37, kind: series, title: "Healthy upstreams", unit: share, atMost: 1,
					text:    "Share of the nodes from which each origin's address gets its requests: it passes its health checks there and does not rest after failures. At 0 the others of its group carry its load; if all of a group are at 0, they get requests anyway. Between 0 and 1, check the network between those nodes and it.",
					queries: []query{{"{{region}} {{pop}} {{upstream}} {{address}}", `avg by (region, pop, upstream, address) (weir_upstream_healthy{@})`}},
				},
			}},
			{id: 30, title: "Processes", panels: []panel{
				{
					id: 31, kind: series, title: "CPU", unit: plain,
					text:    "Cores that each node keeps busy. One that rises without traffic is worth a profile: /debug/pprof/profile on its admin address.",
					queries: []query{{"{{region}} {{pop}} {{node}}", `sum by (region, pop, node) (rate(process_cpu_seconds_total{@}[$__rate_interval]))`}},
				},
				{
					id: 32, kind: series, title: "Memory", unit: bytesUsed,
					text:    "Resident memory of each node. It grows with connections and with the counters kept in process, both of which have limits; beyond those it should be flat.",
					queries: []query{{"{{region}} {{pop}} {{node}}", `sum by (region, pop, node) (process_resident_memory_bytes{@})`}},
				},
				{
					id: 33, kind: series, title: "Goroutines", unit: plain,
					text:    "About one or two for each connection. If more stay, report the leak with /debug/pprof/goroutine.",
					queries: []query{{"{{region}} {{pop}} {{node}}", `sum by (region, pop, node) (go_goroutines{@})`}},
				},
				{
					id: 34, kind: series, title: "Open files", unit: share, atMost: 1, steps: []step{{0.8, red}},
					text:    "Share of the file descriptors that the process may open. Each connection takes one on either side; at 1 no new client can connect. Raise LimitNOFILE of the service.",
					queries: []query{{"{{region}} {{pop}} {{node}}", `max by (region, pop, node) (process_open_fds{@} / process_max_fds{@})`}},
				},
				{
					id: 35, kind: series, title: "Time since start", unit: seconds,
					text:    "How long each process has run. A line that falls to 0 is a restart, intended or not.",
					queries: []query{{"{{region}} {{pop}} {{node}}", `time() - max by (region, pop, node) (process_start_time_seconds{@})`}},
				},
				{
					id: 36, kind: series, title: "Panics", unit: plain, steps: []step{{1, red}},
					text:    "Requests in five minutes that were answered 500 because of a bug in weir. Report each one, with the stack in the log line \"handler panicked\".",
					queries: []query{{"{{region}} {{pop}} {{node}}", `sum by (region, pop, node) (increase(weir_panics_total{@}[5m]))`}},
				},
			}},
			{id: 60, title: "Optional: gateways that ask, on listen.decide", folded: true, panels: []panel{
				{
					id: 61, kind: series, title: "Answers to gateways (optional)", unit: perSecond, width: 12, stacked: true,
					text:    "The answers to gateways about their requests. unauthenticated is a gateway that listen.decide.from does not list; failed is weir's own fault, or a rule that cannot be applied there; malformed is a request, or a gateway's configuration, that leaves something unclear.",
					queries: []query{{"{{region}} {{protocol}} {{answer}}", `sum by (region, protocol, answer) (rate(weir_gateway_answers_total{@}[$__rate_interval]))`}},
				},
				{
					id: 62, kind: series, title: "Time to answer gateways (optional)", unit: seconds, width: 12,
					text: "From a gateway's authorization request to the answer. Each of the gateway's requests waits that long before it goes to its origin. Normal: about one round trip to Redis.",
					queries: []query{
						{"p99 {{region}} {{protocol}}", `histogram_quantile(0.99, sum by (region, protocol, le) (rate(weir_gateway_seconds_bucket{@}[$__rate_interval])))`},
						{"p50 {{region}} {{protocol}}", `histogram_quantile(0.5, sum by (region, protocol, le) (rate(weir_gateway_seconds_bucket{@}[$__rate_interval])))`},
					},
				},
			}},
			{id: 70, title: "Optional: remote lists, by regionctl clients sync", folded: true, panels: []panel{
				{
					id: 71, kind: series, title: "Age of remote lists (optional)", unit: seconds, width: 12,
					text: "Needs regionctl clients sync scraped. How long ago all regions had what a list said, and how often it is fetched. It rises to the interval and falls to 0; a line that keeps rising is a list that cannot be fetched, looks broken, or cannot be published. Regions keep what they have.",
					queries: []query{
						{"{{list}}", `min by (list) (weir_list_age_seconds{region=~"$region|"})`},
						{"{{list}}, fetched every", `min by (list) (weir_list_interval_seconds{region=~"$region|"})`},
					},
				},
				{
					id: 72, kind: series, title: "Networks of remote lists (optional)", unit: plain, width: 12,
					text: "Needs regionctl clients sync scraped. How many networks each region blocks because a list says so, networks that the list has and that are not public, and failures in an hour by reason: fetch, list (malformed, or too wide), loss (a region would lose too much of it), region (it cannot be read or written).",
					queries: []query{
						{"{{list}} {{region}}", `max by (list, region) (weir_list_networks{region=~"$region"})`},
						{"{{list}}, not public", `max by (list) (weir_list_private{region=~"$region|"})`},
						{"{{list}}, failed: {{reason}}", `sum by (list, reason) (increase(weir_list_failures_total{region=~"$region|"}[1h]))`},
					},
				},
			}},
			{id: 40, title: "Optional: DNS, by regionctl dns", folded: true, panels: []panel{
				{
					id: 41, kind: series, title: "DNS answers (optional)", unit: perSecond, width: 24, stacked: true,
					text:    "Needs regionctl dns scraped, in any region. Queries answered each second, by kind of answer. answer is the normal case; spilled skipped the nearest PoP because it cannot serve all of its clients; fail_open means that no PoP is healthy, and all are returned. refused and nxdomain are for unknown names: many of them are a scan.",
					queries: []query{{"{{answer}}", `sum by (answer) (rate(weir_dns_queries_total{region=~"$region|"}[$__rate_interval]))`}},
				},
				{
					id: 42, kind: states, title: "PoP up in DNS (optional)", unit: plain, width: 12, words: downUp(),
					text:    "Needs regionctl dns scraped. Down: clients are sent elsewhere, because no node of the PoP passes its check. Prometheus may still see such a node as up: it runs but is not ready.",
					queries: []query{{"{{region}} {{pop}}", `min by (region, pop) (weir_dns_pop_up{region=~"$region"})`}},
				},
				{
					id: 43, kind: states, title: "PoP drained (optional)", unit: plain, width: 12, words: noYes(green, orange),
					text:    "Needs regionctl dns scraped. Yes: an operator took the PoP out of DNS on purpose, and it stays out until it is undrained, however healthy it is. regionctl status says who and why.",
					queries: []query{{"{{region}} {{pop}}", `max by (region, pop) (weir_dns_pop_drained{region=~"$region"})`}},
				},
				{
					id: 44, kind: series, title: "Clients given to other PoPs (optional)", unit: share, width: 12, atMost: 1,
					text:    "Needs regionctl dns scraped. The share of its clients that DNS sends elsewhere, because the PoP cannot serve them all. It should rise within a few TTLs and then stand still. If it never returns to 0, the PoP needs more nodes.",
					queries: []query{{"{{region}} {{pop}} to {{to}}", `max by (region, pop, to) (weir_dns_pop_gives{region=~"$region"})`}},
				},
				{
					id: 53, kind: series, title: "Demand as part of capacity (optional)", unit: share, width: 12,
					text:    "Needs regionctl dns scraped. Demand on each PoP divided by its capacity, as DNS routers see it. Above 0.97 the PoP gives clients away, to PoPs below 0.93. If all are high, the fleet needs more nodes. A PoP without a line publishes no figures: its shedder is off, or its nodes run an older release.",
					queries: []query{{"{{region}} {{pop}}", `max by (region, pop) (weir_dns_pop_demand{region=~"$region"} / weir_dns_pop_capacity{region=~"$region"})`}},
				},
				{
					id: 45, kind: states, title: "Region known to DNS (optional)", unit: plain, width: 12, words: noYes(red, green),
					text:    "Needs regionctl dns scraped. No: neither the region's Consul nor another one can be asked about it, and the answers use the last known state. Repair this before its PoPs change.",
					queries: []query{{"{{region}}", `min by (region) (weir_dns_region_known{region=~"$region"})`}},
				},
				{
					id: 54, kind: states, title: "Topology without a signature (optional)", unit: plain, width: 12, words: noYes(green, red),
					text:    "Needs regionctl dns scraped, with --verify-keys. Yes: the topology in the region's Consul has no signature by a trusted key. With --require-signed, routers keep the previous one, and a router that starts has none; without it, they use it. If an operator forgot --sign, apply it again with it; otherwise find out who wrote it.",
					queries: []query{{"{{region}}", `max by (region) (weir_dns_topology_unsigned{region=~"$region"})`}},
				},
				{
					id: 57, kind: states, title: "Unreadable topology or drains (optional)", unit: plain, width: 12, words: noYes(green, red),
					text:    "Needs regionctl dns scraped. Yes: the region's Consul answers, but its topology or drains cannot be read, so routers keep the last ones. Drains: regionctl undo drain --region R. The topology: apply it again with --region R, or regionctl undo topology --to VERSION --region R.",
					queries: []query{{"{{region}}", `max by (region) (weir_dns_documents_unreadable{region=~"$region"})`}},
				},
				{
					id: 46, kind: states, title: "Routers that answer (optional)", unit: plain, width: 12, words: noYes(red, green),
					text:    "Needs regionctl dns scraped. No: the router runs and has no topology yet, or is stopping. A missing router has no line: check that each has one.",
					queries: []query{{"{{instance}}", `min by (instance) (weir_dns_ready{region=~"$region|"})`}},
				},
				{
					id: 47, kind: states, title: "Routers that steer (optional)", unit: plain, width: 12, words: noYes(red, green),
					text:    "Needs regionctl dns scraped. No: the topology has several regions, and this router sends all clients to the first. It has no --geoip, or the topology has no clients networks.",
					queries: []query{{"{{instance}}", `min by (instance) (weir_dns_steers{region=~"$region|"})`}},
				},
				{
					id: 55, kind: states, title: "GeoIP file has a fault (optional)", unit: plain, width: 12, words: noYes(green, red),
					text:    "Needs regionctl dns scraped, with --geoip. Yes: the router cannot read the file and uses what it read before, so a restart would fail; or the database locates none of its clients. /readyz of the router says which.",
					queries: []query{{"{{instance}}", `max by (instance) (weir_dns_geoip_faulty{region=~"$region|"})`}},
				},
				{
					id: 48, kind: series, title: "Age of the routers' facts (optional)", unit: seconds, width: 12, steps: []step{{300, red}},
					text:    "Needs regionctl dns scraped. The age of each region's facts, at the router where they are oldest. 0 is usual; a rising line is a region whose Consul no router can reach.",
					queries: []query{{"{{region}}", `max by (region) (weir_dns_region_facts_age_seconds{region=~"$region"})`}},
				},
				{
					id: 58, kind: states, title: "Routers that yield (optional)", unit: plain, width: 12, words: noYes(green, red),
					text:    "Needs regionctl dns scraped. Yes: the router's facts are old and another router proves fresher ones, so queries for the nearest PoP get SERVFAIL here and resolvers ask another name server.",
					queries: []query{{"{{instance}}", `max by (instance) (weir_dns_yields{region=~"$region|"})`}},
				},
				{
					id: 49, kind: series, title: "Moves per minute (optional)", unit: plain, width: 12,
					text:    "Needs regionctl dns scraped. Client networks, as resolvers name them, that were sent to another PoP than the last time, per minute. A step at a drain or a loss is right; a constant level means that clients are sent back and forth.",
					queries: []query{{"{{instance}}", `60 * sum by (instance) (rate(weir_dns_moves_total{region=~"$region|"}[$__rate_interval]))`}},
				},
				{
					id: 56, kind: series, title: "Records that routers ignore (optional)", unit: plain, width: 12, steps: []step{{1, red}},
					text:    "Needs regionctl dns scraped. How many records in weir/spill routers have ignored in five minutes: not signed by a router of the topology, put back, or beyond what a PoP can serve. 0 is usual. The routers' log says why.",
					queries: []query{{"{{instance}}", `sum by (instance) (increase(weir_dns_records_refused_total{region=~"$region|"}[5m]))`}},
				},
				{
					id: 50, kind: series, title: "Sent to TCP, or dropped (optional)", unit: share, width: 12, steps: []step{{0.1, red}},
					text:    "Needs regionctl dns scraped. Share of queries answered with TC, because the answer is too long or the rate exceeds its limit, or not answered for the latter reason. Near 0 is usual; more is an attack on this server or through it, or a limit that is too low.",
					queries: []query{{"{{instance}}", shareOf("instance", `weir_dns_queries_total{region=~"$region|",answer=~"truncated|slipped|dropped"}`, `weir_dns_queries_total{region=~"$region|"}`)}},
				},
				{
					id: 52, kind: states, title: "PoP answers probes (optional)", unit: plain, width: 12, words: noYes(red, green),
					text:    "Needs regionctl dns scraped, and a probe in the topology. No: at least one router does not reach the PoP at its public addresses. While Consul reports the PoP's nodes as passing it stays in DNS; clients near that router may not reach it either.",
					queries: []query{{"{{region}} {{pop}}", `min by (region, pop) (weir_dns_pop_answers{region=~"$region"})`}},
				},
				{
					id: 51, kind: series, title: "Failed writes of the state (optional)", unit: plain, width: 12,
					text:    "Needs regionctl dns scraped. How often in five minutes the --state file could not be written. If not 0, a router that starts without any Consul has older facts, or none.",
					queries: []query{{"{{instance}}", `sum by (instance) (increase(weir_dns_state_save_failures_total{region=~"$region|"}[5m]))`}},
				},
			}},
		},
	}
}
