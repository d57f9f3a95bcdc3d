package dashboards

// behaviorRow shows what the behavior policy sees and does.
func behaviorRow() row {
	return row{id: 40, title: "Behavior", panels: []panel{
		{
			id: 41, kind: series, title: "Requests above the mildest tier", unit: perSecond, stacked: true,
			text:    "By what the behavior policy did with them, or in shadow mode would have done: passed (perhaps under smaller limits), delayed, refused, and crowded: refused because 1,000 requests are already delayed. None without a policy, or while no client misbehaves.",
			queries: []query{{"{{tier}}, {{effect}} ({{mode}})", `sum by (tier, effect, mode) (rate(weir_behavior_requests_total{@}[$__rate_interval]))`}},
		},
		{
			id: 42, kind: series, title: "Entered a severer tier", unit: perSecond,
			text: "Clients, and routes where credentials are guessed, that entered a tier, and the signals that had part in it. The log names the clients, a second apart; regionctl limits explain shows one. Many at once after a change of the site or of the policy are the change.",
			queries: []query{
				{"{{kind}}, {{tier}}", `sum by (kind, tier) (rate(weir_behavior_rises_total{@}[$__rate_interval]))`},
				{"signal {{signal}}", `sum by (signal) (rate(weir_behavior_signals_total{@}[$__rate_interval]))`},
			},
		},
		{
			id: 47, kind: series, title: "One view for a region", unit: plain,
			text: "Nodes that evaluate clients together, nodes that evaluate alone because Redis does not answer, subjects that nodes reported to each other in the last second, and subjects per minute that entered a tier only because of several nodes' combined counts: clients spread over nodes.",
			queries: []query{
				{"together", `max(weir_behavior_nodes{@})`},
				{"alone", `sum(weir_behavior_alone{@})`},
				{"reported, {{kind}}", `sum by (kind) (weir_behavior_reported{@})`},
				{"spread, {{kind}}, {{tier}}", `sum by (kind, tier) (increase(weir_behavior_region_rises_total{@}[1m]))`},
			},
		},
		{
			id: 43, kind: series, title: "Subjects kept", unit: plain,
			text: "Clients and routes that the nodes keep, those per second that gave way because policy.subjects is reached, requests per second of subjects that could not be kept, and requests that wait now.",
			queries: []query{
				{"{{kind}}", `sum by (kind) (weir_behavior_subjects{@})`},
				{"{{kind}}, gave way", `sum by (kind) (rate(weir_behavior_evicted_total{@}[$__rate_interval]))`},
				{"{{kind}}, not kept", `sum by (kind) (rate(weir_behavior_untracked_total{@}[$__rate_interval]))`},
				{"waiting", `sum(weir_behavior_delayed{@})`},
			},
		},
		{
			id: 44, kind: series, title: "Behavior policies", unit: plain,
			text: "Nodes by the version of the policy that they run, nodes that cannot read the file or Consul, and documents refused and failures of policy.cache in five minutes. Two versions for long mean that a node did not get the file, or refused it.",
			queries: []query{
				{"{{version}} ({{mode}})", `count by (version, mode) (weir_behavior_policy_info{@})`},
				{"refused", `sum(increase(weir_behavior_policy_rejected_total{@}[5m]))`},
				{"cannot read its source", `sum(1 - weir_behavior_policy_source_up{@})`},
				{"cache failed", `sum(increase(weir_behavior_policy_cache_errors_total{@}[5m]))`},
			},
		},
		{
			id: 45, kind: series, title: "Clients blocked by hand", unit: perSecond,
			text:    "Requests answered 403 because an operator blocks the client's network, by PoP. The log names some of the clients; regionctl clients list has who, why and until when.",
			queries: []query{{"{{pop}}", `sum by (pop) (rate(weir_client_blocks_total{@}[$__rate_interval]))`}},
		},
		{
			id: 46, kind: series, title: "Networks blocked and allowed", unit: plain,
			text: "The most networks that a node blocks and allows, the fewest if nodes differ, nodes that cannot read the list from Consul, and failures of clients.cache in five minutes. Nodes differ for seconds after a change; for longer, one does not follow.",
			queries: []query{
				{"{{action}}", `max by (action) (weir_client_networks{@})`},
				{"{{action}}, fewest", `min by (action) (weir_client_networks{@})`},
				{"cannot read the list", `sum(1 - weir_client_networks_source_up{@})`},
				{"cache failed", `sum(increase(weir_client_networks_cache_errors_total{@}[5m]))`},
			},
		},
	}}
}
