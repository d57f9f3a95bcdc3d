package region

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-edge/weir/pkg/region/consul"
)

var epoch = time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)

// timeline looks at a PoP of four nodes once per second, of which half must pass, and records
// whether it is healthy: each digit of looks is the number of passing nodes.
func timeline(h health, looks string) (string, health) {
	var out strings.Builder
	for i, c := range looks {
		h = h.next(newLook(4, int(c-'0'), 0.5), epoch.Add(time.Duration(i)*time.Second))
		out.WriteByte("-+"[map[bool]int{false: 0, true: 1}[h.up]])
	}
	return out.String(), h
}

func TestHysteresis(t *testing.T) {
	f := func(name, looks, want string) {
		t.Helper()
		got, _ := timeline(health{}, looks)
		require.Equal(t, want, got, "%s: %s", name, looks)
	}
	f("the first look decides", "4", "+")
	f("even if it is bad", "1", "-")
	f("one bad look", "414", "+++")
	f("two", "4114", "++--")
	f("bad looks with a good one between", "4141414141", "++++++++++")
	f("none passes", "4044", "+---")
	f("up after 5 s", "4044444444", "+------+++")
	f("which restart", "40444442444144444444", "+------+++++++++++++")
	f("when too few pass", "40444414444444444", "+-----------+++++")
	f("up from the start", "0444444", "------+")
	f("a second fall", "4044444404444444", "+------+------++")
}

func TestHysteresisWithoutAClock(t *testing.T) {
	h := health{}.next(newLook(4, 4, 0.5), epoch)
	for range 100 { // a burst of looks counts as one
		h = h.next(newLook(4, 1, 0.5), epoch.Add(time.Second))
	}
	require.True(t, h.up)
	h = h.next(newLook(4, 1, 0.5), epoch.Add(2*time.Second))
	require.False(t, h.up)
	require.Equal(t, epoch.Add(2*time.Second), h.since)
}

func TestNewLook(t *testing.T) {
	f := func(nodes, passing int, share float64, enough bool) {
		t.Helper()
		require.Equal(t, enough, newLook(nodes, passing, share).enough, "%d of %d, %v", passing, nodes, share)
	}
	f(0, 0, 0, false)
	f(4, 0, 0, false)
	f(4, 1, 0, true)
	f(4, 1, 0.5, false)
	f(4, 2, 0.5, true)
	f(3, 1, 0.5, false)
	f(3, 3, 1, true)
}

// A PoP whose only node fails and recovers at any pace rarely changes after the first minute.
func TestFlappingIsDamped(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		up, down := rapid.IntRange(1, 20).Draw(t, "up"), rapid.IntRange(1, 20).Draw(t, "down")
		h, changes, last := health{}, 0, true
		for i := range 600 {
			passing := 0
			if i%(up+down) < up {
				passing = 1
			}
			h = h.next(newLook(1, passing, 0), epoch.Add(time.Duration(i)*time.Second))
			if i > 60 && h.up != last {
				changes++
			}
			last = h.up
		}
		require.LessOrEqual(t, changes, 14, "in 9 minutes")
	})
	// A flapping PoP that then stays up is up and forgiven.
	h := health{}
	now := epoch
	step := func(passing, seconds int) {
		for range seconds {
			now = now.Add(time.Second)
			h = h.next(newLook(1, passing, 0), now)
		}
	}
	for range 10 {
		step(1, 10)
		step(0, 3)
	}
	step(1, 41)
	require.True(t, h.up)
	step(1, 60)
	step(0, 1)
	require.False(t, h.up)
	step(1, 6)
	require.True(t, h.up, "up as after a first fall")
}

func TestHysteresisProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h, now, since := health{}, epoch, time.Time{}
		for range rapid.IntRange(1, 100).Draw(t, "looks") {
			now = now.Add(time.Duration(rapid.IntRange(0, 3000).Draw(t, "ms")) * time.Millisecond)
			l := newLook(4, rapid.IntRange(0, 4).Draw(t, "passing"), 0.5)
			before := h
			h = h.next(l, now)
			switch {
			case before.since.IsZero():
				require.Equal(t, l.enough, h.up)
			case h.up && !before.up:
				require.True(t, l.enough)
				require.GreaterOrEqual(t, now.Sub(since), riseAfter, "it was good for that long")
			case !h.up && before.up:
				require.False(t, l.enough)
			}
			require.False(t, h.up && l.passing == 0, "down if nothing passes")
			if !l.enough {
				since = now
			}
		}
	})
}

func seen(pop, id string, passing bool) consul.Instance {
	return consul.Instance{Node: consul.Node{ID: id, PoP: pop, Address: id, Passing: passing}}
}

func whoPass(nodes []consul.Instance) string {
	var names []string
	for _, n := range nodes {
		if n.Passing {
			names = append(names, n.ID)
		}
	}
	return strings.Join(names, " ")
}

func TestEffectiveNodes(t *testing.T) {
	nodes := []consul.Instance{seen("p", "a", true), seen("p", "b", true), seen("q", "c", true), seen("q", "d", false)}
	abcd := map[string]int{"a": 0, "b": 0, "c": 0, "d": 0}
	mute := map[string]reach{"a": silent, "b": silent, "c": silent, "d": silent}
	now := epoch.Add(time.Minute)
	for name, row := range map[string]struct {
		facts regionFacts
		want  string
		known bool
	}{
		"its Consul answers":            {regionFacts{}, "a b c", true},
		"it did just now":               {regionFacts{failing: now.Add(-time.Millisecond)}, "a b c", false},
		"no one was asked yet":          {regionFacts{failing: epoch}, "a b c", false},
		"another Consul reports":        {regionFacts{failing: epoch, second: &opinion{via: "x", nodes: nodes[1:2]}}, "b", true},
		"another reports no nodes":      {regionFacts{failing: epoch, second: &opinion{via: "x", reach: map[string]reach{"a": accepted, "b": refused}}, reached: abcd}, "a c", false},
		"nodes answer":                  {regionFacts{failing: epoch, second: &opinion{gone: true, reach: map[string]reach{"a": accepted, "b": accepted, "c": accepted, "d": accepted}}}, "a b c d", false},
		"nodes refuse":                  {regionFacts{failing: epoch, second: &opinion{reach: map[string]reach{"a": refused, "b": refused, "c": refused, "d": refused}}, reached: abcd}, "", false},
		"as always":                     {regionFacts{failing: epoch, second: &opinion{reach: map[string]reach{"a": refused, "b": refused}}, reached: map[string]int{"a": 1}}, "b c", false},
		"silent only from here":         {regionFacts{failing: epoch, second: &opinion{reach: mute}, reached: abcd}, "a b c", false},
		"silent, and gone for everyone": {regionFacts{failing: now.Add(-2 * time.Second), second: &opinion{gone: true, reach: mute}, reached: map[string]int{"a": 0, "b": 0}}, "c", false},
		"there was no time for b":       {regionFacts{failing: epoch, second: &opinion{gone: true, reach: map[string]reach{"a": silent}}, reached: abcd}, "b c", false},
		"never reached, for long":       {regionFacts{failing: epoch.Add(-time.Hour), second: &opinion{gone: true, reach: mute}}, "a b c", false},
		"none listed, they answer":      {regionFacts{emptied: true, second: &opinion{reach: map[string]reach{"a": accepted, "b": accepted, "c": refused}}, reached: abcd}, "a b", false},
		"none listed, one is silent":    {regionFacts{emptied: true, second: &opinion{reach: map[string]reach{"a": accepted, "c": silent}}, reached: map[string]int{"c": 0}}, "a b", false},
		"same, and then Consul fails":   {regionFacts{emptied: true, failing: epoch, second: &opinion{reach: map[string]reach{"c": silent}}, reached: abcd}, "a b c", false},
		"none listed, nothing asked":    {regionFacts{emptied: true}, "a b c", false},
	} {
		row.facts.listed, row.facts.nodes = true, nodes
		got, known := row.facts.effective(now)
		require.Equal(t, row.want, whoPass(got), name)
		require.Equal(t, row.known, known, name)
		require.True(t, nodes[0].Passing, "what was reported is kept")
	}
}

// A node that was not asked in time is not silent.
func TestConnectTellsOnlyWhatItFound(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	nodes := []consul.Instance{seen("p", l.Addr().String(), true)}
	require.Equal(t, map[string]reach{l.Addr().String(): accepted}, connect(t.Context(), nodes))
	ended, end := context.WithCancel(t.Context())
	end()
	require.Empty(t, connect(ended, nodes))
}

func TestListKeepsWhatItKnows(t *testing.T) {
	f := &regionFacts{}
	require.False(t, f.reported())
	f.list(nil)
	require.True(t, f.reported())
	require.False(t, f.emptied, "there were none before")
	f.list([]consul.Instance{seen("p", "a", true), seen("p", "b", false)})

	// Consul restarts and has not checked any node.
	fresh := []consul.Instance{seen("p", "a", false), seen("p", "b", false), seen("p", "c", false)}
	for i := range fresh {
		fresh[i].Unchecked = true
	}
	f.list(fresh)
	require.Equal(t, "a", whoPass(f.nodes))
	f.list(nil)
	require.True(t, f.emptied)
	require.Len(t, f.nodes, 3)
	require.True(t, f.doubtful(epoch))
	f.list([]consul.Instance{seen("p", "b", true)})
	require.False(t, f.doubtful(epoch))
	require.Equal(t, "b", whoPass(f.nodes))

	f.fail(errors.New("away"), epoch)
	f.fail(errors.New("still"), epoch.Add(time.Minute))
	require.Equal(t, epoch, f.failing)
	require.EqualError(t, f.err, "still")
	f.answered(epoch.Add(time.Hour))
	require.False(t, f.doubtful(epoch.Add(2*time.Hour)))
	require.NoError(t, f.err)
}

func TestReachedIsLearntAndForgotten(t *testing.T) {
	f := &regionFacts{reached: map[string]int{}}
	f.list([]consul.Instance{seen("p", "a", true), seen("p", "b", true), seen("p", "c", true)})
	f.learn(map[string]reach{"a": accepted, "b": refused, "c": silent})
	require.Equal(t, map[string]int{"a": 0}, f.reached, "only an accepted connection counts")
	f.learn(map[string]reach{"a": silent})
	f.learn(map[string]reach{"a": refused})
	f.learn(map[string]reach{"a": silent})
	require.Equal(t, map[string]int{"a": 2}, f.reached)
	f.fail(errors.New("away"), epoch)
	f.learn(map[string]reach{"a": silent})
	require.Contains(t, f.reached, "a", "the network may be cut")
	f.hear(&opinion{reach: map[string]reach{"a": silent, "b": accepted}})
	require.Equal(t, map[string]int{"a": 2, "b": 0}, f.reached)
	f.answered(epoch)
	f.learn(map[string]reach{"a": silent})
	require.Equal(t, map[string]int{"b": 0}, f.reached)
	f.list([]consul.Instance{seen("p", "a", true)})
	f.learn(nil)
	require.Empty(t, f.reached, "it is no longer a node")
}

// Another region's Consul may also report nodes that were never checked.
func TestHearCarriesOver(t *testing.T) {
	f := &regionFacts{reached: map[string]int{}}
	f.list([]consul.Instance{seen("p", "a", true), seen("p", "b", false)})
	f.fail(errors.New("away"), epoch)
	fresh := []consul.Instance{seen("p", "a", false), seen("p", "b", false)}
	for i := range fresh {
		fresh[i].Unchecked = true
	}
	f.hear(&opinion{via: "x", nodes: fresh})
	nodes, known := f.effective(epoch.Add(time.Minute))
	require.True(t, known)
	require.Equal(t, "a", whoPass(nodes))
}

func TestRegionsThatAnswerDecide(t *testing.T) {
	away := func(f regionFacts) regionFacts { f.failing = epoch; return f }
	says := regionFacts{drains: &Drains{Begun: map[string]Drain{"nyc1": {Who: "ann", At: epoch}}}}
	silent := regionFacts{drains: &Drains{Begun: map[string]Drain{}}}
	f := func(want bool, regions ...regionFacts) {
		t.Helper()
		facts := fleetFacts{topology: mustParse(t, europe), regions: map[string]regionFacts{}}
		for i, r := range regions {
			facts.regions[string(rune('a'+i))] = r
		}
		states, _ := facts.states(nil, epoch)
		require.Equal(t, want, states["nyc1"].Drained != nil)
	}
	f(true, says, silent)
	f(false, away(says), silent)
	f(true, says, away(silent))
	f(true, away(says), away(silent))
	f(true, away(says), regionFacts{}) // which has reported nothing yet
}

func TestStates(t *testing.T) {
	topology := mustParse(t, europe)
	asked := func(n consul.Instance, demand, capacity float64) consul.Instance {
		n.TellsLoad, n.Load = true, consul.Load{Demand: demand, Capacity: capacity}
		return n
	}
	facts := fleetFacts{topology: topology, regions: map[string]regionFacts{
		"eu-west": {
			listed: true, drains: &Drains{Begun: map[string]Drain{"nyc1": {Who: "ann", Since: epoch, At: epoch}}},
			nodes: []consul.Instance{asked(seen("ams1", "a", true), 300, 200), asked(seen("ams1", "b", true), 150, 100), asked(seen("ams1", "c", false), 1, 1), seen("fra1", "liar", true)},
		},
		"us-east": {drains: &Drains{Begun: map[string]Drain{"nyc1": {Who: "bob", Since: epoch.Add(-time.Hour), At: epoch}, "ams2": {Who: "bob", At: epoch}}}},
	}}
	states, healths := facts.states(nil, epoch)
	require.Len(t, states, 5)
	ams1 := states["ams1"]
	require.Equal(t, PoPState{Healthy: true, Known: true, Nodes: 3, Passing: 2, Demand: 450, Capacity: 300, Since: epoch}, ams1)
	require.Equal(t, PoPState{Known: true, Since: epoch, Drained: &Drain{Who: "bob", At: epoch}}, states["ams2"])
	require.Equal(t, PoPState{}, states["fra1"], "a region reports only its own nodes")
	require.Equal(t, PoPState{Drained: &Drain{Who: "bob", Since: epoch.Add(-time.Hour), At: epoch}}, states["nyc1"], "the oldest drain of any region")
	require.Len(t, healths, 2)

	facts.regions["us-east"] = regionFacts{listed: true, nodes: []consul.Instance{seen("nyc1", "n", true)}}
	states, _ = facts.states(healths, epoch.Add(time.Second))
	require.True(t, states["nyc1"].Healthy, "immediately when its region first reports")
}

func TestPrevailingTopology(t *testing.T) {
	f := NewFollower(FollowConfig{Regions: []FollowedRegion{{"a", &consul.Client{}}, {"b", &consul.Client{}}, {"c", &consul.Client{}}}})
	versions := map[byte]regionFacts{}
	for i, v := range "12" {
		topology := mustParse(t, fmt.Sprintf("{zone: a, regions: [{name: r, pops: [{name: p%c, addresses: [192.0.2.%d]}]}]}", v, i+1))
		versions[byte(v)] = regionFacts{topology: topology, topologyText: string(v)}
	}
	check := func(held, want string) {
		t.Helper()
		regions := map[string]regionFacts{}
		for i, v := range []byte(held) {
			regions[string(rune('a'+i))] = versions[v]
		}
		got, text := f.prevailing(regions, f.View())
		require.Equal(t, want, text, held)
		require.Same(t, versions[append([]byte(want), '-')[0]].topology, got, held)
	}
	check("---", "")
	check("1--", "1")
	check("211", "1")
	check("21-", "2")
	check("122", "2")
	first, second := versions['1'], versions['2']
	for text, regions := range map[string]map[string]regionFacts{
		"2": {"a": {topology: first.topology, topologyText: "1", failing: epoch}, "b": {topology: first.topology, topologyText: "1", failing: epoch}, "c": second},
		"1": {"a": {topology: first.topology, topologyText: "1", failing: epoch}, "c": {}},
	} {
		_, got := f.prevailing(regions, f.View())
		require.Equal(t, text, got, "regions that answer decide, if one does")
	}
	before := &View{Topology: versions['1'].topology, text: "1"}
	for _, facts := range []regionFacts{{}, {topology: mustParse(t, twoSites), topologyText: "1"}} {
		got, text := f.prevailing(map[string]regionFacts{"a": facts}, before)
		require.Same(t, before.Topology, got, "neither nothing nor the same is a change")
		require.Equal(t, "1", text)
	}
}
