package ctl

import (
	"bytes"
	"math/rand/v2"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/rollout"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/pkg/region"
	"github.com/weir-edge/weir/pkg/region/consul"
)

func TestJudge(t *testing.T) {
	o := canaryOptions{maxLimited: 0.05, maxErrors: 0.01, minRequests: 100}
	traffic := func(requests, limited, errors float64) fleet.Traffic {
		return fleet.Traffic{Requests: requests, Limited: limited, Errors: errors}
	}
	f := func(canary, others fleet.Traffic, want string) {
		t.Helper()
		require.Equal(t, want, o.excess(&canary, &others))
	}
	f(fleet.Traffic{}, fleet.Traffic{}, "")
	f(traffic(1000, 70, 0), traffic(1000, 30, 0), "")
	f(traffic(1000, 90, 0), traffic(1000, 30, 0), "it limited 9.00 % of 1000 requests, the other sites 3.00 % of 1000; at most 5 points more is allowed")
	f(traffic(1000, 10, 0), traffic(1000, 300, 0), "")
	f(traffic(1000, 0, 30), traffic(1000, 0, 25), "")
	f(traffic(1000, 0, 30), traffic(1000, 0, 5), "it answered 5xx to 3.00 % of 1000 requests, the other sites to 0.50 % of 1000; at most 1 points more is allowed")
	// With nothing to compare with, the bounds are absolute.
	f(traffic(1000, 40, 9), fleet.Traffic{}, "")
	f(traffic(1000, 60, 0), fleet.Traffic{}, "it limited 6.00 % of 1000 requests, the other sites 0.00 % of 0; at most 5 points more is allowed")
	require.False(t, o.enough(&fleet.Traffic{Requests: 99}))
	require.True(t, o.enough(&fleet.Traffic{Requests: 100}))
}

// An hour of which the last ten minutes are bad does not pass on its average, nor does a
// site whose rules no longer limit what they did.
func TestJudgeWindows(t *testing.T) {
	f := func(before fleet.Traffic, limited func(minute int) float64, want string) {
		t.Helper()
		o := &canaryOptions{bake: time.Hour, maxLimited: 0.05, maxErrors: 0.01, maxFewer: 0.05, minRequests: 100}
		x := &trial{canaryOptions: o, late: newWindow(o.bake, o.minRequests), before: sample{canary: before, others: fleet.Traffic{Requests: 1000, Limited: 20}}}
		for at := time.Duration(0); at <= o.bake && x.outside < outsideLooks; at += 5 * time.Second {
			x.judge(time.Unix(0, 0).Add(at))
			x.canary.Total.Requests += 100
			x.canary.Total.Limited += 100 * limited(int(at.Minutes()))
			x.others.Total.Requests += 500
			x.others.Total.Limited += 500 * 0.02
		}
		require.Equal(t, want, x.excess)
		require.Less(t, len(x.late.samples), 2*windowSamples)
	}
	steady := func(int) float64 { return 0.02 }
	past := fleet.Traffic{Requests: 1000, Limited: 20}
	f(past, steady, "")
	f(past, func(minute int) float64 { return map[bool]float64{true: 0.28, false: 0.02}[minute >= 50] },
		"in the last 6m0s, it limited 7.42 % of 7200 requests, the other sites 2.00 % of 36000; at most 5 points more is allowed")
	f(fleet.Traffic{Requests: 1000, Limited: 200}, steady, "it limited 2.00 % of 200 requests, and 20.00 % of 1000 before the trial; at most 5 points less is allowed")
	f(fleet.Traffic{Requests: 99, Limited: 50}, steady, "")
}

// took counts requests: so many within 5 ms, and so many that took nearly a second.
func took(quick, slow float64) (t fleet.Traffic) {
	for i, bound := range adminapi.RequestBounds {
		if t.Took[i] = quick; bound >= 1 {
			t.Took[i] += slow
		}
	}
	t.Requests = quick + slow
	t.Took[len(t.Took)-1] = t.Requests
	return t
}

func TestSlower(t *testing.T) {
	o := canaryOptions{minRequests: 100, maxSlower: 2}
	f := func(before, othersBefore, now, others fleet.Traffic, want string) {
		t.Helper()
		require.Equal(t, want, o.slower("it", sample{canary: before, others: othersBefore}, sample{canary: now, others: others}))
	}
	quick, none := took(1000, 0), fleet.Traffic{}
	f(quick, quick, took(990, 10), quick, "")
	f(quick, quick, took(950, 50), quick, "5.00 % of 1000 requests to it took longer than 10ms; 99 % took at most 5ms before, and 2 times as long is allowed")
	f(quick, quick, took(950, 50), took(950, 50), "")  // slow everywhere
	f(took(950, 50), quick, took(950, 50), quick, "")  // always slow
	f(took(950, 50), quick, took(500, 500), quick, "") // no bucket tells
	f(took(99, 0), quick, took(80, 19), quick, "")     // too few
	f(took(100, 0), none, took(95, 5), none, "")       // chance
	f(took(100, 0), none, took(9700, 300), none, "")   // the past was too short to know
	f(none, quick, took(950, 50), quick, "5.00 % of 1000 requests to it took longer than 10ms; 99 % took at most 5ms elsewhere, and 2 times as long is allowed")
	f(none, none, took(950, 50), none, "") // nothing to compare with
	o.maxSlower = 0
	f(quick, quick, took(0, 1000), quick, "")
}

// Sites whose latency does not change are not halted by chance, however quiet they are and
// however often they are looked at.
func TestSlowerIsNoChance(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	o := canaryOptions{bake: 10 * time.Minute, minRequests: 100, maxSlower: 2}
	halts, trials := 0, 2000
	for trial := range trials {
		slow := []float64{0.001, 0.009, 0.02, 0.2}[trial%4]
		perLook := []int{5, 50}[trial/4%2]
		draw := func(n int) fleet.Traffic {
			late := 0
			for range n {
				if random.Float64() < slow {
					late++
				}
			}
			return took(float64(n-late), float64(late))
		}
		before, now, outside := sample{canary: draw(max(100, 6*perLook))}, sample{}, 0
		for range 120 {
			now.canary = now.canary.Plus(draw(perLook))
			if outside++; !o.enough(&now.canary) || o.slower("it", before, now) == "" {
				outside = 0
			}
			if outside == outsideLooks {
				halts++
				break
			}
		}
	}
	require.LessOrEqual(t, halts, trials/1000)
}

func TestKeys(t *testing.T) {
	k, err := parseKeys([]string{"203.0.113.7", "header:x-api-key=a=b", "path=/x", "cookie:s=1", "query:q=2", "tier=pro", "method=PUT", "host=h"})
	require.NoError(t, err)
	require.Equal(t, keys{"client_ip": "203.0.113.7", "header:X-Api-Key": "a=b", "path": "/x", "cookie:s": "1", "query:q": "2", "tier": "pro", "method": "PUT", "host": "h"}, k)
	for _, bad := range []string{"abc", "client=", "user=1", "header=1", "header:=1", "path=x", "host:a=b", "client=x"} {
		_, err := parseKeys([]string{bad})
		require.Equal(t, term.StatusUsage, term.ExitStatus(err), bad)
	}
	_, err = parseKeys([]string{"::1", "client=::2"})
	require.ErrorContains(t, err, "given twice")

	d := documentOf(t, `rules:
  - {id: all-of-it, key: [client_ip, "header:X-A", "cookie:c", "query:q", host, path, method, tier], limit: 1, window: 1m, match: {headers: {x-a: v, X-B: w}}}
  - {id: other-value, key: [client_ip], limit: 1, window: 1m, match: {headers: {X-A: other}}}
  - {id: "off", key: [client_ip], limit: 1, window: 1m, mode: "off"}
`)
	k, err = parseKeys([]string{"::1", "header:X-A=v", "cookie:c=1", "query:q=2", "host=h", "path=/p?z=9", "method=PUT", "tier=t"})
	require.NoError(t, err)
	list, lacking := k.questions(d)
	require.Empty(t, lacking)
	require.Equal(t, []question{{"all-of-it", url.Values{
		"client": {"::1"}, "host": {"h"}, "method": {"PUT"}, "tier": {"t"}, "path": {"/p?q=2&z=9"}, "cookie": {"c=1"}, "header": {"X-A:v", "X-B:w"},
	}}}, list)
}

// Clocks of different people may be wrong; the change itself knows what it replaced.
func TestBeforeIgnoresClocks(t *testing.T) {
	at := func(version string, minute int, replaced string) consul.Change {
		return consul.Change{Pointer: consul.Pointer{Version: version, AppliedAt: time.Unix(int64(minute)*60, 0)}, Replaced: replaced}
	}
	m := regionHistory{changes: []consul.Change{at("c", 9, "a"), at("b", 5, "c"), at("a", 1, "")}}
	m.pointer = &consul.Pointer{Version: "b", AppliedAt: time.Unix(300, 0)}
	p, err := m.before()
	require.NoError(t, err)
	require.Equal(t, "c", p)
	m.pointer = &consul.Pointer{Version: "d", AppliedAt: time.Unix(999, 0)} // its change was not recorded
	p, err = m.before()
	require.NoError(t, err)
	require.Equal(t, "c", p)
	m.changes = nil
	_, err = m.before()
	require.ErrorContains(t, err, "the history has no version before d; name one with --to")
}

func TestWhoami(t *testing.T) {
	t.Setenv("WEIR_USER", "ana")
	name, err := new(program).whoami("")
	require.NoError(t, err)
	require.Equal(t, "ana", name)
	name, err = new(program).whoami("bob")
	require.NoError(t, err)
	require.Equal(t, "bob", name)
	t.Setenv("WEIR_USER", "")
	name, err = new(program).whoami("")
	require.NoError(t, err)
	require.Regexp(t, ".+@.+", name)
	_, err = new(program).whoami("a\nb")
	require.Equal(t, term.StatusUsage, term.ExitStatus(err))
	_, err = new(program).whoami(strings.Repeat("x", 129))
	require.Equal(t, term.StatusUsage, term.ExitStatus(err))
}

func TestProgressBar(t *testing.T) {
	require.Equal(t, "a b", strings.Join(distinct([]string{"a", "b", "a"}), " "))
	require.Equal(t, "[====================                    ]  50 %, 7 lines", progressBar(5, 10, 7))
	require.Equal(t, "7 lines, 5 MB", progressBar(5<<20, 0, 7))
}

// In the first hour no topology exists yet, which is not the PoPs' fault.
func TestStatusWithoutTopology(t *testing.T) {
	v := fleetStatus{Regions: []regionStatus{{Region: "eu-west", PoPs: []popStatus{{PoP: "ams1", Passing: 1, Nodes: []nodeStatus{{ID: "a", Passing: true}}}}}}}
	v.total()
	var b bytes.Buffer
	v.write(&b, term.Style{})
	require.Contains(t, b.String(), "1 region, 1 PoP, 1 of 1 edge passing")
	require.Contains(t, b.String(), "\nno topology is published, so regionctl dns answers no one yet; publish one with regionctl topology apply FILE\n")
	require.NotContains(t, b.String(), "serving")
	require.NotContains(t, b.String(), "not in the topology")
}

func TestTopologyDiffShowsRecords(t *testing.T) {
	of := func(records string) *region.Topology {
		topology, err := region.ParseTopology([]byte("{zone: a.b, regions: [{name: r, pops: [{name: p, addresses: [192.0.2.1]}]}], records: [" + records + "]}"))
		require.NoError(t, err)
		return topology
	}
	var b bytes.Buffer
	writeTopologyDiff(&b, term.Style{}, of("{name: x, type: TXT, values: [old]}, {name: y, type: A, values: [192.0.2.2]}"),
		of("{name: x, type: TXT, values: [new, more], ttl: 60}, {name: '@', type: MX, values: [10 m.c]}"))
	require.Equal(t, "  - record y A: 192.0.2.2; ttl 300 s\n  + record @ MX: 10 m.c; ttl 300 s\n  ~ record x TXT: old; ttl 300 s → new, more; ttl 60 s\n", b.String())
}

// A sentence about several regions has its verb in the plural.
func TestOutcomeOfSeveralRegions(t *testing.T) {
	f := func(want string, regions ...told) {
		t.Helper()
		require.EqualError(t, outcome(t.Context(), regions, true, nil, term.Partial), want)
	}
	region := func(name string, o rollout.Outcome) told {
		r := told{Result: rollout.Result{Name: name, Outcome: o}, gets: "500ff230a293"}
		if o == rollout.Failed {
			r.why = "no answer"
		}
		return r
	}
	f("eu-west has 500ff230a293 and us-east has not:\nus-east: no answer\nrunning this again finishes it",
		region("eu-west", rollout.Applied), region("us-east", rollout.Failed))
	f("eu-west, sa-east have 500ff230a293 and us-east, us-west have not:\nus-east: no answer\nus-west: no answer\nrunning this again finishes it",
		region("eu-west", rollout.Applied), region("sa-east", rollout.Applied), region("us-east", rollout.Failed), region("us-west", rollout.Failed))
}

// The progress of a soak shows what the changed regions are judged by: a resumed one has no past.
func TestSoakIsCompared(t *testing.T) {
	now := sample{canary: fleet.Traffic{Requests: 200, Limited: 50, Errors: 2}, others: fleet.Traffic{Requests: 100, Limited: 3}}
	require.Equal(t, "200 requests, limited 25.00 % (before 10.00 %), 5xx 1.00 % (before 0.00 %)", compared(&now, &fleet.Traffic{Requests: 100, Limited: 10}))
	require.Equal(t, "200 requests, limited 25.00 % (elsewhere 3.00 %), 5xx 1.00 % (elsewhere 0.00 %)", compared(&now, &fleet.Traffic{}))
}

// A running rollout first measures its canary's site, and only then begins the canary.
func TestCanaryOfRollout(t *testing.T) {
	f := func(want string, u unfinished) {
		t.Helper()
		u.Canary = "ams1"
		var b bytes.Buffer
		u.write(&b, term.Style{}, rulesKind, time.Unix(0, 0))
		require.Contains(t, b.String(), "\n  canary on ams1: "+want+"\n")
	}
	f("until 1970-01-01 00:01:00Z", unfinished{State: rolloutRuns, CanaryUntil: time.Unix(60, 0)})
	f("has not begun, or was ended", unfinished{State: rolloutRuns})
	f("has expired, was ended, or never began", unfinished{State: rolloutDeserts})
}
