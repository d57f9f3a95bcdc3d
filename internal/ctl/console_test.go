package ctl

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/console"
	"github.com/weir-edge/weir/internal/console/access"
	"github.com/weir-edge/weir/internal/ctl/command"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/internal/ctl/versions"
	"github.com/weir-edge/weir/internal/testenv"
)

// consoleUnderTest is a fleet's console, as used by a script.
type consoleUnderTest struct {
	t       *testing.T
	at      string
	handler http.Handler
	token   string
	schema  map[string]any
	asked   map[string]bool // operations, by method and path
}

func (f *testFleet) console(t *testing.T) *consoleUnderTest {
	t.Helper()
	at := netip.MustParseAddrPort("127.0.0.1:8090")
	p := f.program(strings.NewReader(""), io.Discard, io.Discard)
	p.FleetFile, p.Timeout = f.file, command.DefaultTimeout
	gate := access.Local("ana@desk")
	_, file, err := gate.Offer("")
	require.NoError(t, err)
	text, err := os.ReadFile(file)
	require.NoError(t, errors.Join(err, gate.Withdraw()))
	s := console.New(t.Context(), console.Config{Do: perform(p), Answers: answers(), Access: gate, Log: slog.New(slog.DiscardHandler)}, at)
	c := &consoleUnderTest{t: t, at: "http://" + at.String(), handler: s.Handler(), token: strings.TrimSpace(string(text)), asked: map[string]bool{}}
	require.NoError(t, json.Unmarshal(c.send("GET", "/openapi.json", "").Body.Bytes(), &c.schema))
	return c
}

func (c *consoleUnderTest) send(method, path, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(c.t.Context(), method, c.at+console.Prefix+path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	if strings.HasPrefix(body, "--form") {
		r.Header.Set("Content-Type", "multipart/form-data; boundary=form")
	}
	r.Header.Set(access.HeaderToken, c.token)
	w := httptest.NewRecorder()
	c.handler.ServeHTTP(w, r)
	return w
}

// get calls an operation, requires an answer that matches the description, and returns its
// result.
func (c *consoleUnderTest) get(path string) map[string]any { return c.ask("GET", path, path, "") }

// post is get for an operation with a body; at is its path in the description.
func (c *consoleUnderTest) post(at, path, body string) map[string]any {
	return c.ask("POST", at, path, body)
}

func (c *consoleUnderTest) ask(method, at, path, body string) map[string]any {
	c.t.Helper()
	w := c.send(method, path, body)
	require.Equal(c.t, 200, w.Code, "%s %s: %s", method, path, w.Body)
	var answer map[string]any
	require.NoError(c.t, json.Unmarshal(w.Body.Bytes(), &answer))
	at, _, _ = strings.Cut(at, "?")
	described := dig(c.schema, "paths", console.Prefix+at, strings.ToLower(method), "responses", "200", "content", "application/json", "schema")
	require.NotNil(c.t, described, "%s %s is not described", method, at)
	require.Empty(c.t, c.mismatches("", described, answer), "%s %s: %s", method, path, w.Body)
	c.asked[method+" "+at] = true
	return answer
}

// mismatches compares a value with the parts of JSON Schema that the description uses.
func (c *consoleUnderTest) mismatches(at string, schema, value any) (list []string) {
	s := schema.(map[string]any)
	wrong := func(format string, args ...any) { list = append(list, at+": "+fmt.Sprintf(format, args...)) }
	if ref, is := s["$ref"].(string); is {
		name, _ := strings.CutPrefix(ref, "#/components/schemas/")
		found := dig(c.schema, "components", "schemas", name)
		if found == nil {
			wrong("no schema %s", ref)
			return list
		}
		return c.mismatches(at, found, value)
	}
	if any, is := s["anyOf"].([]any); is {
		for _, one := range any {
			more := c.mismatches(at, one, value)
			if len(more) == 0 {
				return nil
			}
			list = append(list, more...)
		}
		return list
	}
	kinds := map[string]bool{"": true}
	switch v := value.(type) {
	case nil:
		kinds["null"] = true
	case bool:
		kinds["boolean"] = true
	case string:
		kinds["string"] = true
	case float64:
		kinds["number"], kinds["integer"] = true, v == float64(int64(v))
	case []any:
		kinds["array"] = true
		for i, element := range v {
			if s["items"] != nil {
				list = append(list, c.mismatches(fmt.Sprintf("%s[%d]", at, i), s["items"], element)...)
			}
		}
	case map[string]any:
		kinds["object"] = true
		properties, _ := s["properties"].(map[string]any)
		for name, member := range v {
			switch more := s["additionalProperties"].(type) {
			case map[string]any:
				list = append(list, c.mismatches(at+"."+name, more, member)...)
			case bool:
				if properties[name] == nil && !more {
					wrong("has %s, which is not described", name)
				}
			}
			if properties[name] != nil {
				list = append(list, c.mismatches(at+"."+name, properties[name], member)...)
			}
		}
		needed, _ := s["required"].([]any)
		for _, name := range needed {
			if _, there := v[name.(string)]; !there {
				wrong("lacks %s", name)
			}
		}
	}
	if kind, _ := s["type"].(string); !kinds[kind] {
		wrong("is %T, not %s", value, kind)
	}
	return list
}

// dig returns a value inside a JSON object, or nil.
func dig(value any, names ...string) any {
	for _, name := range names {
		object, _ := value.(map[string]any)
		value = object[name]
	}
	return value
}

// refused sends a request that must be refused, and returns the reason.
func (c *consoleUnderTest) refused(status int, path, body string) string {
	c.t.Helper()
	w := c.send("POST", path, body)
	require.Equal(c.t, status, w.Code, "%s", w.Body)
	var p console.Problem
	require.NoError(c.t, json.Unmarshal(w.Body.Bytes(), &p))
	return p.Detail
}

func text(t *testing.T, v any) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	require.NoError(t, enc.Encode(v))
	return strings.TrimSpace(b.String())
}

// In two regions, each operation of the console does what its command does, and its answer
// matches the description.
func TestConsole(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "eu-west", "us-east")
	one := f.edge(t, "eu-west", "ams1", "ams1-1", func(s *stub) {
		s.policy.follows = true
		s.explanation = adminapi.Explanation{Verdict: "pass", Rules: []adminapi.RuleDecision{{Rule: "per-client", Limit: 10, Window: "1m0s", Remaining: 9, Allowed: true, ResetAfter: "1m0s", Key: "weir:{203.0.113.7}:per-client"}}}
		s.clients.follows = true
		s.recentSince, s.recent = tenOClock, []string{keptAt(1, "203.0.113.7", "pass", ""), keptAt(2, "203.0.113.7", "limited", `,"rules":"per-client"`)}
	})
	f.edge(t, "us-east", "iad1", "iad1-1", func(s *stub) { s.clients.follows, s.policy.follows = true, true })
	topology := write(t, "topology.yaml", "{zone: e.example, steering: first, regions: [{name: eu-west, pops: [{name: ams1, addresses: [203.0.113.1]}]}, {name: us-east, pops: [{name: iad1, addresses: [203.0.113.2]}]}]}")
	f.good(t, "topology", "apply", topology, "--yes")
	c := f.console(t)
	document := func(limit int) string {
		return fmt.Sprintf("rules:\n- {id: per-client, key: [client_ip], limit: %d, window: 1m}\n", limit)
	}
	body := func(limit int, more string) string { return `{"document": ` + text(t, document(limit)) + more + `}` }

	// A faulty document's answer has the fault's line; a valid one is compared and applied.
	bad := c.post("/rules/validate", "/rules/validate", `{"document": "rules:\n- {id: a}\n- {id: b, limit: no}\n"}`)
	require.Equal(t, false, dig(bad, "result", "valid"))
	require.Contains(t, text(t, dig(bad, "result", "errors")), `"line":`)
	require.Equal(t, true, dig(c.post("/rules/validate", "/rules/validate", body(10, "")), "result", "valid"))
	require.Equal(t, true, dig(c.post("/rules/diff", "/rules/diff", body(10, "")), "result", "different"))
	applied := c.post("/rules/apply", "/rules/apply", body(10, `, "message": "it's time", "if_version": "none"`))
	require.Equal(t, `regionctl rules apply rules.yaml --message 'it'\''s time' --if-version none`, applied["command"])
	require.Equal(t, true, dig(applied, "result", "converged"))
	first := dig(applied, "result", "version").(string)
	require.Equal(t, first, f.current(t, "us-east"))
	require.Equal(t, document(10), dig(c.get("/rules/document"), "result", "document"))
	c.post("/rules/apply", "/rules/apply", body(20, `, "if_version": "`+first+`"`))

	// Of two people who edit the same version, the second learns of the first's change and
	// loses nothing.
	second := f.current(t, "eu-west")
	require.Contains(t, c.refused(409, "/rules/apply", body(30, `, "if_version": "`+first+`"`)), "not "+first+" from --if-version")
	require.Equal(t, second, f.current(t, "eu-west"))
	require.Contains(t, c.refused(422, "/rules/apply", `{"document": "rules: 1"}`), "problem")

	history := text(t, c.get("/rules/history?lines=5")["result"])
	require.Contains(t, history, `"message":"it's time"`)
	changed := c.get("/rules/changes?from=" + first + "&to=" + second)
	require.Equal(t, "regionctl rules diff --from "+first+" --to "+second, changed["command"])
	require.Contains(t, text(t, dig(changed, "result", "difference", "changed")), `{"field":"limit","new":"20","old":"10"}`)
	c.post("/rules/undo", "/rules/undo", `{"of": ["`+second+`"]}`)
	require.Equal(t, first, f.current(t, "us-east"))
	c.post("/rules/rollback", "/rules/rollback", `{"to": "`+second+`"}`)
	require.Equal(t, second, f.current(t, "us-east"))
	c.post("/rules/undo", "/rules/undo", `{"of": ["`+second+`"]}`)
	require.Equal(t, first, f.current(t, "us-east"))
	require.Equal(t, true, dig(c.get("/rules/status"), "result", "converged"))
	require.Contains(t, text(t, c.get("/rules")["result"]), `"id":"per-client"`)
	require.Equal(t, false, dig(c.get("/rules/hour"), "result", "configured"))

	// Waves run in the console itself. Halting an ended rollout does nothing; repeating it
	// changes nothing.
	require.Equal(t, "none", dig(c.get("/rules/rollout"), "result", "state"))
	began := c.post("/rules/rollout/start", "/rules/rollout/start", body(25, `, "message": "INC-9", "waves": "1,rest", "soak": "1s", "min_requests": "0", "if_version": "`+first+`"`))
	require.Equal(t, "regionctl rules apply rules.yaml --waves 1,rest --soak 1s --min-requests 0 --message INC-9 --if-version "+first, began["command"])
	rolled := func() map[string]any {
		var r map[string]any
		require.Eventually(t, func() bool { r = c.get("/rules/rollout"); return dig(r, "result", "state") != "running" }, testenv.Patience, 20*time.Millisecond)
		require.Equal(t, "done", dig(r, "result", "state"), "%s", text(t, r))
		return r
	}
	require.Equal(t, true, dig(rolled(), "result", "result", "converged"))
	require.Equal(t, f.current(t, "eu-west"), f.current(t, "us-east"))
	require.Equal(t, document(25), dig(c.get("/rules/document"), "result", "document"))
	c.post("/rules/rollout/halt", "/rules/rollout/halt", `{}`)
	require.Nil(t, dig(c.get("/rules/rollout/unfinished"), "result", "rollout"))
	if w := c.send("POST", "/rules/rollout/resume", `{}`); w.Code != http.StatusConflict {
		require.Equal(t, http.StatusOK, w.Code, "%s", w.Body)
		require.Eventually(t, func() bool { return dig(c.get("/rules/rollout"), "result", "state") == "failed" }, testenv.Patience, 20*time.Millisecond)
	}
	require.Contains(t, text(t, c.get("/rules/rollout")["result"]), "no rollout of the rules is unfinished")
	// A halted rollout is rolled back or resumed.
	before := f.current(t, "eu-west")
	halted := func() {
		c.post("/rules/rollout/start", "/rules/rollout/start", body(26, `, "message": "INC-10", "waves": "1,rest", "soak": "20s", "min_requests": "0"`))
		require.Eventually(t, func() bool { return f.current(t, "eu-west") != before }, testenv.Patience, 5*time.Millisecond)
		c.post("/rules/rollout/halt", "/rules/rollout/halt", `{}`)
		require.Eventually(t, func() bool { return dig(c.get("/rules/rollout"), "result", "state") == "halted" }, testenv.Patience, 5*time.Millisecond)
		left := dig(c.get("/rules/rollout/unfinished"), "result", "rollout")
		require.Equal(t, []any{"halted", "ana@desk", "INC-10"}, []any{dig(left, "state"), dig(left, "by"), dig(left, "message")})
		require.Contains(t, text(t, dig(left, "waves")), `[[{"by":"ana@desk","region":"eu-west","state":"done"`)
	}
	halted()
	next := f.current(t, "eu-west")
	back := c.post("/rules/undo", "/rules/undo", `{"of": ["`+next+`"]}`)
	require.Equal(t, "regionctl undo rules --of "+next, back["command"])
	require.Equal(t, before, f.current(t, "eu-west"))
	halted()
	for _, name := range f.names {
		r, index, err := f.rules(name).Rollout(t.Context())
		require.NoError(t, err)
		soak := slices.Index(r.Flags, "--soak=20s")
		require.GreaterOrEqual(t, soak, 0, r.Flags)
		r.Flags[soak] = "--soak=100ms" // the halted wave's had to outlast the halt
		done, err := f.rules(name).SetRollout(t.Context(), *r, index)
		require.NoError(t, err)
		require.True(t, done)
	}
	require.Equal(t, "regionctl rules apply --resume", c.post("/rules/rollout/resume", "/rules/rollout/resume", `{}`)["command"])
	rolled()
	require.Equal(t, f.current(t, "eu-west"), f.current(t, "us-east"))
	require.NotEqual(t, before, f.current(t, "us-east"))
	// A refusal within a second is the start's answer; on a slow machine, the rollout has it.
	if w := c.send("POST", "/rules/rollout/start", body(30, `, "if_version": "`+first+`"`)); w.Code != http.StatusConflict {
		require.Equal(t, http.StatusOK, w.Code, "%s", w.Body)
		require.Eventually(t, func() bool { return dig(c.get("/rules/rollout"), "result", "state") == "failed" }, testenv.Patience, 20*time.Millisecond)
	}
	require.Contains(t, text(t, c.get("/rules/rollout")["result"]), "not "+first+" from --if-version")

	// A drain changes every region's records; so does its end.
	drained := c.post("/pops/{pop}/drain", "/pops/ams1/drain", `{"reason": "kernel update"}`)
	require.Equal(t, "regionctl drain ams1 --message 'kernel update'", drained["command"])
	require.Contains(t, text(t, dig(c.get("/fleet"), "result", "regions")), `"why":"kernel update"`)
	require.Contains(t, c.refused(500, "/pops/iad1/drain", `{"reason": "too"}`), "no healthy PoP would be left")
	require.Contains(t, c.refused(422, "/pops/nowhere/drain", `{"reason": "x"}`), `no PoP "nowhere"`)
	c.post("/pops/{pop}/undrain", "/pops/ams1/undrain", `{}`)
	require.NotContains(t, text(t, c.get("/fleet")["result"]), "kernel update")
	for _, back := range []string{`"why":"kernel update"`, `"pops"`} { // what the last change took back, and again
		last := dig(c.get("/audit/changes?lines=1"), "result").([]any)[0].(map[string]any)
		require.Equal(t, "drain", last["kind"])
		undone := c.post("/drain/undo", "/drain/undo", `{"of": ["`+last["version"].(string)+`"], "region": ["eu-west", "us-east"]}`)
		require.Equal(t, fmt.Sprintf("regionctl undo drain --of %s --region eu-west --region us-east", last["version"]), undone["command"])
		require.Contains(t, text(t, c.get("/fleet")["result"]), back)
	}
	require.NotContains(t, text(t, c.get("/fleet")["result"]), "kernel update")

	// What a client has left, the reason, and a reset.
	require.Contains(t, text(t, c.get("/limits?key=203.0.113.7")["result"]), `"remaining":9`)
	one.mu.Lock()
	one.top = adminapi.Top{Rules: []adminapi.TopRule{{Rule: "per-client", Mode: "shadow", Refused: 9, Clients: []adminapi.TopClient{{Key: []string{"203.0.113.7"}, Refused: 8}}}}}
	one.mu.Unlock()
	require.Contains(t, text(t, c.get("/clients/top")["result"]), `[{"key":["203.0.113.7"],"refused":8,"regions":["eu-west"]}],"mode":"shadow"`)
	one.mu.Lock()
	one.global = &adminapi.Global{Others: []adminapi.GlobalRegion{{Region: "us-east", Lag: "90ms"}}, Rules: []adminapi.GlobalRule{}}
	one.mu.Unlock()
	require.Contains(t, text(t, c.get("/limits/global?region=eu-west")["result"]), `"lag":"90ms"`)
	require.Contains(t, text(t, c.get("/limits/explain?client=203.0.113.7&path=/login")["result"]), `"verdict":"pass"`)
	one.mu.Lock()
	require.Contains(t, one.asked[len(one.asked)-1], "login")
	one.mu.Unlock()
	require.Len(t, c.post("/limits/reset", "/limits/reset", `{"rule": "per-client", "client": "203.0.113.7"}`)["result"], 2)

	// The kill switch, for an hour.
	set := c.post("/shedder/set", "/shedder/set", `{"settings": ["enabled=false"], "for": "1h", "message": "INC-1"}`)
	require.Equal(t, "regionctl shedder set enabled=false --for 1h --message INC-1", set["command"])
	require.Contains(t, text(t, c.get("/shedder")["result"]), "enabled: false")
	c.get("/shedder/live")
	require.Equal(t, false, dig(c.get("/shedder/hour"), "result", "configured"))
	off := c.post("/shedder/off", "/shedder/off", `{"for": "1h", "message": "INC-2"}`)
	require.Equal(t, "regionctl shedder set enabled=false --for 1h --message INC-2", off["command"])
	c.post("/shedder/undo", "/shedder/undo", `{"of": ["`+dig(off, "result", "version").(string)+`"]}`)
	settings := text(t, c.get("/shedder/history")["result"])
	require.Contains(t, settings, `"message":"INC-1"`)
	c.post("/shedder/rollback", "/shedder/rollback", `{"to": "`+parse[[]versions.HistoryEntry](t, settings)[0].Version+`"}`)
	// Policies, and where DNS sends clients.
	f.good(t, "policy", "apply", write(t, "policy.yaml", "mode: shadow"), "--yes", "--wait", "0")
	f.good(t, "policy", "apply", write(t, "policy2.yaml", "mode: enforce"), "--yes", "--wait", "0")
	require.Equal(t, "mode: enforce", dig(c.get("/policy/document"), "result", "document"))
	require.Contains(t, text(t, c.get("/policy/status")["result"]), `"region":"us-east"`)
	require.Len(t, c.get("/policy/history")["result"], 2)
	policies := parse[[]versions.HistoryEntry](t, text(t, c.get("/policy/history")["result"]))
	require.Contains(t, text(t, dig(c.get("/policy/changes?from="+policies[1].Version), "result", "difference", "fields")), `{"field":"mode","new":"enforce","old":"shadow"}`)
	c.post("/policy/rollback", "/policy/rollback", `{"to": "`+policies[1].Version+`"}`)
	require.Equal(t, "mode: shadow", dig(c.get("/policy/document"), "result", "document"))
	c.post("/policy/undo", "/policy/undo", `{"of": ["`+policies[1].Version+`"]}`)
	require.Equal(t, "mode: enforce", dig(c.get("/policy/document"), "result", "document"))
	require.Equal(t, "e.example", dig(c.get("/dns/topology"), "result", "zone"))
	require.Equal(t, []any{"ams1", "iad1"}, dig(c.get("/dns/explain?client=203.0.113.7"), "result", "pops"))
	require.Contains(t, text(t, c.get("/dns/explain")["result"]), `"loads":[{"capacity":`, "without a client: who gives what to whom")
	require.NotContains(t, text(t, c.get("/audit")["result"]), "faults")
	acts := text(t, c.get("/audit/changes?lines=50")["result"])
	for _, act := range []string{"drain ams1: kernel update", "undrain ams1", "reset rule per-client for 203.0.113.7", "INC-9", "INC-2"} {
		require.Contains(t, acts, `"message":"`+act+`"`)
	}

	c.tryTraffic(t)
	for _, o := range console.Operations() {
		require.True(t, o.Streams || c.asked[o.Method+" "+o.Path], "%s is not tested", o.ID)
	}
}

// A person's actions in a shared console are recorded in that person's name.
func TestConsoleNamesPeople(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "eu-west")
	f.edge(t, "eu-west", "ams1", "ams1-1")
	topology := write(t, "topology.yaml", "{zone: e.example, steering: first, regions: [{name: eu-west, pops: [{name: ams1, addresses: [203.0.113.1]}]}]}")
	f.good(t, "topology", "apply", topology, "--yes")
	config, err := access.Load(write(t, "console.yaml", "listen: 127.0.0.1:0\npublic: https://weir.example.com\nproxy: {from: [192.0.2.1/32], header: X-Forwarded-User}\nroles: [{who: {users: [bob@example.com]}, may: admin}]\n"))
	require.NoError(t, err)
	gate, err := access.New(config, "console@host")
	require.NoError(t, err)
	p := f.program(strings.NewReader(""), io.Discard, io.Discard)
	p.FleetFile, p.Timeout = f.file, command.DefaultTimeout
	var log bytes.Buffer
	s := console.New(t.Context(), console.Config{Do: perform(p), Access: gate, Origin: config.Origin(), Log: slog.New(slog.NewTextHandler(&log, nil))}, netip.MustParseAddrPort("127.0.0.1:8090"))
	send := func(method, path, token, body string) []byte {
		r := httptest.NewRequestWithContext(t.Context(), method, config.Origin()+console.Prefix+path, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("X-Forwarded-User", "bob@example.com")
		r.Header.Set(access.HeaderToken, token)
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r)
		require.Equal(t, 200, w.Code, "%s", w.Body)
		return w.Body.Bytes()
	}
	var session console.Session
	require.NoError(t, json.Unmarshal(send("GET", "/session", "", ""), &session))
	send("POST", "/rules/apply", session.Token, `{"document": `+text(t, rulesOf(10))+`, "message": "why"}`)
	require.Contains(t, string(send("GET", "/rules/history", "", "")), `"applied_by":"bob@example.com"`)
	send("POST", "/shedder/off", session.Token, `{"for": "1h"}`)
	require.Contains(t, string(send("GET", "/shedder/history", "", "")), `"applied_by":"bob@example.com"`)
	send("POST", "/pops/ams1/drain", session.Token, `{"reason": "x", "force": true}`)
	require.Contains(t, string(send("GET", "/fleet", "", "")), `"who":"bob@example.com"`)
	require.Contains(t, log.String(), `user=bob@example.com`)
	require.NotContains(t, log.String(), "console@host")
}

func TestConsoleConfig(t *testing.T) {
	load := func(listen, config string) error {
		_, err := (&consoleOptions{listen, config}).load()
		return err
	}
	require.NoError(t, load("", ""))
	require.NoError(t, load("127.0.0.1:9000", ""))
	require.ErrorContains(t, load("0.0.0.0:9000", ""), "must be a loopback address")
	require.ErrorContains(t, load("here", ""), "must be address:port")
	require.ErrorContains(t, load("127.0.0.1:9000", "console.yaml"), "pass one of the two")
	require.ErrorContains(t, load("", write(t, "console.yaml", "listen: 0.0.0.0:8090")), "proxy: or oidc is required")
	require.Equal(t, term.StatusUsage, term.ExitStatus(load("", "missing.yaml")))
}

// If a region is unreachable, the answer lacks it and says so, and has the others.
func TestConsoleWithoutARegion(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "eu-west")
	f.edge(t, "eu-west", "ams1", "ams1-1")
	f.good(t, "rules", "apply", write(t, "rules.yaml", rulesOf(10)), "--yes")
	f.file = write(t, "fleet.yaml", fmt.Sprintf("regions:\n  - {name: eu-west, consul: {addr: %q}}\n  - {name: us-east, consul: {addr: \"127.0.0.1:1\"}}\n", f.consuls["eu-west"].Addr()))
	c := f.console(t)
	for _, path := range []string{"/fleet", "/rules", "/rules/status", "/limits?key=203.0.113.7"} {
		a := c.get(path)
		require.Contains(t, a["incomplete"], "us-east", path)
		require.Contains(t, text(t, a["result"]), "connection refused", path)
	}
	require.Contains(t, c.refused(500, "/rules/apply", `{"document": "rules: []", "message": "why"}`), "us-east cannot be reached")
}

// The command that each operation names exists, and has the flags that the console shows.
func TestConsoleCommandsExist(t *testing.T) {
	for _, o := range console.Operations() {
		cmd, rest, err := Commands().Find(o.Command)
		require.NoError(t, err, o.ID)
		require.NoError(t, cmd.ParseFlags(rest), o.ID)
		require.False(t, cmd.HasSubCommands(), o.ID)
		for _, in := range o.Inputs {
			require.True(t, in.Flag == "" || cmd.Flags().Lookup(in.Flag) != nil, "%s: no --%s", o.ID, in.Flag)
		}
		_, known := operations[o.ID]
		require.True(t, known || strings.HasPrefix(o.Rollout, "look") || o.Rollout == "halt", "%s: has no function", o.ID)
	}
}

// Each input is one that the operation's function takes.
func TestConsoleInputsAreTaken(t *testing.T) {
	t.Parallel()
	f := &testFleet{file: write(t, "fleet.yaml", "regions: [{name: eu-west, consul: {addr: \"127.0.0.1:1\"}}]")}
	c := f.console(t)
	for _, o := range console.Operations() {
		if o.Streams || o.Method == http.MethodGet && o.Rollout != "" || len(o.Inputs) == 0 {
			continue
		}
		query, body, form := url.Values{}, map[string]any{}, ""
		path := o.Path
		for _, in := range o.Inputs {
			value := ""
			for _, try := range []string{"eu-west", "203.0.113.7", "3f2a", "5", "1h", "1,rest", "enabled=false", "/login"} {
				if in.Check == nil || in.Check.MatchString(try) {
					value = try
					break
				}
			}
			if in.Shape == console.Bool {
				value = "true"
			}
			require.NotEmpty(t, value, "%s: %s", o.ID, in.Name)
			query.Set(in.Name, value)
			form += fmt.Sprintf("--form\r\nContent-Disposition: form-data; name=%q\r\n\r\n%s\r\n", in.Name, value)
			switch in.Shape {
			case console.List:
				body[in.Name] = []string{value}
			case console.Bool:
				body[in.Name] = true
			default:
				body[in.Name] = value
			}
			if at := "{" + in.Name + "}"; strings.Contains(path, at) {
				path = strings.ReplaceAll(path, at, value)
				delete(body, in.Name)
			}
		}
		if o.Document != "" {
			body["document"] = rulesOf(1)
			form += "--form\r\nContent-Disposition: form-data; name=document\r\n\r\n" + rulesOf(1) + "\r\n--form\r\nContent-Disposition: form-data; name=log\r\n\r\nx\r\n--form--\r\n"
		}
		text := text(t, body)
		switch {
		case o.Method == http.MethodGet:
			path, text = path+"?"+query.Encode(), ""
		case o.Upload != "":
			text = form
		}
		w := c.send(o.Method, path, text)
		require.NotEqual(t, http.StatusBadRequest, w.Code, "%s: %s", o.ID, w.Body)
		require.NotContains(t, w.Body.String(), "flag", o.ID)
	}
}

// A console's memory does not grow with its requests.
func TestConsoleForgetsRequests(t *testing.T) {
	f := &testFleet{file: write(t, "fleet.yaml", "regions: [{name: eu-west, consul: {addr: \"127.0.0.1:1\"}}]")}
	c := f.console(t)
	body := `{"document": ` + text(t, rulesOf(1)) + `}`
	after := func(requests int) uint64 {
		for range requests {
			c.post("/rules/validate", "/rules/validate", body)
		}
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := after(20)
	require.Less(t, after(200), before+4<<20)
}
