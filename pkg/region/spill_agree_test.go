package region

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func giving(by string, since time.Time, at time.Time, share float64) *Spill {
	return &Spill{By: by, Since: since, At: at, Gifts: map[string]Gift{"a1": {Own: 1000, Parts: map[string]Part{"b1": {Goal: share, Share: share}}}}}
}

// A router that missed something continues from the record of the one that did not.
func TestAgreement(t *testing.T) {
	after := func(seconds int) time.Time { return noon.Add(time.Duration(seconds) * time.Second) }
	same := func(mine, record *Spill, now time.Time, wantWrite bool, past ...*Spill) {
		t.Helper()
		a := Agreement{past: past}
		next, write := a.Agree(mine, record, now)
		require.Same(t, mine, next)
		require.Equal(t, wantWrite, write)
	}
	adopts := func(mine, record *Spill, now time.Time, past ...*Spill) {
		t.Helper()
		a := Agreement{past: past}
		next, write := a.Agree(mine, record, now)
		require.Equal(t, record.Gifts, next.Gifts)
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
	adopts(fresh, old, after(100+59*60))
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
			next, write := a.Agree(mine(at), record(written), after(at))
			switch since := at - written; {
			case at < recordEvery: // what a clock says counts for a record that never changed
			case at < refreshEvery && apart < 0:
			case since < goneAfter-recordEvery:
				require.False(t, write, "%s apart, after %s", apart, at)
				want := mine(at)
				if since == 0 {
					want = record(written)
				}
				require.Equal(t, want.Gifts, next.Gifts, "%s apart, after %s", apart, at)
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
		next, write := a.Agree(mine, record, after(s))
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
	next, _ := a.Agree(mine, record, after(180))
	require.Equal(t, record.Gifts, next.Gifts, "its writer is alive")
	deaf := *mine
	deaf.Since = after(200)
	next, _ = a.Agree(&deaf, record, after(200))
	require.Equal(t, record.Gifts, next.Gifts, "this router hears a PoP again")
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

func TestReadSpill(t *testing.T) {
	for text, want := range map[string]string{
		`{"gifts": {"a1": {"own": 10, "parts": {"b1": {"share": 0.5}}}}}`: "",
		`{"gifts": {"a1": {"own": -1}}}`:                                  "has a demand of a1 that no PoP can have",
		`{"gifts": {"a1": {"own": 1e300}}}`:                               "has a demand of a1 that no PoP can have",
		`{"gifts": {"a1": {"own": 1, "parts": {"b1": {"goal": 2}}}}}`:     "has a share of a1 that is not 0 to 1",
		`{"deaf": -1, "gifts": {"a1": {"own": 10}}}`:                      "has outdated figures of -1 PoPs",
		`x`: "invalid character 'x' looking for beginning of value",
	} {
		_, err := readSpill([]byte(text))
		if want == "" {
			require.NoError(t, err)
		} else {
			require.EqualError(t, err, want)
		}
	}
}
