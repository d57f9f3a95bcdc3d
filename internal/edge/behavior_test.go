package edge

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/edge/config"
	"github.com/weir-edge/weir/internal/edge/decide"
)

func policyFile(t testing.TB, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "policy.yaml")
	require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	return name
}

// quick is a policy by which 10, 15 and 20 wrong passwords lead from tier to tier.
const quick = `
signals:
  failures: {weight: 30, at_least: 10, share: 0.5}
  presence: {weight: 0}
routes: {guessing: {weight: 0}}
tiers:
  - {name: normal}
  - {name: elevated, from: 30, until: 20, header: true, limits: 0.5}
  - {name: suspicious, from: 45, until: 40, header: true, delay: 1ms}
  - {name: blocked, from: 60, until: 50, refuse: {for: 1h, max: 1h}}
`

// risks is an origin that refuses /login, and remembers the last Weir-Risk.
type risks struct{ last atomic.Value }

func (o *risks) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	o.last.Store(strings.Join(r.Header.Values("Weir-Risk"), "|"))
	if r.URL.Path == "/login" {
		w.WriteHeader(http.StatusUnauthorized)
	}
}

func guessing(t *testing.T, policy, rules string) (*node, *risks) {
	t.Helper()
	origin := &risks{}
	n := start(t, setup{clock: newClock(), rules: rules, origin: origin.ServeHTTP, config: func(c *config.Config) {
		c.Policy.File = policyFile(t, policy)
		c.TrustedProxies = []string{"127.0.0.1"}
	}})
	return n, origin
}

func (n *node) behaviorOf(client string) *adminapi.Behavior {
	n.t.Helper()
	return n.explanation("/login", client).Behavior
}

func (n *node) explanation(path, client string) (e adminapi.Explanation) {
	n.t.Helper()
	a := n.operate("GET", "/v1/explain?path="+path+"&client="+client)
	require.NoError(n.t, json.Unmarshal([]byte(a.body), &e), a.body)
	return e
}

func TestAClientThatGuessesIsRefused(t *testing.T) {
	n, origin := guessing(t, "mode: enforce"+quick, "")
	client := []string{"X-Forwarded-For: 192.0.2.1", "Weir-Risk: normal"}
	for i := range 20 {
		require.Equal(t, 401, n.get("/login", client...).status, "%d", i)
		// The origin learns the tier in which the request began, and never what the client says.
		want := ""
		switch {
		case i >= 15:
			want = "suspicious;score="
		case i >= 10:
			want = "elevated;score="
		}
		got := origin.last.Load().(string)
		require.True(t, strings.HasPrefix(got, want) && (want != "") == (got != ""), "%d: %q", i, got)
		require.Equal(t, want != "", strings.HasSuffix(got, ";signals=failures"))
		eventually(t, "it is learned", func() bool {
			c := n.behaviorOf("192.0.2.1")
			return i < 9 || len(c.Signals) > 0 && c.Signals[0].Value == float64(i+1)
		})
	}
	asked := n.asked.Load()
	refused := n.get("/", client...)
	require.Equal(t, 429, refused.status)
	require.NotEmpty(t, refused.header.Get("Retry-After"))
	require.Contains(t, refused.body, "Refused because of earlier requests")
	require.Equal(t, asked, n.asked.Load())
	require.Equal(t, 200, n.get("/", "X-Forwarded-For: 192.0.2.2").status, "another client")
	require.Equal(t, 429, n.get("/", "X-Forwarded-For: ::ffff:192.0.2.1").status, "the same one")

	c := n.behaviorOf("192.0.2.1")
	require.Equal(t, "blocked", c.Tier)
	require.NotEmpty(t, c.RefusedFor)
	require.Equal(t, "enforce", c.Mode)
	e := n.explanation("/", "192.0.2.1")
	require.Equal(t, "refuse, 429", e.Verdict)
	for _, r := range e.Rules {
		require.False(t, r.Allowed, "a rule with requests left does not let it pass")
		require.Equal(t, adminapi.SourceBehavior, r.Source)
	}

	require.EqualValues(t, 5, n.metric(`weir_behavior_requests_total{effect="passed",mode="enforce",tier="elevated"}`))
	require.EqualValues(t, 5, n.metric(`weir_behavior_requests_total{effect="delayed",mode="enforce",tier="suspicious"}`))
	require.EqualValues(t, 2, n.metric(`weir_behavior_requests_total{effect="refused",mode="enforce",tier="blocked"}`))
	for _, tier := range []string{"elevated", "suspicious", "blocked"} {
		require.EqualValues(t, 1, n.metric(`weir_behavior_rises_total{kind="client",tier="`+tier+`"}`))
		require.EqualValues(t, 1, n.metric(`weir_behavior_signals_total{kind="client",signal="failures",tier="`+tier+`"}`))
	}
	lines := n.logs.lines(t, "subject entered a severer tier")
	require.NotEmpty(t, lines)
	require.Equal(t, "192.0.2.1", lines[0]["client"])
	require.Equal(t, map[string]any{"points": 30.0, "value": 10.0, "threshold": 10.0}, lines[0]["failures"])
}

func TestATierScalesLimits(t *testing.T) {
	n, _ := guessing(t, "mode: enforce"+quick, "rules: [{id: r, key: [client_ip], limit: 100, window: 1h, algorithm: fixed_window}]")
	for range 10 {
		n.get("/login", "X-Forwarded-For: 192.0.2.1")
	}
	eventually(t, "it is elevated", func() bool { return n.behaviorOf("192.0.2.1").Tier == "elevated" })
	require.EqualValues(t, 90/2, n.remaining("r", "192.0.2.1"))
	require.Equal(t, `"r";q=50;w=3600`, n.get("/", "X-Forwarded-For: 192.0.2.1").header.Get("RateLimit-Policy"))
	require.EqualValues(t, 88/2, n.remaining("r", "192.0.2.1"), "a request counts twice")
	for range 44 {
		require.Equal(t, 200, n.get("/", "X-Forwarded-For: 192.0.2.1").status)
	}
	require.Equal(t, "refuse, 429", n.explanation("/", "192.0.2.1").Verdict)
	require.Equal(t, 429, n.get("/", "X-Forwarded-For: 192.0.2.1").status)
}

func TestShadowChangesNothing(t *testing.T) {
	n, origin := guessing(t, quick, "")
	for i := range 25 {
		require.Equal(t, 401, n.get("/login", "X-Forwarded-For: 192.0.2.1").status, "%d", i)
		require.Empty(t, origin.last.Load())
	}
	eventually(t, "it would be refused", func() bool {
		n.get("/login", "X-Forwarded-For: 192.0.2.1")
		return n.metric(`weir_behavior_requests_total{effect="refused",mode="shadow",tier="blocked"}`) > 0
	})
	require.Equal(t, "shadow", n.behaviorOf("192.0.2.1").Mode)
	require.Equal(t, 401, n.get("/login", "X-Forwarded-For: 192.0.2.1").status)
}

func TestARouteThatIsGuessedAt(t *testing.T) {
	n, origin := guessing(t, "mode: enforce"+strings.Replace(quick, "{guessing: {weight: 0}}", "{guessing: {weight: 40, at_least: 30, share: 0.5}}", 1), "")
	for i := range 30 {
		n.get("/login", fmt.Sprintf("X-Forwarded-For: 192.0.2.%d", i))
	}
	eventually(t, "each address is innocent, and the route is not", func() bool {
		n.get("/login", "X-Forwarded-For: 192.0.2.200")
		return strings.HasPrefix(origin.last.Load().(string), "elevated;score=0")
	})
	c := n.explanation("/login", "192.0.2.200").Behavior
	require.Equal(t, "normal", c.Tier)
	require.Equal(t, "elevated", c.Route.Tier)
	require.Equal(t, "failures", c.Route.Signals[0].Signal)
	require.Less(t, c.Limits, 1.0)
	n.get("/", "X-Forwarded-For: 192.0.2.200")
	require.Empty(t, origin.last.Load(), "another route")
	require.Nil(t, n.explanation("/", "192.0.2.200").Behavior.Route)
	require.EqualValues(t, 1, n.metric(`weir_behavior_rises_total{kind="route",tier="elevated"}`))
}

func TestExemptRequestsAreNotJudged(t *testing.T) {
	n, origin := guessing(t, "mode: enforce"+quick+"exempt: [{clients: [192.0.2.0/24]}, {headers: {X-Bot: known}}]", "")
	for range 25 {
		require.Equal(t, 401, n.get("/login", "X-Forwarded-For: 192.0.2.1", "Weir-Risk: x").status)
		require.Empty(t, origin.last.Load())
		require.Equal(t, 401, n.get("/login", "X-Forwarded-For: 198.51.100.1", "X-Bot: known").status)
	}
	require.True(t, n.behaviorOf("192.0.2.1").Exempt)
	require.EqualValues(t, 0, n.metric(`weir_behavior_subjects{kind="client"}`))
}

func TestWhatWeirRefusesIsNoBehavior(t *testing.T) {
	n, _ := guessing(t, "mode: enforce"+quick, "rules: [{id: r, key: [client_ip], limit: 1, window: 1s}]")
	for range 15 { // as failures they would count; to have ignored a Retry-After takes one more
		n.get("/", "X-Forwarded-For: 192.0.2.1")
	}
	c := n.behaviorOf("192.0.2.1")
	require.Equal(t, "normal", c.Tier)
	require.Empty(t, c.Signals)
}

func TestAPolicyIsReadAgain(t *testing.T) {
	n, _ := guessing(t, quick, "")
	file := n.config.Policy.File
	replace := func(text string) { // at once: the node may be reading
		require.NoError(t, os.WriteFile(file+".next", []byte(text), 0o600))
		require.NoError(t, os.Rename(file+".next", file))
	}
	replace("mode: on")
	eventually(t, "a bad policy is refused", func() bool {
		n.nudge()
		return n.metric("weir_behavior_policy_rejected_total") == 1
	})
	require.Equal(t, "shadow", n.behaviorOf("192.0.2.1").Mode)
	replace("mode: enforce" + quick)
	eventually(t, "a good one is activated", func() bool {
		n.nudge()
		return n.behaviorOf("192.0.2.1").Mode == "enforce"
	})
	require.EqualValues(t, 1, n.metric("weir_behavior_policy_rejected_total"))
	require.NoError(t, os.Remove(file))
	eventually(t, "its absence is reported", func() bool {
		n.nudge()
		return n.metric("weir_behavior_policy_source_up") == 0 && n.metric("weir_behavior_policy_rejected_total") == 2
	})
	var logged []map[string]any
	eventually(t, "both are logged", func() bool { logged = n.logs.lines(t, "reload policy"); return len(logged) >= 2 })
	require.Len(t, logged, 2)
	require.Contains(t, logged[0]["error"], "behavior policies refused: ")
	require.Contains(t, logged[1]["error"], "policy.file: ")
	require.Equal(t, "enforce", n.behaviorOf("192.0.2.1").Mode)
}

// nudge asks for a look at all files.
func (n *node) nudge() {
	select {
	case n.reload <- syscall.SIGHUP:
	default:
	}
}

func TestABadPolicyKeepsANodeFromStarting(t *testing.T) {
	c := config.Dev("127.0.0.1:1")
	c.Policy.File = policyFile(t, "mode: on")
	_, err := New(c, "rules: []", discard())
	require.ErrorContains(t, err, c.Policy.File+`:1: mode: must be shadow or enforce (got "on")`)
	c.Policy.File, c.Policy.Source, c.Policy.Subjects = filepath.Join(t.TempDir(), "none"), "consul", 5
	err = c.Validate()
	require.ErrorContains(t, err, `policy.source: can be consul only if rules.source is consul; use file`)
	require.ErrorContains(t, err, "policy.subjects: must be from 1000 to")
	require.ErrorContains(t, err, "policy.file: ")
}

func TestBehaviorAllocatesNothing(t *testing.T) {
	e := notListening(t, "rules: []", io.Discard, func(c *config.Config) { c.Policy.File = policyFile(t, "mode: enforce") })
	ctx := received(t, "192.0.2.1", "GET /a?b=c&d=e HTTP/1.1", "Host: x", "User-Agent: test")
	run := func() {
		r := e.begin(ctx)
		r.Began = time.Now() // fasthttp sets the time only before serve
		require.NoError(t, r.checkHeader())
		if r.verdict = e.decider.Decide(&r.Request); r.verdict == decide.Pass {
			r.answered = true
			r.recordBehavior()
		}
		r.Permit.Done()
		r.reset()
		e.requests.Put(r)
	}
	for range 100 {
		run()
	}
	require.LessOrEqual(t, testing.AllocsPerRun(1000, run), bound(0))
}

// Rules can name the tier: a limit of its own, and counts of its own.
func TestRulesNameTheRiskTier(t *testing.T) {
	const rules = `rules: [{id: a, match: {paths: [/a]}, key: [client_ip, risk], limit: 100, window: 1h, tiers: {"risk:elevated": 3}}]`
	for _, c := range []struct {
		mode, limit string
		key         string
	}{{"enforce", "3", "weir:{192.0.2.1}:a:rr:elevated"}, {"shadow", "100", "weir:{192.0.2.1}:a:rr:normal"}} {
		n, _ := guessing(t, "mode: "+c.mode+strings.ReplaceAll(quick, "limits: 0.5", "limits: 1"), rules)
		client := []string{"X-Forwarded-For: 192.0.2.1"}
		require.Contains(t, n.get("/a", client...).header.Get("RateLimit-Policy"), `q=100`)
		for range 10 {
			n.get("/login", client...)
		}
		eventually(t, "it is learned", func() bool { return n.behaviorOf("192.0.2.1").Tier == "elevated" })
		require.Contains(t, n.get("/a", client...).header.Get("RateLimit-Policy"), `q=`+c.limit+`;`)
		e := n.explanation("/a", "192.0.2.1")
		require.Equal(t, c.key, e.Rules[0].Key)
		require.Equal(t, c.limit, fmt.Sprint(e.Rules[0].Limit))
		n.stop()
	}
}
