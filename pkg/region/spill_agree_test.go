package region

import (
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/pkg/region/consul"
	"github.com/weir-edge/weir/pkg/sign"
)

func giving(by string, since time.Time, at time.Time, share float64) *Spill {
	return &Spill{By: by, Since: since, At: at, Gifts: map[string]Gift{"a1": {Own: 1000, Parts: map[string]Part{"b1": {Goal: share, Share: share}}}}}
}

// A router that missed something continues from the record of the one that did not.
func TestAgreement(t *testing.T) {
	of := func(s *Spill) *View { return &View{Spill: s} }
	after := func(seconds int) time.Time { return noon.Add(time.Duration(seconds) * time.Second) }
	same := func(mine, record *Spill, now time.Time, wantWrite bool, past ...*Spill) {
		t.Helper()
		a := Agreement{past: past}
		next, write, err := a.Agree(of(mine), record, now)
		require.NoError(t, err)
		require.Same(t, mine, next)
		require.Equal(t, wantWrite, write)
	}
	adopts := func(mine, record *Spill, now time.Time, past ...*Spill) {
		t.Helper()
		a := Agreement{past: past}
		next, write, err := a.Agree(of(mine), record, now)
		require.NoError(t, err)
		for name, g := range record.Gifts {
			for to, p := range g.Parts {
				q := next.Gifts[name].Parts[to]
				require.InDelta(t, mine.Gifts[name].Parts[to].Given(), q.Given(), 1e-9, "answers follow at the law's pace")
				require.Equal(t, p.Share, q.Share)
				q.Behind = 0
				require.Equal(t, p, q)
			}
		}
		require.Equal(t, mine.Since, next.Since)
		require.Equal(t, mine.By, next.By)
		require.False(t, write)
		require.Nil(t, a.past)
	}
	old := giving("a", noon, after(100), 0.2)
	same(old, nil, after(100), true)
	same(old, old, after(110), false)
	same(old, old, after(170), true) // so that others see that it is alive
	same(giving("a", noon, after(110), 0.3), old, after(110), true)

	fresh := giving("b", after(105), after(106), 0)
	adopts(fresh, old, after(106))
	adopts(&Spill{By: "b", Since: after(105)}, old, after(105))
	adopts(giving("b", after(99+59*60), after(100+59*60), 0), old, after(100+59*60))
	same(fresh, old, after(100+61*60), true)

	// The junior's answer at the time of the record counts.
	young := giving("b", after(50), after(110), 0.4)
	same(young, old, after(110), false, giving("b", after(50), after(99), 0.2), giving("b", after(50), after(101), 0.3))
	adopts(young, old, after(110), giving("b", after(50), after(99), 0.1), giving("b", after(50), after(101), 0.2))
	same(young, old, after(100+181), true) // the senior is gone

	same(old, young, after(111), true)
	deaf := *old
	deaf.Deaf = 1
	adopts(&deaf, young, after(111))
	same(young, &deaf, after(111), true)
}

// A record's age is how long it has been seen unchanged, whatever its writer's clock.
func TestAgreementIgnoresClocks(t *testing.T) {
	after := func(d time.Duration) time.Time { return noon.Add(d) }
	for _, apart := range []time.Duration{-24 * time.Hour, -time.Hour, 0, time.Minute, time.Hour, 24 * time.Hour} {
		a := Agreement{}
		mine := func(at time.Duration) *Spill { return giving("b", after(-time.Minute), after(at), 0) }
		record := func(at time.Duration) *Spill { return giving("a", after(apart-48*time.Hour), after(apart+at), 0.2) }
		for at := time.Duration(0); at < 2*time.Hour; at += 10 * time.Second {
			written := min(at.Truncate(refreshEvery), time.Hour) // then its writer dies
			next, write, err := a.Agree(&View{Spill: mine(at)}, record(written), after(at))
			require.NoError(t, err)
			switch since := at - written; {
			case at < recordEvery: // what a clock says counts for a record that never changed
			case at < refreshEvery && apart < 0:
			case since < goneAfter-recordEvery:
				require.False(t, write, "%s apart, after %s", apart, at)
				want := mine(at)
				if since == 0 {
					want = record(written)
				}
				require.Equal(t, want.Gifts["a1"].Parts["b1"].Goal, next.Gifts["a1"].Parts["b1"].Goal, "%s apart, after %s", apart, at)
			case since > goneAfter+recordEvery:
				require.True(t, write, "%s apart, after %s", apart, at)
			}
		}
	}
}

// The record of a router that is gone does not undo what the others move afterwards. One that
// has just started may have to follow twice, because it did not know the PoPs at first.
func TestARecordIsFollowedOnce(t *testing.T) {
	after := func(seconds int) time.Time { return noon.Add(time.Duration(seconds) * time.Second) }
	a := Agreement{}
	record := giving("a", noon, noon, 0.2)
	mine := giving("b", after(20), after(20), 0)
	var followed []int
	for s := 20; s < 180; s += 10 {
		next, write, err := a.Agree(&View{Spill: mine}, record, after(s))
		require.NoError(t, err)
		require.False(t, write, "after %d s", s)
		if next != mine {
			followed = append(followed, s)
		}
		moved := giving("b", after(20), after(s+5), 0.2+float64(s)/1000)
		a.Note(moved)
		mine = moved
	}
	require.Equal(t, []int{20, 30}, followed)

	record = giving("a", noon, after(175), 0.6)
	next, _, err := a.Agree(&View{Spill: mine}, record, after(180))
	require.NoError(t, err)
	require.Equal(t, 0.6, next.Gifts["a1"].Parts["b1"].Goal, "its writer is alive")
	deaf := *mine
	deaf.Since = after(200)
	next, _, err = a.Agree(&View{Spill: &deaf}, record, after(200))
	require.NoError(t, err)
	require.Equal(t, 0.6, next.Gifts["a1"].Parts["b1"].Goal, "this router hears a PoP again")
}

// A record that exceeded what a PoP could serve is followed as soon as it does not.
func TestARefusedRecordIsFollowedLater(t *testing.T) {
	topology := mustParse(t, row)
	a, record := Agreement{}, giving("a", noon.Add(-2*time.Hour), noon, 0.5)
	follows := func(b1 float64, now time.Time) (bool, error) {
		v := NewView(topology, loads(topology, 500, 1000, b1, 1000, 300, 1000), nil)
		v.Spill = giving("b", noon.Add(-time.Hour), now, 0)
		next, _, err := a.Agree(v, record, now)
		return next != v.Spill, err
	}
	followed, err := follows(1000, noon)
	require.ErrorContains(t, err, "sends b1 ")
	require.False(t, followed)
	followed, err = follows(300, noon.Add(recordEvery))
	require.NoError(t, err)
	require.True(t, followed)
}

func TestSpillKnowsSinceWhenItHears(t *testing.T) {
	topology := mustParse(t, row)
	states := loads(topology, 500, 1000, 500, 1000, 500, 1000)
	step := func(before *Spill, seconds int) *Spill {
		return NewView(topology, states, nil).Spilled(before, 20*time.Second, noon.Add(time.Duration(seconds)*time.Second)).Spill
	}
	s := step(&Spill{By: "a", Since: noon}, 1)
	require.Equal(t, &Spill{By: "a", Since: noon, At: s.At, Gifts: s.Gifts}, s)
	old := states["b1"]
	old.Stale = true
	states["b1"] = old
	s = step(s, 2)
	require.Equal(t, noon, s.Since)
	require.Equal(t, 1, s.Deaf)
	old.Stale = false
	states["b1"] = old
	s = step(s, 3)
	require.Equal(t, noon.Add(3*time.Second), s.Since)
	require.Zero(t, s.Deaf)
}

// newKey returns a key of a router, and the topology's entry for it.
func newKey(t testing.TB, name string) (*sign.Key, Router) {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	_, err := sign.Generate(file, file+".pub")
	require.NoError(t, err)
	key, err := sign.ReadKey(file)
	require.NoError(t, err)
	return key, Router{Name: name, Key: key.Public()}
}

// A router follows only what a router of its fleet has signed, and each record once.
func TestReadSpill(t *testing.T) {
	key, router := newKey(t, "ns1")
	stranger, _ := newKey(t, "x")
	topology := &Topology{Zone: "edge.example.com", Routers: []Router{router}}
	signed := func(by *sign.Key, kind, zone string, sequence int64, spill string) []byte {
		text := fmt.Appendf(nil, `{"zone":%q,"sequence":%d,"spill":%s}`, zone, sequence, spill)
		value, err := json.Marshal(signedSpill{text, by.Sign(subject(kind, text), nil)})
		require.NoError(t, err)
		return value
	}
	at := func(seconds int) string { return noon.Add(time.Duration(seconds) * time.Second).Format(time.RFC3339) }
	good := func(seconds int) string {
		return `{"at":"` + at(seconds) + `","gifts":{"a1":{"own":10,"parts":{"b1":{"share":0.5}}}}}`
	}
	f := NewFollower(FollowConfig{})
	var eu, us consul.Client
	reads := func(value []byte, want string) {
		t.Helper()
		s, err := f.readSpill(&eu, topology, value, noon)
		if want == "" {
			require.NoError(t, err)
			require.NotNil(t, s)
		} else {
			require.ErrorContains(t, err, want)
		}
	}
	zone := topology.Zone
	reads(signed(key, "spill", zone, 7, good(0)), "")
	reads(signed(key, "spill", zone, 7, good(0)), "")
	reads(signed(key, "spill", zone, 8, good(-1800)), "")
	reads(signed(key, "spill", zone, 7, good(0)), "key "+key.ID()+" has signed a later one")
	reads(signed(stranger, "spill", zone, 9, good(0)), "it is not signed by a router that the topology names")
	reads(signed(key, "topology", zone, 9, good(0)), "it is not signed")
	reads([]byte(strings.Replace(string(signed(key, "spill", zone, 9, good(0))), "0.5", "0.6", 1)), "it is not signed")
	reads([]byte(good(0)), "it is not signed")
	reads(nil, "unexpected end of JSON input")
	reads(signed(key, "spill", "lab.example.com", 9, good(0)), `it is for the zone "lab.example.com"`)
	reads(signed(key, "spill", zone, 9, good(3601)), "signed it for 2026-01-02T13:00:01Z")
	overwrites := func(c *consul.Client, value []byte) {
		t.Helper()
		s, err := f.readSpill(c, topology, value, noon)
		require.NoError(t, err)
		require.Nil(t, s)
	}
	overwrites(&eu, signed(key, "spill", zone, 9, good(-3600)))
	overwrites(&eu, signed(key, "spill", zone, 7, good(-3600)))
	overwrites(&eu, signed(key, "spill", zone, 9, "null"))
	overwrites(&us, signed(key, "spill", zone, 6, good(0))) // us was away
	_, err := f.readSpill(&us, topology, signed(key, "spill", zone, 5, good(0)), noon)
	require.ErrorContains(t, err, "has signed a later one")
	for spill, want := range map[string]string{
		`{"gifts":{"a1":{"own":-1}}}`:                            "has a demand of a1 that no PoP can have",
		`{"gifts":{"a1":{"own":1e300}}}`:                         "has a demand of a1 that no PoP can have",
		`{"gifts":{"a1":{"own":1,"parts":{"b1":{"goal":2}}}}}`:   "has a share of a1 that is not 0 to 1",
		`{"gifts":{"a1":{"own":1,"parts":{"b1":{"behind":2}}}}}`: "has a share of a1 that is not 0 to 1",
		`{"deaf":-1,"gifts":{"a1":{"own":10}}}`:                  "has outdated figures of -1 PoPs",
	} {
		reads(signed(key, "spill", zone, 10, `{"at":"`+at(0)+`",`+spill[1:]), want)
	}
	reads(signed(key, "spill", zone, 9, good(0)), "")
}

// Whatever a named router signs, the answers of one that has heard all along move at the pace of
// settled PoPs, and those of one that starts at the pace of a change; neither sends a PoP more than
// it can serve.
func TestARecordMovesNoShareFasterThanTheLaw(t *testing.T) {
	topology := mustParse(t, row)
	const ttl = 20 * time.Second
	claims := func(share float64, last Change) *Spill {
		part := Part{Goal: share, Share: share, Noticed: share, Asking: [3]float64{share, share, share}}
		return &Spill{By: "a", At: noon, Since: noon.AddDate(-6, 0, 0), Gifts: map[string]Gift{"a1": {Own: 500 / (1 - min(share, 0.9)), Parts: map[string]Part{"b1": part}, Last: last}}}
	}
	worst := func(started time.Duration, record *Spill, figures ...float64) (step, most float64, err error) {
		v := NewView(topology, loads(topology, figures...), nil)
		before := &Spill{By: "b", Since: noon.Add(-started), At: noon.Add(-time.Second), Gifts: map[string]Gift{}}
		if started > time.Hour {
			v = settle(v)
			before = v.Spill
			before.By, before.Since, before.At = "b", noon.Add(-started), noon.Add(-time.Second)
			for name, g := range before.Gifts {
				g.Last.At, g.Since = noon.Add(-time.Hour), noon.Add(-time.Hour)
				before.Gifts[name] = g
			}
		}
		v.Spill = before
		next, _, err := (&Agreement{}).Agree(v, record, noon)
		share := 0.0
		for second := range 60 {
			v = v.Spilled(next, ttl, noon.Add(time.Duration(second)*time.Second))
			next = v.Spill
			now := next.Gifts["a1"].Parts["b1"].Given()
			step, most, share = max(step, math.Abs(now-share)), max(most, now), now
		}
		return step, most, err
	}
	minute := settledPace * 3
	for _, last := range []Change{{}, {At: noon, Own: 1}, {At: noon.Add(-time.Hour), Own: 500}} {
		step, most, err := worst(24*time.Hour, claims(0.3, last), 500, 1000, 300, 1000, 300, 1000)
		require.NoError(t, err)
		require.LessOrEqual(t, most, minute+1e-9)
		require.LessOrEqual(t, step, minute/60+1e-9)

		step, most, err = worst(0, claims(0.3, last), 500, 1000, 600, 1000, 300, 1000)
		require.NoError(t, err)
		require.Positive(t, most, "it does not know what others gave away")
		require.LessOrEqual(t, step, 1/(ttl.Seconds()/10)+1e-9)
	}
	for _, share := range []float64{0.95, 1} {
		for _, started := range []time.Duration{0, 24 * time.Hour} {
			_, most, err := worst(started, claims(share, Change{At: noon}), 500, 1000, 800, 1000, 800, 1000)
			require.ErrorContains(t, err, "sends b1 ")
			require.Zero(t, most)
		}
	}
	for _, g := range []struct{ goal, share float64 }{{0, 1}, {1, 0}} { // the first only a starting router answers by
		record := claims(1, Change{At: noon})
		record.Gifts["a1"].Parts["b1"] = Part{Goal: g.goal, Share: g.share}
		_, most, err := worst(0, record, 500, 1000, 800, 1000, 800, 1000)
		require.ErrorContains(t, err, "sends b1 ")
		require.Zero(t, most)
	}
	for _, own := range []float64{1, 100, 900} { // would fit, if no more were at a1
		fits := claims(1, Change{At: noon})
		fits.Gifts["a1"] = Gift{Own: own, Parts: fits.Gifts["a1"].Parts}
		_, most, err := worst(0, fits, 900, 1000, 800, 1000, 800, 1000)
		require.ErrorContains(t, err, "sends b1 ")
		require.Zero(t, most)
	}
}

// A record moves no clients of a PoP whose figures are outdated.
func TestARecordMovesNoFrozenClients(t *testing.T) {
	topology := mustParse(t, row)
	states := loads(topology, 500, 1000, 600, 1000, 300, 1000)
	stale := states["a1"]
	stale.Stale = true
	states["a1"] = stale
	part := Part{Goal: 0.3, Share: 0.3, Noticed: 0.3, Asking: [3]float64{0.3, 0.3, 0.3}}
	record := &Spill{By: "a", At: noon, Since: noon.Add(-time.Hour), Gifts: map[string]Gift{"a1": {Own: 700, Parts: map[string]Part{"b1": part}}}}
	v := NewView(topology, states, nil)
	v.Spill = &Spill{By: "b", Since: noon.Add(-time.Minute), At: noon, Deaf: 1}
	next, _, err := (&Agreement{}).Agree(v, record, noon)
	require.NoError(t, err)
	for second := range 120 {
		v = v.Spilled(next, 20*time.Second, noon.Add(time.Duration(second)*time.Second))
		next = v.Spill
		shares, _ := of(v, 0)
		require.InDelta(t, 1, shares["a1"], 0, "after %d s", second)
	}
}
