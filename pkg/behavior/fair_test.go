package behavior

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// An origin that begins to fail for everyone is excused from the first seconds on, also for
// those who have hardly asked before: 300 clients load a page of 100 parts in a second, each
// once in 20 s, and all get 503 for some seconds.
func TestAnOriginThatBeginsToFail(t *testing.T) {
	const clients, parts, every = 300, 100, 20 * time.Second
	for _, outage := range []time.Duration{2 * time.Second, 5 * time.Second, 30 * time.Second} {
		table, random := NewTable(64*clients, Default(), start), rand.New(rand.NewPCG(3, 4))
		var phase [clients]time.Duration
		for k := range phase {
			phase[k] = time.Duration(random.Int64N(int64(every)))
		}
		risen, refused := map[int]bool{}, map[int]bool{}
		for at := time.Duration(0); at < 2*time.Minute; at += time.Second / parts {
			status := 200
			if at >= time.Minute && at < time.Minute+outage {
				status = 503
			}
			for k := range clients {
				if (at+phase[k])%every >= time.Second {
					continue // it reads
				}
				st := table.Observe(key(k), start.Add(at), &Event{Route: key(int(at) % 50), Fingerprint: key(int(at)), Status: status})
				if st.Tier > 0 {
					risen[k] = true
				}
				if st.Refused > 0 {
					refused[k] = true
				}
			}
		}
		t.Logf("%s: %d of %d clients rose, %d were refused", outage, len(risen), clients, len(refused))
		require.Empty(t, risen, outage)
		require.Empty(t, refused, outage)
	}
}

// Shares are true however many requests come in a minute.
func TestSharesOfManyRequests(t *testing.T) {
	l := newLife(t)
	l.repeat(400_000, 100*time.Microsecond, func(i int) Event {
		e := various(i)
		if i%5 == 0 {
			e.Status = 401
		}
		if i%3 == 0 {
			e.Fingerprint = 1
		}
		return e
	})
	require.NotContains(t, l.reasons(), "failures", "a fifth")
	require.NotContains(t, l.reasons(), "repetition", "a third")
}

// A share of errors that is below the threshold is not above it by chance.
func TestSharesAreNotDueToChance(t *testing.T) {
	table, now, random := NewTable(64, DefaultRoutes(), start), start, rand.New(rand.NewPCG(1, 2))
	rises := 0
	for range 24 * 3600 * 5 { // a day
		now = now.Add(time.Second / 5)
		status := 200
		if random.Float64() < 0.4 {
			status = 401
		}
		if table.Observe(1, now, &Event{Status: status}).Rose {
			rises++
		}
	}
	require.Zero(t, rises)
}

// What nobody asks about is over, too: its place is free for others.
func TestScoresOfTheGoneKeepNoPlace(t *testing.T) {
	table, now := NewTable(64*shards, Default(), start), start // of which one shard is used
	for i := range 64 {
		for range 100 {
			table.Observe(uint64(i), now, &Event{Status: 401, LacksHeaders: true})
		}
	}
	now = now.Add(30 * 24 * time.Hour)
	for i := range 300 {
		now = now.Add(100 * time.Millisecond)
		table.Observe(1<<20, now, &Event{Status: 401})
		table.Observe(uint64(1<<30+i), now, &Event{Status: 200})
	}
	require.NotZero(t, table.Status(1<<20, now).Tier, "among strangers it keeps its place")
}

// A share of a fingerprint that routes which all differ seem to have is none.
func TestDifferentRoutesAreNoRepetition(t *testing.T) {
	p := Default()
	p.Signals[Repetition].Share = 0.25
	table, now := NewTable(64, p, start), start
	for i := range 5000 {
		now = now.Add(10 * time.Millisecond)
		table.Observe(7, now, &Event{Route: key(i), Fingerprint: key(i), Status: 200})
	}
	for _, r := range table.Reasons(7, now, nil) {
		require.NotEqual(t, Repetition, r.Signal)
	}
}

func TestRefusalsHaveAMaximum(t *testing.T) {
	for _, first := range []time.Duration{time.Second, time.Minute, 5 * time.Hour, 24 * time.Hour} {
		tier, s := Tier{Refuse: first, RefuseMax: 24 * time.Hour}, subject{}
		for range 100 {
			s.block(&tier, 0)
			length := time.Duration(s.blocked) * time.Second / ticksPerSecond
			require.GreaterOrEqual(t, length, first)
			require.LessOrEqual(t, length, tier.RefuseMax)
		}
		require.EqualValues(t, tier.RefuseMax, time.Duration(s.blocked)*time.Second/ticksPerSecond)
	}
}

// A few clients do not slow a route for all, even if only half of what each gets is a denial, so
// that none of them is found.
func TestAFewClientsDoNotSlowARoute(t *testing.T) {
	f := func(addresses, nodes int, slowed bool) {
		t.Helper()
		clients, routes := NewTable(1024, Default(), start), NewTable(64, DefaultRoutes(), start)
		clients.Divide(nodes)
		routes.Divide(nodes)
		tier := 0
		for i := range 10 * 60 * 10 {
			now, client := start.Add(time.Duration(i)*100*time.Millisecond), key(i/2%addresses)
			if i%2 == 0 {
				clients.Observe(client, now, &Event{Route: key(2 + i%20), Fingerprint: key(i), Status: 404})
				continue
			}
			st := clients.Observe(client, now, &Event{Route: 1, Fingerprint: key(i), Status: 401})
			if addresses < 5 {
				require.Zero(t, st.Tier)
			}
			tier = max(tier, routes.ObserveRoute(1, now, 401, st).Tier)
		}
		require.Equal(t, slowed, tier > 0, "%d addresses", addresses)
	}
	f(1, 1, false)
	f(4, 1, false)
	f(4, 3, false)
	f(50, 1, true)
}
