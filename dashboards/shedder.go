package dashboards

import "github.com/weir-edge/weir/internal/shedding"

// shedder shows why and what the load shedder refuses, and what other settings would.
func shedder() dashboard {
	return dashboard{
		uid: "weir-shedder", title: "weir / Shedder",
		text: "How busy each upstream group is, what the shedder refuses because of it, and what candidates would. Purple marks are changes of the settings: judge a change by what is left and right of its mark. " +
			"Dashed lines are the active settings' thresholds, knees and caps, so they move with a change.",
		variables: []object{
			choice("upstream", "Upstream group", `label_values(weir_shed_level{job=~"$job",region=~"$region",pop=~"$pop"}, upstream)`, ".+"),
		},
		rows: []row{
			{id: 1, title: "Why", panels: []panel{
				{
					id: 2, kind: series, title: "Utilization by signal", unit: share, width: 16, height: 10, atMost: 1.05, steps: []step{{1, orange}},
					text: "Each signal of the busiest node, between its knees: 0 is the low knee and 1 the high one, so a signal at 0.5 is halfway. The highest signal counts. " +
						"Above start (dashed, red) shedding begins: after the patience, or sooner the more demand exceeds service; while it sheds, utilization is held at target (dashed, green). " +
						"A line at 1 (dashed, orange) is past its high knee, and no longer shows how far. One at 0 even at the busiest hour has knees that are too high. " +
						"A missing signal has no line: see Signals measured.",
					lines: []line{{"start", red}, {"target", green}},
					queries: []query{
						{"{{signal}} ({{upstream}})", `max by (signal, upstream) (weir_utilization{@,upstream=~"$upstream"})`},
						{"start", `min(weir_shed_threshold{@,upstream=~"$upstream",threshold="start"})`},
						{"target", `min(weir_shed_threshold{@,upstream=~"$upstream",threshold="target"})`},
					},
				},
				{
					id: 3, kind: series, title: "Level", unit: plain, height: 10,
					text:    "How far shedding has gone on the node where it has gone farthest. 0 is none; each whole step is one class shed completely, the last one first. With the usual classes 1.4 is all of test and 40% of read. It never reaches the first class. If the level oscillates, knees or caps are too close.",
					queries: []query{{"{{region}} {{pop}} {{upstream}}", `max by (region, pop, upstream) (weir_shed_level{@,upstream=~"$upstream"})`}},
				},
				{
					id: 4, kind: states, title: "Signals measured", unit: plain, width: 16, words: map[int]any{
						0: object{"text": "missing", "color": red, "index": 0}, 1: object{"text": "measured", "color": green, "index": 1},
					},
					text:    "A signal that the settings name but that is missing or stale on some node is ignored there, never guessed. If all are, only caps shed. upstream_wait and sched_latency come and go on a quiet node, which has too few samples, and all are missing briefly after a start. GET /v1/shedder says why.",
					queries: []query{{"{{signal}} ({{upstream}})", `min by (signal, upstream) (weir_shed_signal_up{@,upstream=~"$upstream"})`}},
				},
				{
					id: 5, kind: series, title: "In flight by class", unit: plain, stacked: true,
					text:  "Requests between admission and the end of the exchange with the upstream, over all nodes. Dashed: the cap (max_in_flight) of the first class, which all classes together stay below; the others have lower ones. A node refuses at its own cap, so a busy one can reach it long before the sum does. By Little's law requests in flight are requests per second times seconds each: they grow when either does.",
					lines: []line{{"cap", red}},
					queries: []query{
						{"{{class}} ({{upstream}})", `sum by (class, upstream) (weir_inflight{@,upstream=~"$upstream"})`},
						{"cap", `sum(max by (region, pop, node, upstream) (weir_inflight_max{@,upstream=~"$upstream"}))`},
					},
				},
			}},
			{id: 40, title: "Signals between their knees", panels: []panel{
				signal(41, "In flight, between its knees", "inflight", plain,
					"Requests sent to the origin and not yet answered, on the busiest node. The signal to rely on: whatever is slow piles up here. Set the high knee to the most that the origin can hold and still answer in time."),
				signal(42, "Upstream wait, between its knees", "upstream_wait", seconds,
					"How long a request waits for its answer, on the node where that is longest. No line on a quiet node, which has too few samples. Set the low knee above a slow but healthy hour."),
				signal(43, "CPU, between its knees", "cpu", share,
					"The node's CPU use, as a share of what it may use. It protects the node, not the origin: if this is the highest signal, add nodes or cores."),
				signal(44, "Scheduling latency, between its knees", "sched_latency", seconds,
					"99th percentile of how long work on the node waits for a core. It rises after CPU is full, or when other processes on the machine take it. No line on a quiet node."),
				{
					id: 45, kind: series, title: "What nodes estimate about the origin", unit: plain, width: 12, lines: []line{{"active knee", red}},
					text: "The high knee of inflight that nodes estimate, over all nodes, next to what is in flight and to the active knee (dashed). It is estimated whether or not the settings use it (high: auto), so it shows what auto would do before you choose it, and whether a knee set by hand still fits. " +
						"It is 0 until requests have queued at the origin since the node's start. candidate lines are the knees of candidates. If estimate and in flight rise together while latency does, nodes' clocks may differ: they must drain the origin at the same moment to measure it.",
					queries: []query{
						{"estimate {{region}} {{pop}} ({{upstream}})", `sum by (region, pop, upstream) (weir_shed_auto_knee{@,upstream=~"$upstream"})`},
						{"in flight {{region}} {{pop}} ({{upstream}})", `sum by (region, pop, upstream) (weir_shed_signal_value{@,upstream=~"$upstream",signal="inflight"})`},
						{"candidate {{candidate}} ({{upstream}})", `sum by (candidate, upstream) (weir_shadow_knee{@,upstream=~"$upstream"})`},
						{"active knee", `sum(weir_shed_signal_knee{@,upstream=~"$upstream",signal="inflight",knee="high"})`},
					},
				},
				{
					id: 46, kind: series, title: "Origin without a queue", unit: seconds, width: 6,
					text:    "How long the origin takes for a request when none waits, as the nodes estimate: it should be the same on all of them. A step up is slower work, a step down faster work or a cache. A node that stays far above the others has a clock that differs, or joined while requests waited.",
					queries: []query{{"{{region}} {{pop}} {{node}} ({{upstream}})", `max by (region, pop, node, upstream) (weir_shed_base_seconds{@,upstream=~"$upstream"})`}},
				},
				{
					id: 47, kind: series, title: "Origin's full rate and probes", unit: perSecond, width: 6,
					text: "Requests per second that the origin answers with a queue, over all nodes; before there was one, the most that it has answered. Probes drain what is in flight for less than a second to measure the round trip without a queue: about one a minute for each node in an overload, none otherwise. " +
						"Undecided ones learned nothing; if they persist, the first class alone fills the origin.",
					queries: []query{
						{"full rate {{region}} {{pop}} ({{upstream}})", `sum by (region, pop, upstream) (weir_shed_full_rate{@,upstream=~"$upstream"})`},
						{"probes {{result}}", `sum by (result) (rate(weir_shed_probes_total{@,upstream=~"$upstream"}[$__rate_interval]))`},
					},
				},
			}},
			{id: 10, title: "What", panels: []panel{
				{
					id: 11, kind: series, title: "Probability by class", unit: share, atMost: 1,
					text:    "Share of each class that the level sheds, on the node where that is most. It applies to users: at 0.4, four users in ten see only refusals and six none, until the choice rotates. A class is shed only once the one below it is at 1.",
					queries: []query{{"{{class}} ({{upstream}})", `max by (class, upstream) (weir_shed_probability{@,upstream=~"$upstream"})`}},
				},
				{
					id: 12, kind: series, title: "Shed by class", unit: perSecond, stacked: true,
					text:    "Requests refused with 503, over all upstream groups. critical must be 0: it is shed only at its cap, the origin's last protection.",
					queries: []query{{"{{class}}", `sum by (class) (rate(weir_shed_total{@}[$__rate_interval]))`}},
				},
				{
					id: 13, kind: series, title: "Shed by reason", unit: perSecond, stacked: true,
					text:    "The signal that was highest when a request was refused, or cap. inflight and upstream_wait: the origin is slow. cpu and sched_latency: the node itself is overloaded. cap for more than the first second of a flood: the caps are below the range of inflight, so raise them, or the law is cap. probe: with high: auto, a moment in which the node measures the origin.",
					queries: []query{{"{{reason}}", `sum by (reason) (rate(weir_shed_total{@}[$__rate_interval]))`}},
				},
				{
					id: 14, kind: series, title: "Goodput and shed", unit: perSecond, stacked: true,
					text: "Requests answered 2xx, and those shed. In an overload, goodput should stay about where it was at full load, and the rest be shed. If goodput falls while shed grows, too much is shed: target or the high knee is too low.",
					queries: []query{
						{"answered 2xx", `sum(rate(weir_requests_total{@,code_class="2xx"}[$__rate_interval]))`},
						{"shed", `sum(rate(weir_shed_total{@}[$__rate_interval]))`},
					},
				},
				{
					id: 15, kind: series, title: "Shed share by PoP", unit: share,
					text:    "Share of each PoP's requests that are refused. One PoP alone: its traffic or its origin. All: the origin that they share.",
					queries: []query{{"{{region}} {{pop}}", shareOf("region, pop", `weir_shed_total{@}`, `weir_requests_total{@}`)}},
				},
				{
					id: 17, kind: series, title: "Shed share by upstream group", unit: share,
					text:    "Share of each upstream group's requests that are refused. One group alone: its origin is slow or its knees are too low; the others are unaffected. Needs the recording rules.",
					queries: []query{{"{{region}} {{pop}} {{upstream}}", `upstream:weir_shed:ratio_rate5m{@,upstream=~"$upstream"}`}},
				},
				{
					id: 16, kind: series, title: "Shed while idle", unit: plain, steps: []step{{1, red}},
					text:    "What WeirShedWhileIdle counts: by level, the nodes and groups that shed while their utilization has been below 70% of target for five minutes; by cap, the nodes where all groups are that idle but a cap refuses. It should be 0: nothing shows that they are busy. Brief values after an overload are the level coming down. If it stays, look for caps below the knees, law published, or settings made by hand on one node. Needs the recording rules, which count all groups.",
					queries: []query{{"{{region}} {{pop}} {{reason}}", `sum by (region, pop, reason) (pop:weir_shed_while_idle:count{@})`}},
				},
			}},
			{id: 20, title: "What candidates would have shed", panels: []panel{
				{
					id: 21, kind: series, title: "Candidates and the live settings", unit: perSecond, width: 16, height: 9,
					text: "Requests per second that each candidate would have refused, and what the live settings refuse. " + shedding.ShadowBias +
						" Without an overload it is exact, and 0 is ideal: that candidate would have harmed nobody.",
					lines: []line{{"live", red}},
					queries: []query{
						{"{{candidate}}", `sum by (candidate) (rate(weir_shadow_shed_total{@}[$__rate_interval]))`},
						{"live", `sum(rate(weir_shed_total{@}[$__rate_interval]))`},
					},
				},
				{
					id: 22, kind: table, title: "Candidates over the time shown", unit: plain, height: 9,
					text:    "Requests that each candidate would have refused in the time shown, by class. " + shedding.ShadowBias,
					columns: []column{{"Would have shed", plain}},
					queries: []query{{"", `sum by (candidate, class) (increase(weir_shadow_shed_total{@}[$__range]))`}},
				},
				{
					id: 23, kind: series, title: "Candidates by class", unit: perSecond, width: 24, stacked: true,
					text:    "Which classes each candidate would have refused. One that reaches write where another stops at read is stricter, whatever their counts. " + shedding.ShadowBias,
					queries: []query{{"{{candidate}}: {{class}}", `sum by (candidate, class) (rate(weir_shadow_shed_total{@}[$__rate_interval]))`}},
				},
			}},
			{id: 30, title: "Upstreams and settings", panels: []panel{
				{
					id: 31, kind: series, title: "Origin's time", unit: seconds,
					text: "Time until the response headers, by upstream group. In an overload, p99 should stay near that of a busy healthy hour: keeping it there is the purpose of shedding.",
					queries: []query{
						{"p99 {{region}} {{upstream}}", `histogram_quantile(0.99, sum by (region, upstream, le) (rate(weir_upstream_seconds_bucket{@}[$__rate_interval])))`},
						{"p50 {{region}} {{upstream}}", `histogram_quantile(0.5, sum by (region, upstream, le) (rate(weir_upstream_seconds_bucket{@}[$__rate_interval])))`},
					},
				},
				{
					id: 32, kind: series, title: "Nodes by settings", unit: plain, stacked: true,
					text:    "How many nodes run each version, and its source: consul, cache (on disk, not confirmed yet), config, builtin, or admin (temporary, by hand). When a temporary version expires, the previous one returns.",
					queries: []query{{"{{version}} {{source}}", `count by (version, source) (weir_shedder_info{@})`}},
				},
				{
					id: 34, kind: series, title: "Nodes by secret", unit: plain, stacked: true,
					text:    "How many nodes choose whom to shed by each secret (shedder.secret_file), by its fingerprint: none without one, own if the node invented it. There should be one color: nodes with different secrets shed different users. A replaced secret shows as a short step.",
					queries: []query{{"{{fingerprint}}", `count by (fingerprint) (weir_shedder_secret_info{@})`}},
				},
				{
					id: 33, kind: series, title: "Settings refused", unit: plain, steps: []step{{1, red}},
					text:    "Documents in Consul that nodes refused in the last hour; the previous settings stay active. GET /v1/shedder on the node names every fault.",
					queries: []query{{"{{region}} {{pop}} {{node}}", `sum by (region, pop, node) (increase(weir_shedder_rejected_total{@}[1h]))`}},
				},
			}},
			{id: 90, title: "Limits that follow load", panels: []panel{
				{
					id: 91, kind: series, title: "Utilization that limits follow", unit: share, atMost: 1,
					text:    "Of rules with under_load: above from, their limits fall. All nodes of a region follow the same number, so lines that part for longer than a second show a node that does not reach Redis.",
					queries: []query{{"{{region}} {{pop}} ({{upstream}})", `max by (region, pop, upstream) (weir_load_followed{@,upstream=~"$upstream"})`}},
				},
				{
					id: 92, kind: series, title: "Rules whose limits are lowered", unit: plain,
					text:    "By upstream group, on the node where they are most. If it never returns to 0, the upstreams are too small for the full limits.",
					queries: []query{{"{{region}} ({{upstream}})", `max by (region, upstream) (weir_rules_lowered{@,upstream=~"$upstream"})`}},
				},
				{
					id: 93, kind: series, title: "Refused only because limits were lowered", unit: perSecond, stacked: true,
					text:    "What full limits would have let pass. It stays demand, so routers send clients to PoPs with room. High for long: the upstreams are too small, or from is too low.",
					queries: []query{{"{{region}} {{pop}} ({{upstream}})", `sum by (region, pop, upstream) (rate(weir_load_wanted_total{@,upstream=~"$upstream"}[$__rate_interval]))`}},
				},
				{
					id: 94, kind: series, title: "Nodes that follow", unit: plain,
					text: "How many nodes' utilization the followed one is the mean of, and how many nodes follow their own because Redis does not answer.",
					queries: []query{
						{"part of the mean, {{region}} ({{upstream}})", `max by (region, upstream) (weir_load_nodes{@,upstream=~"$upstream"})`},
						{"alone, {{region}}", `sum by (region) (weir_load_alone{@})`},
					},
				},
			}},
		},
	}
}

// signal shows a signal's value in its own unit, between the knees of the settings.
func signal(id int, title, name, unit, text string) panel {
	of := func(metric, more string) string {
		return metric + `{@,upstream=~"$upstream",signal="` + name + `"` + more + `}`
	}
	return panel{
		id: id, kind: series, title: title, unit: unit, width: 6,
		text:  text + " Below the low knee (dashed, green) utilization is 0; from the high knee (dashed, red) it is 1. Where nodes or groups differ, each line is the lowest of those selected, and the two may belong to different ones.",
		lines: []line{{"low knee", green}, {"high knee", red}},
		queries: []query{
			{"{{region}} {{pop}} ({{upstream}})", "max by (region, pop, upstream) (" + of("weir_shed_signal_value", "") + ")"},
			{"low knee", "min(" + of("weir_shed_signal_knee", `,knee="low"`) + ")"},
			{"high knee", "min(" + of("weir_shed_signal_knee", `,knee="high"`) + ")"},
		},
	}
}
