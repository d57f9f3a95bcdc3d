package behavior

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// life is one subject in virtual time.
type life struct {
	*testing.T
	table *Table
	now   time.Time
	n     int
}

func newLife(t *testing.T) *life {
	return &life{T: t, table: NewTable(64, Default(), start), now: start}
}

// repeat observes n requests, one every while, and returns the standing after the last.
func (l *life) repeat(n int, every time.Duration, event func(i int) Event) (s Status) {
	for range n {
		l.now = l.now.Add(every)
		e := event(l.n)
		l.n++
		s = l.table.Observe(7, l.now, &e)
	}
	return s
}

func (l *life) reasons() map[string]float64 {
	got := map[string]float64{}
	for _, r := range l.table.Reasons(7, l.now, nil) {
		require.GreaterOrEqual(l, r.Value, r.Threshold)
		got[r.Signal.String()] = r.Value
	}
	return got
}

// various requests differ in everything, succeed, and come back to the same 50 routes.
func various(i int) Event { return Event{Route: key(i % 50), Fingerprint: key(i), Status: 200} }

func TestBurst(t *testing.T) {
	l := newLife(t)
	l.repeat(1199, time.Millisecond, various)
	require.Empty(t, l.reasons(), "a newcomer is compared with four times the floor")
	l.repeat(1, time.Millisecond, various)
	require.Equal(t, map[string]float64{"burst": 1200}, l.reasons())

	l = newLife(t)
	l.repeat(20*60, time.Second, various)
	l.repeat(250, time.Millisecond, various)
	require.Empty(t, l.reasons(), "25 times its past, but below the floor")
	l.repeat(60, time.Millisecond, various)
	require.Contains(t, l.reasons(), "burst")

	l = newLife(t)
	l.repeat(1000, 10*time.Millisecond, various)
	l.repeat(6000, 10*time.Millisecond, various)
	require.Empty(t, l.reasons(), "a thousand in 10 s is what it always does")
}

func TestQuietWindowsAreNoPast(t *testing.T) {
	l := newLife(t)
	for range 6 {
		l.repeat(1000, 5*time.Millisecond, various)
		l.now = l.now.Add(time.Hour)
	}
	require.Empty(t, l.reasons())
}

func TestRepetition(t *testing.T) {
	same := func(int) Event { return Event{Route: 1, Fingerprint: 2, Status: 200} }
	l := newLife(t)
	l.repeat(1199, 40*time.Millisecond, same)
	require.Empty(t, l.reasons())
	l.repeat(1, 40*time.Millisecond, same)
	require.Equal(t, map[string]float64{"repetition": 1200}, l.reasons())

	l = newLife(t)
	l.repeat(5000, 60*time.Millisecond, same)
	require.Empty(t, l.reasons(), "1,000 per minute")

	l = newLife(t)
	l.repeat(2400, 20*time.Millisecond, func(i int) Event { return Event{Route: 1, Fingerprint: key(i), Status: 200} })
	require.Equal(t, map[string]float64{"repetition": 1200}, l.reasons(), "of a route alone two count as one")

	l = newLife(t)
	l.repeat(2900, 20*time.Millisecond, various)
	require.Empty(t, l.reasons())
}

func TestScan(t *testing.T) {
	walk := func(missing int) func(int) Event {
		return func(i int) Event {
			e := Event{Route: key(i), Fingerprint: key(i), Status: 200}
			if missing > 0 && i%missing == 0 {
				e.Status = 404
			}
			return e
		}
	}
	l := newLife(t)
	l.repeat(300, 100*time.Millisecond, walk(5))
	require.InDelta(t, 300, l.reasons()["scan"], 35)

	l = newLife(t)
	l.repeat(300, 3*time.Second, walk(5))
	require.Contains(t, l.reasons(), "scan", "in 15 minutes")

	l = newLife(t)
	l.repeat(5000, 100*time.Millisecond, walk(33))
	require.Empty(t, l.reasons(), "every crawler finds some broken links")

	l = newLife(t)
	l.repeat(5000, 100*time.Millisecond, func(i int) Event { return Event{Route: key(i % 40), Status: 404 - i%2*204} })
	require.NotContains(t, l.reasons(), "scan", "a broken page is not many routes")

	l = newLife(t)
	l.repeat(20_000, 40*time.Millisecond, func(i int) Event {
		e := Event{Route: key(i % 300), Fingerprint: key(i), Status: 200}
		if i%101 == 0 { // of another route each time
			e.Status = 404
		}
		return e
	})
	require.NotContains(t, l.reasons(), "scan", "an office finds the site's dead links")
}

func TestDenials(t *testing.T) {
	refused := func(wait time.Duration) func(int) Event {
		return func(int) Event { return Event{Refused: true, RetryAfter: wait} }
	}
	l := newLife(t)
	l.repeat(200, time.Millisecond, refused(10*time.Second))
	require.Empty(t, l.reasons(), "they were on their way when the first was refused")
	l.repeat(10, time.Second, refused(10*time.Second))
	require.Empty(t, l.reasons())
	l.repeat(10, time.Second, refused(10*time.Second))
	require.Contains(t, l.reasons(), "denials")

	l = newLife(t)
	for range 100 {
		l.repeat(50, 10*time.Millisecond, refused(5*time.Second))
		l.now = l.now.Add(5 * time.Second)
	}
	require.Empty(t, l.reasons(), "obeying Retry-After never scores")

	l = newLife(t)
	l.repeat(100_000, time.Millisecond, refused(0))
	require.Empty(t, l.reasons(), "a refusal that names no time is no signal")
}

func TestFailures(t *testing.T) {
	answer := func(statuses ...int) func(int) Event {
		return func(i int) Event {
			return Event{Route: key(i % 5), Fingerprint: key(i), Status: statuses[i%len(statuses)]}
		}
	}
	for _, status := range []int{401, 403, 404, 500, 503} {
		l := newLife(t)
		l.repeat(39, time.Second, answer(status))
		require.Empty(t, l.reasons())
		l.repeat(1, time.Second, answer(status))
		require.Equal(t, map[string]float64{"failures": 40}, l.reasons(), "%d", status)
	}
	l := newLife(t)
	l.repeat(1000, 100*time.Millisecond, answer(401, 200, 200))
	l.repeat(1000, 100*time.Millisecond, answer(400, 409, 429))
	l.repeat(30, time.Millisecond, answer(401))
	require.Empty(t, l.reasons(), "an expired token fails a few times")
}

func TestErrorsOfTheOriginAreExcused(t *testing.T) {
	l := newLife(t)
	for i := range 400 {
		l.now = l.now.Add(100 * time.Millisecond)
		for k := range 20 {
			s := l.table.Observe(key(k), l.now, &Event{Route: key(i), Fingerprint: key(i), Status: 503})
			require.Zero(t, s.Tier)
		}
	}
	// One subject that fails alone stays the subject's fault.
	l = newLife(t)
	var s Status
	for range 400 {
		l.now = l.now.Add(100 * time.Millisecond)
		for k := range 20 {
			l.table.Observe(key(k), l.now, &Event{Status: 200})
		}
		s = l.table.Observe(7, l.now, &Event{Status: 503})
	}
	require.NotZero(t, s.Tier)
}

func TestPresence(t *testing.T) {
	l := newLife(t)
	lacks := func(i int) Event { e := various(i); e.LacksHeaders = true; return e }
	l.repeat(19, time.Second, lacks)
	require.Empty(t, l.reasons())
	l.repeat(1, time.Second, lacks)
	require.Equal(t, map[string]float64{"presence": 20}, l.reasons())
	require.Zero(t, l.table.Status(7, l.now).Tier, "alone it is too weak for a tier")
}

// Scores are capped, and a client that stops is back to normal within three half-lives.
func TestWhoStopsIsSoonNormal(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		p := Default()
		table := NewTable(64, p, start)
		now := start
		for range rapid.IntRange(1, 20).Draw(r, "phases") {
			every := time.Duration(rapid.IntRange(1, 2000).Draw(r, "ms")) * time.Millisecond
			e := Event{
				Status:       rapid.SampledFrom([]int{200, 401, 404, 503}).Draw(r, "status"),
				LacksHeaders: rapid.Bool().Draw(r, "lacks"), Refused: rapid.IntRange(0, 3).Draw(r, "refused") == 0, RetryAfter: time.Minute,
			}
			walks := rapid.Bool().Draw(r, "walks")
			for i := range rapid.IntRange(1, 400).Draw(r, "requests") {
				if now = now.Add(every); walks {
					e.Route, e.Fingerprint = key(i), key(i)
				}
				s := table.Observe(7, now, &e)
				if s.Score < 0 || s.Score > MaxScore+1e-3 {
					r.Fatalf("score %v", s.Score)
				}
				if (s.Refused > 0) != (p.Tiers[s.Tier].Refuse > 0) {
					r.Fatalf("%+v", s)
				}
				if s.Refused > 0 {
					break
				}
			}
			// However often it asks meanwhile, a refusal ends when it says.
			if s := table.Status(7, now); s.Refused > 0 {
				for range 100 {
					table.Observe(7, now.Add(s.Refused/2), &Event{Status: 401})
				}
				if now = now.Add(s.Refused); table.Status(7, now).Refused > 0 {
					r.Fatalf("refused again for nothing")
				}
			}
		}
		if s := table.Status(7, now.Add(3*p.HalfLife)); s.Tier != 0 {
			r.Fatalf("after three half-lives: %+v", s)
		}
	})
}

func TestTiersDoNotFlap(t *testing.T) {
	l := newLife(t)
	l.repeat(60, 10*time.Millisecond, func(int) Event { return Event{Status: 401} })
	require.Equal(t, 2, l.table.Status(7, l.now).Tier)
	last, steps := 2, 0
	for range 600 {
		l.now = l.now.Add(time.Second)
		s := l.table.Status(7, l.now)
		require.LessOrEqual(t, s.Tier, last)
		if s.Tier < last {
			last, steps = s.Tier, steps+1
		}
	}
	require.Equal(t, 2, steps)
}

func TestRefusalsGrowWithRepetition(t *testing.T) {
	l := newLife(t)
	var got []time.Duration
	for range 9 {
		guess(t, l.table, 7, l.now)
		s := l.table.Status(7, l.now)
		got = append(got, s.Refused)
		l.now = l.now.Add(s.Refused)
		require.NotEqual(t, 3, l.table.Status(7, l.now).Tier)
	}
	m := time.Minute
	require.Equal(t, []time.Duration{m, 2 * m, 4 * m, 8 * m, 16 * m, 32 * m, 60 * m, 60 * m, 60 * m}, got)
	l.now = l.now.Add(10*time.Hour + m)
	guess(t, l.table, 7, l.now)
	require.Equal(t, m, l.table.Status(7, l.now).Refused, "forgotten")
}

func TestAPolicyIsReplacedInUse(t *testing.T) {
	l := newLife(t)
	guess(t, l.table, 7, l.now)
	p := Default()
	p.Tiers = p.Tiers[:2]
	l.table.SetPolicy(p)
	require.Equal(t, 1, l.table.Status(7, l.now).Tier)
	require.Zero(t, l.table.Status(7, l.now).Refused)
	require.Equal(t, p, l.table.Policy())
}

func TestValidate(t *testing.T) {
	require.NoError(t, Default().Validate())
	f := func(want string, change func(*Policy)) {
		t.Helper()
		p := Default()
		change(p)
		require.EqualError(t, p.Validate(), want)
	}
	f("half_life: must be from 1s to 1h (got 0s)", func(p *Policy) { p.HalfLife = 0 })
	f("signals.scan.weight: must be from 0 to 100 (got 101); 0 turns the signal off", func(p *Policy) { p.Signals[Scan].Weight = 101 })
	f("signals.scan.at_least: must be from 1 to 585 (got 1000)", func(p *Policy) { p.Signals[Scan].AtLeast = 1000 })
	f("signals.failures.share: must be from 0 to 1 (got 1.5)", func(p *Policy) { p.Signals[Failures].Share = 1.5 })
	f("signals.burst.times: must be from 1 to 1000 (got 0)", func(p *Policy) { p.Signals[Burst].Times = 0 })
	f("tiers: must list from 2 to 8 (got 1)", func(p *Policy) { p.Tiers = p.Tiers[:1] })
	f(`tiers[1].name: must be 1 to 32 lower-case letters, digits and hyphens (got "A b")`, func(p *Policy) { p.Tiers[1].Name = "A b" })
	f(`tiers[2].name: "elevated" is another tier's name too; choose a different one`, func(p *Policy) { p.Tiers[2].Name = "elevated" })
	f("tiers[0]: is the mildest tier and begins at a score of 0; remove from and until", func(p *Policy) { p.Tiers[0].From = 5 })
	f("tiers[0].refuse: would refuse everyone; remove it from the mildest tier\ntiers[0].refuse: belongs to the severest tier: a refused subject is no longer observed, so it could never reach a later tier; move it there",
		func(p *Policy) { p.Tiers[0].Refuse, p.Tiers[0].RefuseMax = time.Minute, time.Hour })
	f("tiers[2].from: must be above that of the previous tier, up to 100 (got 25)",
		func(p *Policy) { p.Tiers[2].From = 25 })
	f("tiers[2].until: must be above 0 and below from, so that a tier does not flap (got 50)", func(p *Policy) { p.Tiers[2].Until = 50 })
	f("tiers[2].until: must not be below that of the previous tier (got 10)", func(p *Policy) { p.Tiers[2].Until = 10 })
	f("tiers[3].refuse.for: must be from 1s to 24h (got 1ms)", func(p *Policy) { p.Tiers[3].Refuse = time.Millisecond })
	f("tiers[3].refuse.max: must be from refuse.for to 24h (got 1s)", func(p *Policy) { p.Tiers[3].RefuseMax = time.Second })
}
