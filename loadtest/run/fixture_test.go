package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

var day = time.Date(2026, 11, 21, 16, 40, 51, 0, time.UTC)

// at is a phase by the second in which it begins.
type at struct {
	second float64
	name   string
}

// played is a scenario in which every region had these answers each second.
func played(name, about string, seconds float64, phases []at, rules []string, each func(region string, i int) second) result {
	r := result{Name: name, About: about, Began: day, Seconds: seconds, Fallback: map[string]int{}}
	for _, p := range phases {
		r.Planned = append(r.Planned, p.name)
		r.Phases = append(r.Phases, phase{p.name, day.Add(time.Duration(p.second * 1e9))})
	}
	if len(phases) == 0 {
		phases = []at{{}}
	}
	for _, region := range []string{"ap-south", "eu-west", "us-east"} { // k6 has its own order
		t := traffic{Region: region, P50: 1.094282, P95: 2.247216}
		for i := range int(seconds) + 1 {
			s := each(region, i)
			if i == int(seconds) {
				s.Passed, s.Limited = s.Passed/20, s.Limited/20 // cut short
			}
			t.Each = append(t.Each, s)
			t.Passed, t.Limited, t.Shed, t.Failed = t.Passed+s.Passed, t.Limited+s.Limited, t.Shed+s.Shed, t.Failed+s.Failed
		}
		r.Traffic = append(r.Traffic, t)
		parts := len(rules) * len(phases)
		for _, rule := range rules {
			for _, p := range phases {
				r.Report = append(r.Report, line{
					Region: region, Rule: rule, Phase: p.name, Admitted: t.Passed / parts, Refused: t.Limited / parts,
					Unknown: t.Shed / parts, RetryChecked: t.Limited / parts,
				})
			}
		}
		r.Checks = append(r.Checks,
			check{"http_req_duration{region:" + region + "}", "p(95)<1000", true}, check{"http_req_failed{region:" + region + "}", "rate==0", true},
			check{"weir_overadmitted{region:" + region + "}", "count==0", true}, check{"weir_wrongly_refused{region:" + region + "}", "count==0", true})
	}
	return r
}

// exceed makes the oracle report a window.
func (r *result) exceed(region, phase string, over, excess, limit int, window string) {
	for i := range r.Report {
		l := &r.Report[i]
		if l.Region != region || l.Phase != phase {
			continue
		}
		l.Overadmitted = over
		text := fmt.Sprintf(`{"key":"10.232.7.4","at":"2026-11-21T16:43:02.888438Z","excess":%d,"limit":%d,"window":%q,"percent":%d}`, excess, limit, window, 100*excess/limit)
		if err := json.Unmarshal([]byte(text), &l.Worst); err != nil {
			panic(err) // of constants
		}
	}
}

// wave is an uneven load of about n.
func wave(n, i int) int { return n + n*[]int{0, 3, -2, 5, 1, -4, 2}[i%7]/60 }

// realistic is a run like those of make loadtest, with one failed scenario.
func realistic() *report {
	calm := func(passed, limited int) func(string, int) second {
		return func(region string, i int) second {
			return second{Passed: wave(passed-4*len(region), i), Limited: wave(limited+3*len(region), i+2)}
		}
	}
	why := "While the master is unreachable, each of the region's 4 edges counts its keys on its own against ceil(limit / nodes) = ceil(20 / 4) = 5: at most 4 × 5 = 20 in a window, in addition to the 20 that Redis had admitted just before or admits just after. So one window holds at most 40. A client that uses one edge alone is refused at 5: wrongly by the region's count, rightly by the edge's."

	step := played("shedder-step", "four times the traffic from one second to the next, knees of 0 and 5 in flight", 25.6, []at{{0.3, "before"}, {5.3, "step"}, {19.3, "after"}}, []string{"api"},
		func(_ string, i int) second {
			if i > 5 && i < 16 {
				return second{Passed: wave(68, i), Limited: 4, Shed: wave(12, i)}
			}
			return second{Passed: 20, Limited: 4}
		})
	for i := range step.Traffic {
		step.Traffic[i].P50, step.Traffic[i].P95 = 302.1, 303.4
	}
	step.Repeated = []string{"41 decisions were made without Redis where nothing was broken: it did not answer within store.timeout, the machine is too busy. Found: us-east, rule api, phase step: 7 over-admitted, 0 wrongly refused, 0 times Retry-After wrong; the bound is 0"}

	loss := played("region-loss", "all processes of eu-west are killed, and started again", 48, []at{{0.1, "before"}, {5.1, "loss"}, {15.2, "recovery"}, {40.1, "after"}}, []string{"api"},
		func(region string, i int) second {
			if region == "eu-west" && i > 4 && i < 9 {
				return second{Failed: 58}
			}
			return second{Passed: wave(52, i), Limited: wave(8, i)}
		})
	loss.Bounds = []bound{{Rule: "api", Region: "eu-west", Phases: []string{"loss", "recovery"}, Percent: 100, Why: why}}
	loss.Fallback["eu-west"] = 12
	longest := 3.536
	loss.Waits = []wait{{Metric: "failed_seconds_after_loss", Seconds: 7, Longest: &longest, Why: "An answer names the edges of one PoP, so its clients fail until the router has noticed the loss (5 s at most) and the answer that they have is older than its TTL of 2 s."}}

	master := played("redis-master-loss", "a Redis master of eu-west is killed, its replica takes over, it comes back", 29, []at{{0.1, "before"}, {5.1, "fault"}, {13.2, "recovery"}, {23.9, "after"}}, []string{"api"},
		func(_ string, i int) second { return second{Passed: 75 + 78*(i%2), Limited: 105 - 78*(i%2)} })
	master.Bounds = []bound{{Rule: "api", Region: "eu-west", Phases: []string{"fault", "recovery"}, Percent: 100, Fallback: true, Least: 768, Why: why}}
	master.Fallback["eu-west"] = 1309
	master.exceed("eu-west", "fault", 153, 24, 20, "2s")
	master.exceed("us-east", "after", 3, 1, 20, "2s")
	master.Checks[10].OK = false

	swap := played("rules-swap", "a limit is halved and restored, by regionctl, under load", 26, []at{{0.1, "before"}, {4.1, "halved"}, {13.2, "restored"}}, []string{"api", "rolling"}, calm(125, 5))
	swap.Waits = []wait{{Metric: "rules", Seconds: 5, Why: "Rules reach every edge within 5 s; so long nothing is said of the rule that changes, and everything of the others."}}

	spill := played("spill", "ams1 is asked for 1.3 times what it can serve: it shed 13.4% at first and 0.2% once settled", 142, []at{{0.2, "before"}, {15.2, "step"}, {60.2, "settled"}, {90.2, "after"}, {130.2, "home"}}, []string{"spill"},
		func(region string, i int) second {
			if region == "eu-west" && i > 16 && i < 22 {
				return second{Passed: wave(90, i), Limited: 1, Shed: wave(25, i)}
			}
			return second{Passed: wave(60, i), Limited: 1}
		})

	shadow := played("shadow", "a rule in shadow passed off as enforced: must be found", 5, nil, []string{"in-shadow"}, func(string, int) second { return second{Passed: 60} })
	shadow.MustFail, shadow.Status = true, thresholdsFailed
	shadow.Checks = []check{{"weir_overadmitted", "count==0", false}}
	for i, r := range three.Regions {
		shadow.exceed(r.Name, "", 213, 22+i, 5, "1s")
	}

	all := report{Began: day, Seconds: 185.9, Form: "short", Lab: three, Scenarios: []result{
		played("steady", "five algorithms, many clients", 12, nil, []string{"bucket", "fixed", "leaky", "rolling", "sliding"}, calm(180, 5)),
		played("flash-crowd", "five times the traffic, most of it of three clients a region", 14, nil, []string{"api"}, func(_ string, i int) second {
			if i > 2 && i < 10 {
				return second{Passed: wave(40, i), Limited: wave(160, i)}
			}
			return second{Passed: 40}
		}),
		played("attacker", "a client that never waits, at ten times its limit, among 5,000 others", 12, nil, []string{"api"}, func(_ string, i int) second {
			return second{Passed: 40 + 20*(i%2), Limited: 100 - 20*(i%2)}
		}),
		played("zipf-tail", "20,000 clients a region by Zipf (1.1)", 12, nil, []string{"api"}, calm(165, 2)),
		step, loss, master, swap, spill,
		played("leases", "one big tenant, allowed", 17, nil, []string{"leased", "tenant"}, calm(110, 30)),
		played("reports", "clients at twice a reported limit", 24, nil, []string{"debt", "reported"}, calm(200, 200)),
		shadow,
	}}
	for i := range all.Scenarios {
		all.Scenarios[i].Problems = all.Scenarios[i].judge(three)
	}
	return &all
}

// awkward is a run that strains the page: the full form, long names and phases in quick
// succession, large numbers, a region that fell silent and one without any answer.
func awkward() *report {
	long := strings.Repeat("a-very-long-name", 4)
	phases := []at{{0, "before"}, {1, "first"}, {2, "second"}, {3, "third"}, {200, long}, {298, "recovery"}, {299.5, "after"}}
	busy := played("busy", strings.Repeat("much is said of this ", 20), 300, phases, []string{"api", long}, func(_ string, i int) second {
		return second{Passed: wave(1_250_000, i), Limited: wave(3000, i), Shed: 999_999 * (i % 2), Failed: i}
	})
	busy.Traffic[0].Each = busy.Traffic[0].Each[:120]
	busy.Traffic = busy.Traffic[:2]
	busy.Bounds = []bound{
		{Rule: "api", Region: "eu-west", Phases: []string{"first", "second"}, Percent: 12.5, Why: long},
		{Rule: long, Region: "ap-south", Phases: []string{"recovery"}, Percent: 1000},
	}
	busy.exceed("eu-west", "first", 1_000_000, 123_456, 20, "2s")
	none := result{Name: "none", Began: day}
	one := played("one", "a second", 1, []at{{0, "all"}}, []string{"api"}, func(string, int) second { return second{Passed: 1, Limited: 1} })
	all := report{Began: day, Seconds: 3600, Form: "full", Lab: three, Scenarios: []result{busy, none, one}}
	for i := range all.Scenarios {
		all.Scenarios[i].Problems = all.Scenarios[i].judge(three)
	}
	return &all
}
