package console

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/console/access"
)

// proxied configures a console behind a proxy at 10.0.0.5 that names people and their groups.
const proxied = `
listen: 127.0.0.1:0
public: https://weir.example.com
proxy: {from: [10.0.0.5/32], header: X-Forwarded-User, groups_header: X-Forwarded-Groups}
roles:
  - {who: {groups: ["*"]}, may: reader}
  - {who: {groups: [sre]}, may: operator}
  - {who: {groups: [eu]}, may: admin, regions: [eu-west], kinds: [rules, limits]}
  - {who: {groups: [leads], users: [root@example.com]}, may: admin}
`

func behindProxy(t *testing.T, c *recorder) *Server {
	t.Helper()
	file := filepath.Join(t.TempDir(), "console.yaml")
	require.NoError(t, os.WriteFile(file, []byte(proxied), 0o600))
	config, err := access.Load(file)
	require.NoError(t, err)
	gate, err := access.New(config, "console@host")
	require.NoError(t, err)
	return New(t.Context(), Config{Do: c.do, Access: gate, Origin: config.Origin(), Log: slog.New(slog.DiscardHandler)}, place)
}

// through makes a request look like one that the proxy forwarded for a person of these groups.
func through(s *Server, name, groups string) func(*http.Request) {
	return func(r *http.Request) {
		r.Host, r.RemoteAddr = "weir.example.com", "10.0.0.5:4711"
		r.Header.Set("X-Forwarded-User", name)
		r.Header.Set("X-Forwarded-Groups", groups)
		r.Header.Del(access.HeaderToken)
		if r.Method == http.MethodPost {
			r.Header.Set("Origin", "https://weir.example.com")
			if person, err := s.Access.Identify(r); err == nil {
				r.Header.Set(access.HeaderToken, person.Token)
			}
		}
	}
}

// Whoever may change some kinds may undo only changes of these.
func TestUndoNeedsTheKind(t *testing.T) {
	s := behindProxy(t, &recorder{out: "{}"})
	for id, want := range map[string]int{"rules.undo": 200, "drain.undo": 403, "clients.undo": 403, "shedder.undo": 403, "policy.undo": 403} {
		i := slices.IndexFunc(Operations(), func(o Operation) bool { return o.ID == id })
		require.Equal(t, want, ask(s, "POST", Prefix+Operations()[i].Path, `{"of": ["0123"], "region": ["eu-west"]}`, through(s, "eve@example.com", "eu")).Code, id)
	}
}

// Each operation runs only for people with its role, and in their names.
func TestRoles(t *testing.T) {
	c := &recorder{out: "{}"}
	s := behindProxy(t, c)
	groups := map[access.Role]string{access.Reader: "", access.Operator: "others, sre", access.Admin: "leads"}
	for _, o := range Operations() {
		require.NotEqual(t, access.None, o.Least, "%s states no role", o.ID)
		require.Equal(t, o.Writes, o.Least > access.Reader, o.ID)
		if o.Streams {
			continue
		}
		path, body := o.request()
		for role, list := range groups {
			before := c.called()
			w := ask(s, o.Method, path, body, through(s, "bob@example.com", list))
			if role >= o.Least {
				require.Equal(t, 200, w.Code, "%s as %s: %s", o.ID, role, w.Body)
				if o.Rollout != "" {
					continue // TestRolloutNamesPeople
				}
				require.Equal(t, "bob@example.com", c.calls[before].user, o.ID)
				continue
			}
			require.Equal(t, 403, w.Code, "%s as %s", o.ID, role)
			require.Contains(t, w.Body.String(), "this needs the role "+o.Least.String()+" for "+o.kind()+" in all regions, and bob@example.com is "+role.String())
			require.Equal(t, before, c.called())
		}
	}
	var session Session
	require.NoError(t, json.Unmarshal(ask(s, "GET", Prefix+"/session", "", through(s, "bob@example.com", "sre")).Body.Bytes(), &session))
	require.Equal(t, []any{"bob@example.com", "operator", map[string]string{"rules.apply": "admin", "rules.rollout.start": "admin", "rules.rollout.resume": "admin", "shedder.set": "admin"}}, []any{session.User, session.Role, session.Needs})
}

// Rights can be bounded to regions and kinds. Who may not change all regions names those to change.
func TestRightsInRegions(t *testing.T) {
	c := &recorder{out: "{}"}
	s := behindProxy(t, c)
	eve := through(s, "eve@example.com", "eu")
	f := func(path, body, saying string) {
		t.Helper()
		before := c.called()
		w := ask(s, "POST", Prefix+path, body, eve)
		if saying == "" {
			require.Equal(t, 200, w.Code, "%s", w.Body)
			require.Equal(t, before+1, c.called())
			return
		}
		require.Equal(t, 403, w.Code, "%s", w.Body)
		require.Contains(t, w.Body.String(), saying)
		require.Equal(t, before, c.called())
	}
	const her = ", and eve@example.com is admin for rules, limits in eu-west"
	f("/rules/apply", `{"document": "rules: []", "region": ["eu-west"]}`, "")
	f("/rules/apply", `{"document": "rules: []"}`, "this needs the role admin for rules in all regions"+her+"; name only eu-west in region, or ask the console's administrator")
	f("/rules/apply", `{"document": "rules: []"}`, `"reason":"regions","regions":["eu-west"]`)
	f("/rules/rollback", `{"to": "3f2a", "region": ["eu-west", "us-east"]}`, "this needs the role operator for rules in eu-west, us-east"+her)
	f("/limits/reset", `{"rule": "a", "client": "192.0.2.1", "region": ["eu-west"]}`, "")
	f("/shedder/off", `{"for": "1h", "region": ["eu-west"]}`, "this needs the role operator for shedder in all regions"+her+"; ask")
	f("/pops/ams1/drain", `{"reason": "x"}`, "this needs the role operator for drain in all regions"+her+"; ask")
	f("/rules/undo", `{"of": ["0123"], "region": ["eu-west"]}`, "")
	f("/drain/undo", `{"of": ["0123"], "region": ["eu-west"]}`, "this needs the role operator for drain in all regions"+her+"; ask")
	f("/rules/rollout/resume", `{}`, "this needs the role admin for rules in all regions"+her+"; ask")
	require.Equal(t, 200, ask(s, "GET", Prefix+"/shedder", "", eve).Code, "everyone sees everything")

	var session Session
	require.NoError(t, json.Unmarshal(ask(s, "GET", Prefix+"/session", "", eve).Body.Bytes(), &session))
	require.Equal(t, "admin for rules, limits in eu-west", session.Role)
	require.Equal(t, []string{"", "admin", "operator"}, []string{session.Needs["rules.apply"], session.Needs["rules.rollout.resume"], session.Needs["drain"]})

	// A rollout can be halted by those who may change its regions.
	require.Equal(t, []string{"eu-west"}, session.Regions["rules.rollout.halt"])
	c.hold, c.err = true, failure{reasonInterrupted, "interrupted"}
	w := ask(s, "POST", Prefix+"/rules/rollout/start", `{"document": "rules: []", "region": ["us-east"]}`, through(s, "ana@example.com", "leads"))
	require.Equal(t, 200, w.Code, "%s", w.Body)
	w = ask(s, "POST", Prefix+"/rules/rollout/halt", `{}`, eve)
	require.Equal(t, 403, w.Code, "%s", w.Body)
	require.Contains(t, w.Body.String(), "eve@example.com is admin for rules, limits in eu-west; somebody who is operator for rules in us-east must halt it\"")
	require.NotContains(t, w.Body.String(), "regions\"")
	w = ask(s, "POST", Prefix+"/rules/rollout/halt", `{}`, through(s, "bob@example.com", "sre"))
	require.Equal(t, 200, w.Code, "%s", w.Body)
	<-s.rollout.end()
	w = ask(s, "POST", Prefix+"/rules/rollout/start", `{"document": "rules: []", "region": ["eu-west"]}`, eve)
	require.Equal(t, 200, w.Code, "%s", w.Body)
	require.Equal(t, 200, ask(s, "POST", Prefix+"/rules/rollout/halt", `{}`, eve).Code)
	<-s.rollout.end()
	// Another rollout may begin between the check of a halt and its act.
	call := func(region string) *Call {
		halt := Operations()[slices.IndexFunc(Operations(), func(o Operation) bool { return o.Rollout == haltRollout })]
		return &Call{Operation: &halt, User: "ana", Note: func(string) {}, values: values{inRegion.Name: {region}}}
	}
	require.True(t, s.rollout.begin(call("us-east")))
	may := func(regions []string) error {
		if !slices.Equal(regions, []string{"eu-west"}) {
			return &access.Forbidden{Detail: strings.Join(regions, ", ")}
		}
		return nil
	}
	require.ErrorContains(t, s.rollout.halt("eve", may), "us-east")
	now, _ := s.rollout.look()
	require.Equal(t, rolloutRunning, now.State)
	require.NoError(t, s.rollout.halt("ana", func([]string) error { return nil }))
	<-s.rollout.end()
	// What an operation says that it may not halt is answered like any other refusal.
	c.hold, c.err = false, fmt.Errorf("nothing was changed: %w", &access.Forbidden{Detail: "this needs us-east"})
	w = ask(s, "POST", Prefix+"/rules/undo", `{"of": ["0123"], "region": ["eu-west"]}`, eve)
	require.Equal(t, 403, w.Code, "%s", w.Body)
	require.Contains(t, w.Body.String(), "nothing was changed: this needs us-east")
	for _, o := range Operations() {
		require.True(t, !o.Writes || slices.Contains(access.Kinds, o.kind()), o.ID)
	}
}

// Only the proxy may name a person, and only once.
func TestProxy(t *testing.T) {
	c := &recorder{out: "{}"}
	s := behindProxy(t, c)
	for _, bad := range []struct {
		name, path string
		change     func(*http.Request)
		status     int
		saying     string
	}{
		{"a spoofed header", Prefix + "/fleet", func(r *http.Request) { r.RemoteAddr = "10.0.0.6:1" }, 403, "10.0.0.6 is not in proxy.from"},
		{"a page for somebody else", "/fleet", func(r *http.Request) { r.RemoteAddr = "127.0.0.1:1" }, 403, "not in proxy.from"},
		{"an address that cannot be read", Prefix + "/fleet", func(r *http.Request) { r.RemoteAddr = "@" }, 403, "not in proxy.from"},
		{"nobody", Prefix + "/fleet", func(r *http.Request) { r.Header.Del("X-Forwarded-User") }, 401, "X-Forwarded-User is missing"},
		{"two names", Prefix + "/fleet", func(r *http.Request) { r.Header.Add("X-Forwarded-User", "root@example.com") }, 403, "comes 2 times"},
		{"two lists of groups", Prefix + "/fleet", func(r *http.Request) { r.Header.Add("X-Forwarded-Groups", "leads") }, 403, "comes 2 times"},
		{"a name of two lines", Prefix + "/fleet", func(r *http.Request) { r.Header.Set("X-Forwarded-User", "bob\u2028admin") }, 403, "printable"},
		{"a long name", Prefix + "/fleet", func(r *http.Request) { r.Header.Set("X-Forwarded-User", strings.Repeat("x", 129)) }, 403, "at most 128 bytes"},
		{"the address that it listens on", Prefix + "/fleet", func(r *http.Request) { r.Host = place.String() }, 421, "A proxy must pass Host on"},
		{"plain HTTP", Prefix + "/fleet", func(r *http.Request) { r.Header.Set("Origin", "http://weir.example.com") }, 403, "may not call"},
	} {
		w := ask(s, "GET", bad.path, "", through(s, "bob@example.com", ""), bad.change)
		require.Equal(t, bad.status, w.Code, "%s: %s", bad.name, w.Body)
		require.Contains(t, w.Body.String(), bad.saying, bad.name)
	}
	require.Zero(t, c.called())
	// A token works for one person only.
	other, err := s.Access.Identify(func() *http.Request {
		r, _ := http.NewRequest("GET", "/", nil)
		through(s, "eve@example.com", "sre")(r)
		return r
	}())
	require.NoError(t, err)
	w := ask(s, "POST", Prefix+"/pops/ams1/drain", `{"reason": "x"}`, through(s, "bob@example.com", "sre"), func(r *http.Request) { r.Header.Set(access.HeaderToken, other.Token) })
	require.Equal(t, 403, w.Code)
	require.Contains(t, w.Body.String(), `"reason":"token"`)
	w = ask(s, "GET", Prefix+"/fleet", "", through(s, "root@example.com", ""), func(r *http.Request) { r.Host = "WEIR.example.com:443" })
	require.Equal(t, 200, w.Code)
	require.Equal(t, "max-age=31536000", w.Header().Get("Strict-Transport-Security"))
}

// docs/CONSOLE.md lists what each role may do.
func TestRolesInDocs(t *testing.T) {
	table := "| role | may |\n|---|---|\n"
	for _, role := range []access.Role{access.Reader, access.Operator, access.Admin} {
		var list []string
		for _, o := range Operations() {
			if o.Least == role {
				list = append(list, "`"+o.ID+"`")
			}
		}
		table += fmt.Sprintf("| %s | %s |\n", role, strings.Join(list, ", "))
	}
	inDocs(t, "TestRolesInDocs", table)
}
