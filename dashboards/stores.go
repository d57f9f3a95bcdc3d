package dashboards

// stores shows Redis and Consul: first as weir sees them, which is what requests feel.
func stores() dashboard {
	return dashboard{
		uid: "weir-redis-consul", title: "weir / Redis and Consul",
		text: "What weir depends on, first as the nodes see it. The collapsed rows below show the servers themselves, if redis_exporter and Consul's own metrics are scraped with a region label.",
		rows: []row{
			{id: 1, title: "Redis, as the nodes see it", panels: []panel{
				{
					id: 2, kind: states, title: "Store up", unit: plain, width: 12, words: downUp(),
					text:    "By node: up while every master of its store answers. All nodes of a region down at once is Redis; one node is its network, or its password. Meanwhile nodes continue as each rule's on_store_failure says.",
					queries: []query{{"{{region}} {{pop}} {{node}}", `min by (region, pop, node) (weir_store_up{@})`}},
				},
				{
					id: 3, kind: series, title: "Time to decide in Redis", unit: seconds, width: 12, steps: []step{{0.01, yellow}, {0.025, red}},
					text: "One round trip from a node, including the wait for the previous one. Dashed: what counts as late (10 ms), and the default budget store.timeout (25 ms). Far below a millisecond is usual in one data center.",
					queries: []query{
						{"p99 {{region}}", `histogram_quantile(0.99, sum by (region, le) (rate(weir_decision_seconds_bucket{@,source="redis"}[$__rate_interval])))`},
						{"p50 {{region}}", `histogram_quantile(0.5, sum by (region, le) (rate(weir_decision_seconds_bucket{@,source="redis"}[$__rate_interval])))`},
					},
				},
				{
					id: 4, kind: series, title: "Decisions not made, by kind", unit: perSecond,
					text: "In total, and by kind: timeout and then breaker_open is a master that hangs or is gone; connection is one that refuses connections, or TLS; queue_full is one too slow for the load; reply is an error from Redis, such as a wrong password or no memory.",
					queries: []query{
						{"{{region}} {{kind}}", `sum by (region, kind) (rate(weir_store_errors_total{@}[$__rate_interval]))`},
						{"{{region}} total", `sum by (region) (rate(weir_store_errors_total{@}[$__rate_interval])) or 0 * sum by (region) (weir_store_up{@})`},
					},
				},
				{
					id: 5, kind: series, title: "Fallback in use", unit: perSecond,
					text:    "Checks that a node counted alone. When Redis is back this must return to 0 within seconds, automatically.",
					queries: []query{{"{{region}} {{pop}}", `sum by (region, pop) (rate(weir_decisions_total{@,source="fallback"}[$__rate_interval])) or 0 * sum by (region, pop) (weir_store_up{@})`}},
				},
				{
					id: 6, kind: series, title: "Nodes that share the store", unit: plain,
					text: "The number by which each limit is divided while Redis is unreachable: the smallest and the largest count among the region's nodes. Both should equal the number of nodes in the region (or store.nodes). If it is too small, even on one node, the nodes together pass too much; if too large, too little.",
					queries: []query{
						{"fewest in {{region}}", `min by (region) (weir_store_nodes{@})`},
						{"most in {{region}}", `max by (region) (weir_store_nodes{@})`},
						{"up in {{region}}", `sum by (region) (up{@})`},
					},
				},
				{
					id: 10, kind: series, title: "Evicted counters", unit: plain,
					text: "Must be 0: an evicted counter lets its client start over. Shows the keys that the masters have evicted since they started, and 1 while one may evict: set maxmemory-policy noeviction, and give it more memory.",
					queries: []query{
						{"evicted in {{region}}", `max by (region) (weir_store_evicted_keys{@})`},
						{"may evict in {{region}}", `max by (region) (weir_store_may_evict{@})`},
					},
				},
				{
					id: 11, kind: series, title: "Clocks that were set", unit: plain,
					text: "Must be 0: how often in the last hour a clock by which limits are counted was set, by a second or more. The store's clock is a Redis master's; the node's is used while the store is unreachable. Back: a window may start over. Forward: windows end early. Let NTP slew.",
					queries: []query{
						{"{{clock}} {{direction}} in {{region}}", `max by (region, clock, direction) (increase(weir_clock_steps_total{@}[1h]))`},
					},
				},
				{
					id: 7, kind: series, title: "Decisions in one round trip", unit: plain,
					text: "The mean, and what one in a hundred exceeds. 1 is a quiet node. It grows automatically with the load: during one round trip, the next decisions gather.",
					queries: []query{
						{"mean {{region}}", `sum by (region) (rate(weir_store_batch_size_sum{@}[$__rate_interval])) / (sum by (region) (rate(weir_store_batch_size_count{@}[$__rate_interval])) > 0)`},
						{"p99 {{region}}", `histogram_quantile(0.99, sum by (region, le) (rate(weir_store_batch_size_bucket{@}[$__rate_interval])))`},
					},
				},
				{
					id: 8, kind: series, title: "Round trips", unit: "ops",
					text:    "Calls to Redis a second, from all nodes. Each carries several decisions; Redis can do tens of thousands a second on a core.",
					queries: []query{{"{{region}}", `sum by (region) (rate(weir_store_batch_size_count{@}[$__rate_interval]))`}},
				},
				{
					id: 9, kind: series, title: "Spared by memory of refusals", unit: perSecond,
					text:    "Refusals that a node remembered, without a call to Redis. In an attack on one key these are nearly all of them.",
					queries: []query{{"{{region}}", `sum by (region) (rate(weir_decisions_total{@,source="denied_memory"}[$__rate_interval]))`}},
				},
			}},
			{id: 20, title: "Consul, as the nodes see it", panels: []panel{
				{
					id: 21, kind: states, title: "Source of the rules is readable", unit: plain, width: 12, words: downUp(),
					text:    "By node. Down: Consul (or the rule file) cannot be read, and the node keeps the rules that it has. A whole region: its Consul. One node: its agent, or its token.",
					queries: []query{{"{{region}} {{pop}} {{node}}", `min by (region, pop, node) (weir_rules_source_up{@})`}},
				},
				{
					id: 22, kind: states, title: "Rules are stale", unit: plain, width: 12, words: noYes(green, red),
					text: "By node. Yes: the node does not run the published version, or cannot tell which one is published. It may be yes for a second after a change. If it stays, the new document was refused or Consul is unreachable. Bootstrapped: the node started without Consul and runs the copy at rules.bootstrap. Unsigned: the published document has no valid signature.",
					queries: []query{
						{"{{region}} {{pop}} {{node}}", `max by (region, pop, node) (weir_rules_stale{@})`},
						{"{{region}} {{pop}} {{node}} unsigned {{document}}", `max by (region, pop, node, document) (weir_documents_unsigned{@})`},
						{"{{region}} {{pop}} {{node}} bootstrapped", `max by (region, pop, node) (weir_rules_bootstrapped{@})`},
					},
				},
				{
					id: 23, kind: series, title: "Documents refused", unit: plain, width: 12,
					text: "Rules and shedder settings that nodes refused in the last hour. regionctl checks what it publishes, so the cause is usually a node that cannot read them. GET /v1/rules and /v1/shedder on the node say why.",
					queries: []query{
						{"rules {{region}}", `sum by (region) (increase(weir_rules_rejected_total{@}[1h]))`},
						{"shedder {{region}}", `sum by (region) (increase(weir_shedder_rejected_total{@}[1h]))`},
					},
				},
				{
					id: 24, kind: series, title: "Age of the rules", unit: seconds, width: 12,
					text:    "Time since the running rules were activated. After a change all nodes of a region fall to 0 together; one that does not has missed it.",
					queries: []query{{"{{region}} {{pop}} {{node}}", `max by (region, pop, node) (weir_rules_age_seconds{@})`}},
				},
				{
					id: 25, kind: series, title: "Disk writes that failed", unit: plain, width: 12,
					text: "Failures in the last hour to store the last good rules and settings on disk, or to use them, and lines lost by the access log. A node without a copy cannot start while Consul is unreachable: check the directory's permissions and space.",
					queries: []query{
						{"rules {{region}}", `sum by (region) (increase(weir_rules_cache_errors_total{@}[1h]))`},
						{"shedder {{region}}", `sum by (region) (increase(weir_shedder_cache_errors_total{@}[1h]))`},
						{"access log {{region}}", `sum by (region) (increase(weir_access_log_dropped_total{@}[1h]))`},
					},
				},
				{
					id: 26, kind: series, title: "Active versions", unit: plain, width: 12,
					text: "How many versions the nodes of a region run. 1 is settled; 2 for longer than a change takes is a canary, or nodes that are behind. regionctl rules status names them.",
					queries: []query{
						{"rules {{region}}", `count by (region) (count by (region, version) (weir_rules_info{@}))`},
						{"shedder {{region}}", `count by (region) (count by (region, version) (weir_shedder_info{@}))`},
					},
				},
			}},
			{id: 40, title: "Optional: Redis itself, by redis_exporter", folded: true, panels: []panel{
				{
					id: 41, kind: series, title: "Redis servers up (optional)", unit: plain,
					text:    "Needs redis_exporter with a region label. Servers that the exporter reaches; with a replica for each master, one less is a failover and two of one pair an outage.",
					queries: []query{{"{{region}}", `sum by (region) (redis_up{region=~"$region"})`}},
				},
				{
					id: 42, kind: series, title: "Redis commands (optional)", unit: "ops",
					text:    "Needs redis_exporter. Commands per second by server. Servers that differ widely hold hot keys: a client's key is always on one master.",
					queries: []query{{"{{instance}}", `sum by (instance) (rate(redis_commands_processed_total{region=~"$region"}[$__rate_interval]))`}},
				},
				{
					id: 43, kind: series, title: "Redis CPU (optional)", unit: plain,
					text:    "Needs redis_exporter. Redis decides on one core: near 1 it is full, and decisions begin to exceed their budget. Add masters before that.",
					queries: []query{{"{{instance}}", `sum by (instance) (rate(redis_cpu_sys_seconds_total{region=~"$region"}[$__rate_interval]) + rate(redis_cpu_user_seconds_total{region=~"$region"}[$__rate_interval]))`}},
				},
				{
					id: 44, kind: series, title: "Redis memory (optional)", unit: bytesUsed,
					text:    "Needs redis_exporter. Every key ends with its window, so memory follows the number of clients in one window. make tables measures the bytes of each algorithm.",
					queries: []query{{"{{instance}}", `sum by (instance) (redis_memory_used_bytes{region=~"$region"})`}},
				},
				{
					id: 45, kind: series, title: "Redis evictions (optional)", unit: "ops",
					text:    "Needs redis_exporter. Must be 0: an evicted counter lets its client start over. Use maxmemory-policy noeviction, and more memory.",
					queries: []query{{"{{instance}}", `sum by (instance) (rate(redis_evicted_keys_total{region=~"$region"}[$__rate_interval]))`}},
				},
				{
					id: 46, kind: series, title: "Redis clients (optional)", unit: plain,
					text:    "Needs redis_exporter. Connections by server. They grow with the number of nodes; a sawtooth pattern is nodes reconnecting.",
					queries: []query{{"{{instance}}", `sum by (instance) (redis_connected_clients{region=~"$region"})`}},
				},
			}},
			{id: 60, title: "Optional: Consul itself", folded: true, panels: []panel{
				{
					id: 61, kind: states, title: "Consul healthy (optional)", unit: plain, words: downUp(),
					text:    "Needs Consul's telemetry with prometheus_retention_time, and a region label. Down: the servers report no healthy quorum. Nothing can be published; nodes keep running.",
					queries: []query{{"{{region}}", `min by (region) (consul_autopilot_healthy{region=~"$region"})`}},
				},
				{
					id: 62, kind: series, title: "Consul writes (optional)", unit: "ops",
					text:    "Needs Consul's telemetry. Writes to its key-value store: a few when rules change, none otherwise.",
					queries: []query{{"{{region}}", `sum by (region) (rate(consul_kvs_apply_count{region=~"$region"}[$__rate_interval]))`}},
				},
				{
					id: 63, kind: series, title: "Consul queries (optional)", unit: "ops",
					text:    "Needs Consul's telemetry. Each node keeps a few blocking queries open, so this grows with the fleet, hardly with traffic. A jump is nodes returning all at once.",
					queries: []query{{"{{region}}", `sum by (region) (rate(consul_rpc_query{region=~"$region"}[$__rate_interval]))`}},
				},
			}},
		},
	}
}
