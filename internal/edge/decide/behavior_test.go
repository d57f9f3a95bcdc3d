package decide

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/policy"
	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/rules"
)

func behaviorFor(t *testing.T, text string) *Behavior {
	t.Helper()
	p, err := policy.Parse([]byte(text))
	require.NoError(t, err)
	return NewBehavior(func() *policy.Policy { return p }, 1000, time.Now())
}

func TestOnlySoManyRequestsWait(t *testing.T) {
	stop := make(chan struct{})
	c := behaviorFor(t, "{}")
	c.Stop = stop
	effects := make(chan Effect, MaxDelayed)
	for i := range MaxDelayed {
		go func() { effects <- c.delay(uint64(i), time.Hour) }()
	}
	require.Eventually(t, func() bool { return c.Delayed() == MaxDelayed }, time.Minute, time.Millisecond)
	require.Equal(t, Crowded, c.delay(MaxDelayed, time.Hour))
	require.EqualValues(t, MaxDelayed, c.Delayed())
	c.delayedOf[7].Add(maxDelayedOf)
	c.delayed.Add(-1)
	require.Equal(t, Crowded, c.delay(7, time.Hour), "one client takes no more places")
	c.delayedOf[7].Add(-maxDelayedOf)
	c.delayed.Add(1)
	close(stop)
	for range MaxDelayed {
		require.Equal(t, DelayedFor, <-effects)
	}
	require.Eventually(t, func() bool { return c.Delayed() == 0 }, time.Minute, time.Millisecond)
}

func TestScaledCostsAreExactOnAverage(t *testing.T) {
	sum := int64(0)
	const n = 100_000
	for range n {
		checks := []limiter.Check{
			{Limit: &limiter.Limit{Algorithm: limiter.FixedWindow, Limit: 100}, Cost: 1},
			{Limit: &limiter.Limit{Algorithm: limiter.FixedWindow, Limit: 2}, Cost: 2},
			{Limit: &limiter.Limit{Algorithm: limiter.Concurrency, Limit: 100}, Cost: 1},
		}
		scale(checks, 0.6, rand.Float64)
		sum += checks[0].Cost
		require.EqualValues(t, 2, checks[1].Cost, "what could never pass is not asked for")
		require.EqualValues(t, 1, checks[2].Cost)
	}
	require.InDelta(t, 1/0.6, float64(sum)/n, 0.02)
}

// A limit that has room again after milliseconds tells clients to wait a whole second. Clients
// that do not wait are judged by what they were told; those that do are not.
func TestWhatAClientWasToldCounts(t *testing.T) {
	f := func(pause time.Duration, want string) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			d, _ := decider(t, "rules: [{id: clients, key: [client_ip], algorithm: token_bucket, limit: 20, window: 1s, burst: 20}]", calm)
			d.Behavior = behaviorFor(t, "signals: {presence: {weight: 0}}")
			d.Behavior.AboveMildest = func(*Request) {}
			d.Behavior.Rose = func(*Request, *Rise) {}
			r := &Request{}
			for began := time.Now(); time.Since(began) < 10*time.Second; {
				*r = Request{}
				d.ask(t, r, "198.51.100.7", []byte("/"), nil)
				v := d.Decide(r)
				d.Behavior.Learn(r, v, http.StatusOK, time.Now())
				r.Permit.Done()
				if v == Limited {
					time.Sleep(pause)
				}
				time.Sleep(5 * time.Millisecond)
			}
			st, _, judged := d.Behavior.Explain(r, time.Now())
			require.True(t, judged)
			require.Equal(t, want, r.BehaviorResult.Policy.Effects[st.Tier].Name)
		})
	}
	f(0, "suspicious")
	f(time.Second, "normal")
}

// A fingerprint of TLS counts if a trusted proxy tells it; what clients claim themselves does not.
func TestHandshakesOfRealClients(t *testing.T) {
	f := func(peer string, values []string, want bool) {
		t.Helper()
		d, _ := decider(t, "rules: []", calm)
		d.Behavior = behaviorFor(t, "signals: {presence: {headers: [], tls: {header: X-JA4, known: [firefox]}}}")
		d.Behavior.AboveMildest = func(*Request) {}
		fields := fields{"X-Forwarded-For": {[]byte("203.0.113.1")}}
		for _, v := range values {
			fields["X-Ja4"] = append(fields["X-Ja4"], []byte(v))
		}
		r := &Request{}
		d.ask(t, r, peer, []byte("/"), fields)
		require.Equal(t, Pass, d.Decide(r))
		r.Permit.Done()
		require.Equal(t, want, r.BehaviorResult.lacks)
	}
	const proxy, client = "10.0.0.1", "192.0.2.1"
	f(proxy, []string{"firefox"}, false)
	f(proxy, []string{"a tool"}, true)
	f(proxy, []string{"firefox", "a tool"}, true)
	f(proxy, nil, true)
	f(client, []string{"a tool"}, false)
	f(client, nil, false)
}

// Clients behind one address are distinguished by what the policy names. A client that lacks it, or
// sends it twice, is identified by its address.
func TestSubjectsThatThePolicyNames(t *testing.T) {
	d, _ := decider(t, "rules: []", calm)
	d.Behavior = behaviorFor(t, `{mode: enforce, subject: [header:X-Api-Key], signals: {failures: {weight: 100, at_least: 5, share: 0.1}}, routes: {guessing: {weight: 0}},
		tiers: [{name: normal}, {name: blocked, from: 50, until: 20, refuse: {for: 1h, max: 2h}}]}`)
	d.Behavior.AboveMildest = func(*Request) {}
	rose := ""
	d.Behavior.Rose = func(r *Request, _ *Rise) { rose = r.Subject() }
	const address = "198.51.100.7"
	r := &Request{}
	ask := func(keys ...string) Verdict {
		*r = Request{Began: time.Now()}
		sent := fields{}
		for _, key := range keys {
			sent["X-Api-Key"] = append(sent["X-Api-Key"], []byte(key))
		}
		d.ask(t, r, address, []byte("/"), sent)
		v := d.Decide(r)
		r.Permit.Done()
		return v
	}
	guess := func(keys ...string) {
		for range 10 {
			d.Behavior.Learn(r, ask(keys...), http.StatusUnauthorized, time.Now())
		}
	}
	guess("bad")
	require.Equal(t, rules.HashOf("header:X-Api-Key", "bad"), rose, "the key is in no log")
	require.Equal(t, Misbehaved, ask("bad"))
	require.Equal(t, Pass, ask("good"))
	require.Equal(t, Pass, ask())

	guess("one", "two")
	require.Empty(t, rose)
	require.Equal(t, Misbehaved, ask(), "its address is judged")
	require.Equal(t, Misbehaved, ask("bad", "good"))
	require.Equal(t, Pass, ask("good"))

	// An operator who knows only the hash is told the same.
	*r = Request{Hashes: map[string]string{"header:X-Api-Key": strings.TrimPrefix(rules.HashOf("header:X-Api-Key", "bad"), "~")}}
	d.ask(t, r, address, []byte("/"), fields{})
	st, _, judged := d.Behavior.Explain(r, time.Now())
	require.True(t, judged)
	require.Positive(t, st.Refused)

	require.Equal(t, Pass, ask("good"))
	require.Zero(t, testing.AllocsPerRun(100, func() { d.Behavior.Classify(r) }))
}

// A client whose tier lowers limits is told what passes of its requests.
func TestTiersAreToldInTheFields(t *testing.T) {
	f := func(mode string, quota int) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			d, _ := decider(t, "rules: [{id: clients, key: [client_ip], limit: 100, window: 1h}]", calm)
			d.Behavior = behaviorFor(t, "{mode: "+mode+`, signals: {failures: {weight: 40, at_least: 5, share: 0.1}},
				tiers: [{name: normal}, {name: tight, from: 25, until: 20, limits: 0.3}]}`)
			d.Behavior.AboveMildest = func(*Request) {}
			d.Behavior.Rose = func(*Request, *Rise) {}
			r := &Request{}
			ask := func(client string) (Verdict, map[string]string) {
				*r = Request{}
				d.ask(t, r, client, []byte("/"), nil)
				v := d.Decide(r)
				r.Permit.Done()
				told := map[string]string{}
				r.SetLimitHeaders(true, func(name, value []byte) { told[string(name)] = string(value) })
				return v, told
			}
			for range 10 {
				v, _ := ask("198.51.100.7")
				d.Behavior.Learn(r, v, http.StatusUnauthorized, time.Now())
			}
			spent := 100 - int(r.Decision.Results[0].Remaining)
			passed := 0
			for v, told := ask("198.51.100.7"); v == Pass; v, told = ask("198.51.100.7") {
				passed++
				require.Equal(t, fmt.Sprintf(`"clients";q=%d;w=3600`, quota), told["RateLimit-Policy"])
				require.Equal(t, strconv.Itoa(quota), told["X-RateLimit-Limit"])
				left := int(r.Decision.Results[0].Remaining) * quota / 100
				require.Equal(t, strconv.Itoa(left), told["X-RateLimit-Remaining"])
				require.Regexp(t, fmt.Sprintf(`^"clients";r=%d;t=`, left), told["RateLimit"])
			}
			require.InDelta(t, (100-spent)*quota/100, passed, 3, "costs are drawn")
		})
	}
	f("enforce", 30)
	f("shadow", 100)
}

// An office of 500 behind one address exceeds its limit for a while. Each user obeys Retry-After,
// and gives up after three times. Once the peak is over nobody is refused any more.
func TestAnOfficeThatObeysIsFreeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _ := decider(t, "rules: [{id: clients, key: [client_ip], algorithm: token_bucket, limit: 20, window: 1s, burst: 200}]", calm)
		d.Behavior = behaviorFor(t, "{mode: enforce, signals: {presence: {weight: 0}}}")
		d.Behavior.AboveMildest = func(*Request) {}
		d.Behavior.Rose = func(*Request, *Rise) {}
		type user struct {
			at    time.Time
			tries int
			page  int
		}
		random, began, next := rand.New(rand.NewPCG(5, 6)), time.Now(), 0
		var waiting []user
		limited := map[int]int{} // by minute
		r := &Request{}
		const hour, step = time.Hour, 20 * time.Millisecond
		for ; time.Since(began) < hour; time.Sleep(step) {
			each := 12.0
			if at := time.Since(began); at > 5*time.Minute && at < 5*time.Minute+10*time.Second {
				each = 200
			}
			for range int(each*step.Seconds() + random.Float64()) {
				waiting = append(waiting, user{at: time.Now(), page: next % 600})
				next++
			}
			var later []user
			for _, u := range waiting {
				if time.Now().Before(u.at) {
					later = append(later, u)
					continue
				}
				*r = Request{Began: time.Now()}
				d.ask(t, r, "198.51.100.7", []byte("/page/"+strconv.Itoa(u.page)), nil)
				v := d.Decide(r)
				r.Permit.Done()
				d.Behavior.Learn(r, v, http.StatusOK, time.Now())
				if v == Pass {
					continue
				}
				limited[int(time.Since(began)/time.Minute)]++
				if u.tries++; u.tries < 3 {
					var wait time.Duration
					if v == Limited {
						wait = r.Decision.RetryAfter(r.Match.Checks)
					}
					u.at = time.Now().Add(max(time.Second, wait))
					later = append(later, u)
				}
			}
			waiting = later
		}
		require.NotZero(t, limited[5])
		for minute, n := range limited {
			require.Less(t, minute, 10, "%d limited", n)
		}
	})
}

// Who guesses from one address is found by that, and logins of others are not slowed. Guesses
// that are spread over many addresses are the route's.
func TestOneAddressDoesNotSlowALogin(t *testing.T) {
	f := func(addresses int, want string) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			d, _ := decider(t, "rules: []", calm)
			d.Behavior = behaviorFor(t, "{mode: enforce, signals: {presence: {weight: 0}}}")
			d.Behavior.AboveMildest = func(*Request) {}
			rose := map[string]bool{}
			d.Behavior.Rose = func(_ *Request, rise *Rise) { rose[rise.Kind] = true }
			r := &Request{}
			for i := range 1200 { // 66 per minute
				*r = Request{Began: time.Now()}
				d.ask(t, r, fmt.Sprintf("198.51.%d.%d", i%addresses/250, 1+i%addresses%250), []byte("/login"), nil)
				d.Behavior.Learn(r, d.Decide(r), http.StatusUnauthorized, time.Now())
				r.Permit.Done()
				time.Sleep(time.Minute / 66)
			}
			require.Equal(t, map[string]bool{want: true}, rose)
			d.Behavior.delayed.Store(MaxDelayed)
			*r = Request{Began: time.Now()}
			d.ask(t, r, "203.0.113.9", []byte("/login"), nil)
			require.Equal(t, Pass, d.Decide(r), "no route is refused")
			require.Equal(t, want == KindRoute, r.BehaviorResult.Tier > 0)
			r.Permit.Done()
		})
	}
	f(1, KindClient)
	f(1000, KindRoute)
}
