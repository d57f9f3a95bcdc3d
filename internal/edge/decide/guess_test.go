package decide

import (
	"fmt"
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// visit is a finished request to a site whose policy is in force.
type visit struct {
	from, method, path string
	fields             fields
	status             int // of the origin's answer
}

// visitor returns a function that makes visits and returns what became of them.
func visitor(t *testing.T, rules string) (*Behavior, func(visit) (Verdict, *Request)) {
	d, _ := decider(t, rules, calm)
	d.Behavior = behaviorFor(t, "{mode: enforce, signals: {presence: {weight: 0}}}")
	d.Behavior.AboveMildest = func(*Request) {}
	d.Behavior.Rose = func(*Request, *Rise) {}
	r := &Request{}
	return d.Behavior, func(v visit) (Verdict, *Request) {
		*r = Request{Began: time.Now()}
		d.ask(t, r, v.from, []byte(v.path), v.fields)
		r.Method = []byte(v.method)
		verdict := d.Decide(r)
		d.Behavior.Learn(r, verdict, v.status, time.Now())
		r.Permit.Done()
		return verdict, r
	}
}

// guess makes 62 addresses guess passwords, 66 per minute, at the paths in turn.
func guess(visits func(visit) (Verdict, *Request), paths ...string) {
	for i := range 62 {
		visits(visit{fmt.Sprintf("198.51.100.%d", 1+i), "POST", paths[i%len(paths)], nil, http.StatusUnauthorized})
		time.Sleep(time.Minute / 66)
	}
}

// A page of another site makes its visitors' browsers ask for what does not exist, or is forbidden.
// Their own requests, and those of others behind the address, are not judged by it.
func TestAHostilePageDoesNotRefuseItsVisitors(t *testing.T) {
	for _, status := range []int{http.StatusNotFound, http.StatusForbidden, http.StatusInternalServerError} {
		synctest.Test(t, func(t *testing.T) {
			const office = "203.0.113.7"
			_, visits := visitor(t, "rules: []")
			forced := fields{"Sec-Fetch-Site": {[]byte("cross-site")}, "Sec-Fetch-Mode": {[]byte("no-cors")}}
			passed := 0
			for i := range 300 {
				if v, _ := visits(visit{office, "GET", "/images/" + strconv.Itoa(i), forced, status}); v == Pass {
					passed++
				}
				time.Sleep(50 * time.Millisecond)
			}
			require.Less(t, passed, 100, "these are a client of their own")
			for _, own := range []fields{nil, {"Sec-Fetch-Site": {[]byte("same-origin")}}, {"Sec-Fetch-Site": {[]byte("none")}}} {
				v, r := visits(visit{office, "GET", "/", own, http.StatusOK})
				require.Equal(t, Pass, v)
				require.Zero(t, r.BehaviorResult.Tier)
			}
			v, _ := visits(visit{office, "GET", "/", fields{"Sec-Fetch-Site": {[]byte("cross-site"), []byte("cross-site")}}, http.StatusOK})
			require.Equal(t, Pass, v, "no browser sends it twice")
		})
	}
}

// While passwords are guessed at a route, a client whose password it accepted is treated there as
// everywhere, until it rejects one.
func TestTheRightPasswordIsNotSlowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, visits := visitor(t, "rules: [{id: logins, match: {paths: [/login]}, key: [client_ip], limit: 15, window: 1h}]")
		guess(visits, "/login")
		const customer = "203.0.113.9"
		login := func(method string, f fields, status int) *Request {
			v, r := visits(visit{customer, method, "/login", f, status})
			require.Equal(t, Pass, v)
			return r
		}
		require.Equal(t, 2, login("GET", fields{"Cookie": {[]byte("a=b")}, "Authorization": {[]byte("Basic eDp5")}}, http.StatusOK).BehaviorResult.Tier, "the form")
		require.Equal(t, 2, login("POST", nil, http.StatusSeeOther).BehaviorResult.Tier, "the page proves nothing")
		for range 3 {
			r := login("POST", nil, http.StatusOK)
			require.Zero(t, r.BehaviorResult.Tier)
			require.Zero(t, r.BehaviorResult.Effect)
		}
		require.Zero(t, login("POST", nil, http.StatusUnauthorized).BehaviorResult.Tier, "it may mistype")
		v, r := visits(visit{customer, "POST", "/login", nil, http.StatusOK})
		require.Equal(t, Limited, v, "but then it proves itself again")
		require.Equal(t, 2, r.BehaviorResult.Tier)
	})
}

// Origins that ignore case see one route in 64 spellings.
func TestSpellingsOfARouteShareItsTier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, visits := visitor(t, "rules: []")
		var spellings []string
		for n := range 64 {
			name := []byte("/signin")
			for i := range 6 {
				if n>>i&1 > 0 {
					name[1+i] -= 'a' - 'A'
				}
			}
			spellings = append(spellings, string(name))
		}
		guess(visits, spellings...)
		for _, path := range append(spellings, "/signin/", "/.//SignIn", "/%53ignin;a=b") {
			_, r := visits(visit{"203.0.113.9", "GET", path, nil, http.StatusOK})
			require.Positive(t, r.BehaviorResult.Tier, path)
			st, _, judged := c.ExplainRoute(r, time.Now())
			require.True(t, judged)
			require.Positive(t, st.Tier)
		}
	})
}
