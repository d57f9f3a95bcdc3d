package dashboards

// limits shows what the rules do.
func limits() dashboard {
	return dashboard{
		uid: "weir-limits", title: "weir / Limits",
		text:      "What the rules allow and refuse, how long that takes, and what decides. A check is one rule applied to one request; a request that a rule refuses gets 429.",
		variables: []object{choice("rule", "Rule", `label_values(weir_decisions_total{job=~"$job",region=~"$region",pop=~"$pop"}, rule)`, ".+")},
		rows: []row{
			{id: 1, title: "Outcomes", panels: []panel{
				{
					id: 2, kind: series, title: "Requests limited", unit: perSecond,
					text:    "Requests refused with 429, each counted once even if several rules refused it. Clients notice these.",
					queries: []query{{"{{region}} {{pop}}", `sum by (region, pop) (rate(weir_requests_limited_total{@}[$__rate_interval]))`}},
				},
				{
					id: 3, kind: series, title: "Checks by outcome", unit: perSecond, stacked: true,
					text:    "allowed and limited are enforced. shadow_limited would have been refused if its rule were enforced. error is a check that the store could not answer, of a rule with on_store_failure open or closed. A check that passed is not counted when another refused the request.",
					queries: []query{{"{{outcome}}", `sum by (outcome) (rate(weir_decisions_total{@,rule=~"$rule"}[$__rate_interval]))`}},
				},
				{
					id: 4, kind: series, title: "Rules in shadow", unit: share,
					text:    "Share of its checks that each rule would refuse. Check this figure before mode: shadow becomes enforce: it should be about the share of the traffic that you mean to refuse, on a quiet day and on a busy one. Rules in shadow that would refuse no request are at 0, as are all enforced rules.",
					queries: []query{{"{{rule}}", shareOf("rule", `weir_decisions_total{@,rule=~"$rule",outcome="shadow_limited"}`, `weir_decisions_total{@,rule=~"$rule"}`)}},
				},
				{
					id: 5, kind: table, title: "Rules", unit: plain, width: 24, height: 9,
					text: "One row for each rule, as of now. A rule without a row matches nothing; one that limits most of its checks is either under attack or too tight. regionctl limits explain shows which rules match a given request.",
					columns: []column{
						{"Allowed", perSecond}, {"Limited", perSecond}, {"Limited share", share}, {"Would limit (shadow)", perSecond}, {"Errors", perSecond},
					},
					queries: []query{
						{"", `sum by (rule) (rate(weir_decisions_total{@,rule=~"$rule",outcome="allowed"}[$__rate_interval]))`},
						{"", `sum by (rule) (rate(weir_decisions_total{@,rule=~"$rule",outcome="limited"}[$__rate_interval]))`},
						{"", shareOf("rule", `weir_decisions_total{@,rule=~"$rule",outcome="limited"}`, `weir_decisions_total{@,rule=~"$rule"}`)},
						{"", `sum by (rule) (rate(weir_decisions_total{@,rule=~"$rule",outcome="shadow_limited"}[$__rate_interval]))`},
						{"", `sum by (rule) (rate(weir_decisions_total{@,rule=~"$rule",outcome="error"}[$__rate_interval]))`},
					},
				},
				{
					id: 6, kind: series, title: "Allowed by rule", unit: perSecond, width: 12,
					text:    "Checks that passed. A line that drops to 0 while there is traffic is a rule that no longer matches, or is gone.",
					queries: []query{{"{{rule}}", `sum by (rule) (rate(weir_decisions_total{@,rule=~"$rule",outcome="allowed"}[$__rate_interval]))`}},
				},
				{
					id: 7, kind: series, title: "Limited by rule", unit: perSecond, width: 12,
					text:    "Checks that refused a request. One rule far above the others, because of one client, is an attacker; many rules at once after a change of the rules (the blue mark) is the change.",
					queries: []query{{"{{rule}}", `sum by (rule) (rate(weir_decisions_total{@,rule=~"$rule",outcome="limited"}[$__rate_interval]))`}},
				},
			}},
			behaviorRow(),
			{id: 10, title: "Against its own past", panels: []panel{
				{
					id: 11, kind: series, title: "Limited share and what is usual", unit: share, width: 12,
					text: "The share of requests limited in five minutes, and the band of four standard deviations around its mean of a day. Needs the recording rules. Outside its own band, and five points or more from this hour yesterday, the alert fires. With several PoPs selected, the band spans all of theirs, and a PoP inside it may be outside its own: select that PoP, or use Deviation.",
					lines: []line{
						{"usual, upper", gray}, {"usual, lower", gray},
					},
					queries: []query{
						{"{{region}} {{pop}}", `pop:weir_limited:ratio_rate5m{@}`},
						{"usual, upper", `max(avg_over_time(pop:weir_limited:ratio_rate5m{@}[1d]) + 4 * clamp_min(stddev_over_time(pop:weir_limited:ratio_rate5m{@}[1d]), 0.0125))`},
						{"usual, lower", `clamp_min(min(avg_over_time(pop:weir_limited:ratio_rate5m{@}[1d]) - 4 * clamp_min(stddev_over_time(pop:weir_limited:ratio_rate5m{@}[1d]), 0.0125)), 0)`},
					},
				},
				{
					id: 12, kind: series, title: "Deviation", unit: plain, width: 12, signed: true, below: red, steps: []step{{-4, "transparent"}, {4, red}},
					text:    "How many standard deviations the limited share is from its mean of a day. Within 2 is ordinary; the dashed lines are the alert's threshold, if the share has also moved by five points. Above 4: an attack, a broken client, or rules that are too tight. Below -4: what is usually refused passes, so check whether a rule is gone or matches less, and whether the rules are stale.",
					queries: []query{{"{{region}} {{pop}}", `pop:weir_limited:deviation{@}`}},
				},
			}},
			{id: 20, title: "What decides, and how fast", panels: []panel{
				{
					id: 21, kind: series, title: "Checks by source", unit: perSecond, stacked: true,
					text:    "redis is exact. denied_memory is a refusal that the node remembered, which is exact too and needs no call: it grows under attack, and Redis's load does not. lease is a unit that the node was granted in advance (consistency: leased), which is never over the limit either. reported is a decision by what the node knows (consistency: reported), which may exceed a limit: see Overshoot. memory is a node without Redis. fallback is a node that counts alone because Redis does not answer in time: limits then hold only approximately.",
					queries: []query{{"{{source}}", `sum by (source) (rate(weir_decisions_total{@,rule=~"$rule"}[$__rate_interval]))`}},
				},
				{
					id: 22, kind: series, title: "Time to decide", unit: seconds, steps: []step{{0.025, red}},
					text: "How long requests wait for their decision, by source. redis is about one round trip. The dashed line is the default budget, store.timeout: what takes longer is decided by on_store_failure.",
					queries: []query{
						{"p99 {{source}}", `histogram_quantile(0.99, sum by (source, le) (rate(weir_decision_seconds_bucket{@}[$__rate_interval])))`},
						{"p50 {{source}}", `histogram_quantile(0.5, sum by (source, le) (rate(weir_decision_seconds_bucket{@}[$__rate_interval])))`},
					},
				},
				{
					id: 23, kind: heat, title: "Time to decide in Redis", unit: seconds,
					text:    "Each column is a moment, each cell how many decisions took that long. One dark band is healthy. A second band above it is a slow or distant shard; a smear upwards is a network or a Redis at its limit.",
					queries: []query{{"{{le}}", `sum by (le) (rate(weir_decision_seconds_bucket{@,source="redis"}[$__rate_interval]))`}},
				},
				{
					id: 24, kind: series, title: "Decided without Redis", unit: share,
					text:    "Share of the checks that fell back to a node's own count. 0 is healthy. While it is not 0, each node allows its part of each limit, so a client that reaches few nodes is refused too early: see Burn rate: refused by fault on Fleet.",
					queries: []query{{"{{region}} {{pop}}", shareOf("region, pop", `weir_decisions_total{@,rule=~"$rule",source="fallback"}`, `weir_decisions_total{@,rule=~"$rule"}`)}},
				},
				{
					id: 25, kind: series, title: "Decisions that the store could not make", unit: perSecond,
					text: "In total, and by kind: timeout (the budget ran out), breaker_open (calls to the shard are paused after failures), connection, queue_full, unavailable (a cluster without that slot), reply (Redis refused: check its log).",
					queries: []query{
						{"{{kind}}", `sum by (kind) (rate(weir_store_errors_total{@}[$__rate_interval]))`},
						{"total", `sum(rate(weir_store_errors_total{@}[$__rate_interval])) or 0 * sum(weir_store_up{@})`},
					},
				},
				{
					id: 27, kind: series, title: "Leases", unit: plain,
					text: "Keys that nodes hold a lease of, and the units that they may still spend without Redis: rules with consistency: leased. A client may be refused early by what the other nodes hold. None while no key of such a rule is busy.",
					queries: []query{
						{"keys, {{rule}}", `sum by (rule) (weir_leases{@,rule=~"$rule"})`},
						{"units held, {{rule}}", `sum by (rule) (weir_lease_units_held{@,rule=~"$rule"})`},
					},
				},
				{
					id: 28, kind: series, title: "What becomes of leased units", unit: perSecond,
					text:    "granted is what Redis charged in advance, spent what requests used of it, returned what came back unused. stranded is neither: nodes that died, or returns that Redis did not confirm; it counts until it leaves the window. Much returned next to little spent means that demand is uneven.",
					queries: []query{{"{{fate}}", `sum by (fate) (rate(weir_lease_units_total{@,rule=~"$rule"}[$__rate_interval]))`}},
				},
				{
					id: 34, kind: series, title: "Overshoot", unit: share,
					text: "By what part a limit was exceeded in the last 30 to 60 seconds, the worst key of each rule with consistency: reported, and the most that is to be expected at the rate at which it was asked for. Above that line reports take too long: see Time to decide in Redis and Decisions that the store could not make.",
					queries: []query{
						{"{{rule}}", `max by (rule) (weir_overshoot_ratio{@,rule=~"$rule"})`},
						{"{{rule}}, bound", `max by (rule) (weir_overshoot_bound_ratio{@,rule=~"$rule"})`},
					},
				},
				{
					id: 35, kind: series, title: "Reported units", unit: perSecond,
					text: "What nodes admitted and reported, and the keys that they know the counts of. lost are units of reports without an answer: if Redis has not counted them, they pass in addition.",
					queries: []query{
						{"{{fate}}", `sum by (fate) (rate(weir_reported_units_total{@,rule=~"$rule"}[$__rate_interval]))`},
						{"keys", `sum(weir_reported_keys{@,rule=~"$rule"})`},
					},
				},
				{
					id: 26, kind: series, title: "Calls to Redis", unit: plain,
					text: "Round trips per second, and the decisions that shared each one. Under load the second grows and the first does not, thanks to batching.",
					queries: []query{
						{"round trips per second", `sum(rate(weir_store_batch_size_count{@}[$__rate_interval]))`},
						{"decisions in each", `sum(rate(weir_store_batch_size_sum{@}[$__rate_interval])) / (sum(rate(weir_store_batch_size_count{@}[$__rate_interval])) > 0)`},
					},
				},
			}},
			{id: 50, title: "Optional: Envoy's rate limit service, by listen.rls", folded: true, panels: []panel{
				{
					id: 51, kind: series, title: "Calls by outcome (optional)", unit: perSecond, stacked: true,
					text:    "Calls that Envoys make to listen.rls. over_limit is a refusal. invalid calls cannot be read, and Envoy then does what failure_mode_deny says: correct its configuration. unavailable means that a node has never had rules. Empty without listen.rls.",
					queries: []query{{"{{outcome}}", `sum by (outcome) (rate(weir_rls_calls_total{@}[$__rate_interval]))`}},
				},
				{
					id: 52, kind: series, title: "Time to answer a call (optional)", unit: seconds, steps: []step{{0.025, red}},
					text: "Without the network between Envoy and the node. The filter's timeout must be longer than the slowest of these and a round trip. The dashed line is the default budget, store.timeout.",
					queries: []query{
						{"p99", `histogram_quantile(0.99, sum by (le) (rate(weir_rls_call_seconds_bucket{@}[$__rate_interval])))`},
						{"p50", `histogram_quantile(0.5, sum by (le) (rate(weir_rls_call_seconds_bucket{@}[$__rate_interval])))`},
					},
				},
				{
					id: 53, kind: series, title: "Connections refused (optional)", unit: perSecond,
					text:    "Connections to listen.rls closed, by reason: unauthenticated is not in listen.rls.from or has no certificate yet, full is more than 4096, memory is the one whose open streams took the most, flood sent too many frames that no call needs. Envoys that are not listed get no answers.",
					queries: []query{{"{{region}} {{pop}} {{reason}}", `sum by (region, pop, reason) (rate(weir_rls_connections_refused_total{@}[$__rate_interval]))`}},
				},
			}},
			{id: 80, title: "Optional: rules with an experiment", folded: true, panels: []panel{
				{
					id: 81, kind: series, title: "Refused by variant (optional)", unit: share, atMost: 1,
					text:    "Share of checks that each variant refuses; in shadow mode, would refuse. Whether a difference is more than chance, only regionctl rules compare says: a few clients that send much move these lines. Empty without an experiment.",
					queries: []query{{"{{rule}} {{variant}}", shareOf("rule, variant", `weir_experiment_checks_total{@,rule=~"$rule",outcome="limited"}`, `weir_experiment_checks_total{@,rule=~"$rule",outcome=~"allowed|limited"}`)}},
				},
				{
					id: 82, kind: series, title: "Errors by variant (optional)", unit: share, atMost: 1,
					text:    "Share of 5xx among the answers to requests that each variant let through. If the experiment's rises, end it: publish the rule without experiment.",
					queries: []query{{"{{rule}} {{variant}}", shareOf("rule, variant", `weir_experiment_answers_total{@,rule=~"$rule",outcome="error"}`, `weir_experiment_answers_total{@,rule=~"$rule"}`)}},
				},
				{
					id: 83, kind: series, title: "Waiting and deciding by variant (optional)", unit: seconds,
					text: "What a check costs: in waiting, the Retry-After of refusals, and in deciding, mostly the way to Redis.",
					queries: []query{
						{"wait, {{rule}} {{variant}}", `sum by (rule, variant) (rate(weir_experiment_wait_seconds_total{@,rule=~"$rule"}[$__rate_interval])) / (sum by (rule, variant) (rate(weir_experiment_checks_total{@,rule=~"$rule",outcome=~"allowed|limited"}[$__rate_interval])) > 0)`},
						{"decision, {{rule}} {{variant}}", `sum by (rule, variant) (rate(weir_experiment_decision_seconds_total{@,rule=~"$rule"}[$__rate_interval])) / (sum by (rule, variant) (rate(weir_experiment_checks_total{@,rule=~"$rule",outcome=~"allowed|limited"}[$__rate_interval])) > 0)`},
					},
				},
				{
					id: 84, kind: series, title: "Worst window by variant (optional)", unit: plain,
					text:    "The most that one key passed at one node in any window since the node began to count. Above a limit, it shows what the algorithm lets pass around its edges.",
					queries: []query{{"{{rule}} {{variant}}", `max by (rule, variant) (weir_experiment_worst_window{@,rule=~"$rule"})`}},
				},
			}},
			{id: 60, title: "Optional: messages between nodes, by listen.peer", folded: true, panels: []panel{
				{
					id: 61, kind: series, title: "Messages to other regions (optional)", unit: perSecond,
					text:    "Messages to the nodes of each region, by how they ended. unreachable is a network, a node or a region that is down; refused a certificate or an address that is wrong; version two releases too far apart. Empty without listen.peer.",
					queries: []query{{"{{peer}} {{result}}", `sum by (peer, result) (rate(weir_peer_messages_total{@,direction="out"}[$__rate_interval]))`}},
				},
				{
					id: 62, kind: series, title: "Time to a reply (optional)", unit: seconds,
					text:    "From a message to its reply, by region: the network's round trip, and what the other node takes.",
					queries: []query{{"{{peer}} p99", `histogram_quantile(0.99, sum by (le, peer) (rate(weir_peer_round_trip_seconds_bucket{@}[$__rate_interval])))`}},
				},
				{
					id: 63, kind: series, title: "Traffic between nodes (optional)", unit: bytesPerSecond,
					text:    "Messages and replies, compressed, by region. They grow with the keys of global limits that are busy, not with requests; a jump without one is a node that resends.",
					queries: []query{{"{{peer}} {{direction}}", `sum by (peer, direction) (rate(weir_peer_bytes_total{@}[$__rate_interval]))`}},
				},
				{
					id: 64, kind: series, title: "Nodes that do not answer (optional)", unit: plain,
					text: "Nodes that do not answer those of a PoP, and connections to listen.peer that were refused because there were too many.",
					queries: []query{
						{"{{region}} {{pop}} down", `max by (region, pop) (weir_peer_nodes_down{@})`},
						{"{{region}} {{pop}} refused per second", `sum by (region, pop) (rate(weir_peer_connections_refused_total{@}[$__rate_interval]))`},
					},
				},
			}},
			{id: 70, title: "Optional: limits that regions share, by scope: global", folded: true, panels: []panel{
				{
					id: 71, kind: series, title: "Age of what is known of other regions (optional)", unit: seconds,
					text:    "How old a region's knowledge of another's counts may be: usually the round trip and two tenths of a second. The limits may be exceeded by what is asked for meanwhile. It grows while a region is cut off.",
					queries: []query{{"{{region}} of {{from}}", `max by (region, from) (weir_global_lag_seconds{@})`}},
				},
				{
					id: 72, kind: series, title: "Over the limit, all regions (optional)", unit: share,
					text: "The largest part by which all regions together exceeded a limit in the last 30 to 60 s, by rule, and by how much they may at ten times the limit and the present age.",
					queries: []query{
						{"{{rule}}", `max by (rule) (weir_global_overshoot_ratio{@})`},
						{"{{rule}} bound", `max by (rule) (weir_global_overshoot_bound_ratio{@})`},
					},
				},
				{
					id: 73, kind: series, title: "Counters of shared limits (optional)", unit: plain,
					text: "Counters that the nodes of a region keep, and those that other regions must know because they are near their limits or grow fast. Uncounted are units of which others do not hear, because there are too many keys.",
					queries: []query{
						{"{{region}} {{state}}", `sum by (region, state) (weir_global_keys{@})`},
						{"{{region}} uncounted per second", `sum by (region) (rate(weir_global_uncounted_total{@}[$__rate_interval]))`},
					},
				},
				{
					id: 74, kind: series, title: "Rights in escrow (optional)", unit: plain,
					text: "Units of limits in escrow that a region holds in the present windows, by rule, of keys that its nodes have seen lately; those that move from or to it; and how many regions' parts it may spend: usually 1, 2 if it is the heir of a dead region, 0 if no majority of the regions has reserved its own for it.",
					queries: []query{
						{"{{region}} {{rule}} held", `sum by (region, rule) (weir_global_rights{@})`},
						{"{{region}} {{direction}} per second", `sum by (region, direction) (rate(weir_global_rights_total{@}[$__rate_interval]))`},
						{"{{region}} parts", `min by (region) (weir_global_parts{@})`},
					},
				},
			}},
		},
	}
}
