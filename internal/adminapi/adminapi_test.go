package adminapi_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/shedding"
	"github.com/weir-edge/weir/pkg/region/consul"
)

var (
	at      = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	refused = &adminapi.Refusal{At: at, Version: "0123456789ab", Canary: true, Errors: []string{"rules[0].id: is required", "b"}}
)

// The wire format stays compatible with other versions.
func TestWire(t *testing.T) {
	f := func(v any, want string) {
		t.Helper()
		text, err := json.Marshal(v)
		require.NoError(t, err)
		require.Equal(t, want, string(text))
	}
	down := &adminapi.Condition{Error: "no answer", Since: at}
	f(adminapi.Rules{Node: "a", Version: "none", Source: "none", Rules: []adminapi.Rule{}},
		`{"node":"a","version":"none","source":"none","canary":false,"stale":false,"pointer":null,"rules":[],"refused":null,"consul":null,"cache":null}`)
	f(adminapi.Rules{
		Node: "a", Version: "v", Since: at, Source: "consul", Canary: true, Stale: true, Pointer: &consul.Pointer{Version: "v", SHA256: "s", AppliedAt: at, AppliedBy: "ann"},
		Refused: refused, Consul: down, Cache: &adminapi.Condition{OK: true, Since: at},
	}, `{"node":"a","version":"v","since":"2026-03-01T12:00:00Z","source":"consul","canary":true,"stale":true,`+
		`"pointer":{"version":"v","sha256":"s","applied_at":"2026-03-01T12:00:00Z","applied_by":"ann"},`+
		`"refused":{"at":"2026-03-01T12:00:00Z","version":"0123456789ab","canary":true,"errors":["rules[0].id: is required","b"]},`+
		`"consul":{"ok":false,"error":"no answer","since":"2026-03-01T12:00:00Z"},"cache":{"ok":true,"since":"2026-03-01T12:00:00Z"}}`)
	f(adminapi.Rule{ID: "a", Mode: "enforce", Algorithm: "token_bucket", Limit: 1, Window: "1s", Key: []string{}, OnFailure: "local"},
		`{"id":"a","mode":"enforce","algorithm":"token_bucket","limit":1,"window":"1s","key":[],"on_store_failure":"local"}`)
	f(adminapi.Shedder{Node: "a", Version: "built-in", Source: "builtin", Since: at, Upstreams: []shedding.UpstreamStatus{}, ShadowBias: "b"},
		`{"node":"a","version":"built-in","source":"builtin","since":"2026-03-01T12:00:00Z","upstreams":[],"shadow_bias":"b"}`)
	f(adminapi.Shedder{ExpiresAt: &at, Then: "x", Refused: refused, Consul: down, Cache: down, Document: shedding.Defaults()}.Document,
		string(must(json.Marshal(shedding.Defaults()))))
	f(adminapi.Readiness{RulesVersion: "none", Status: "ready"}, `{"rules_version":"none","status":"ready"}`)
	f(adminapi.Readiness{
		Consul: "c", Registration: "r", Rules: "u", RulesCache: "k", RulesRefused: "f", RulesVersion: "v", ShedderCache: "d", ShedderRefused: "e", Status: "s", Store: "o",
	}, `{"consul":"c","registration":"r","rules":"u","rules_cache":"k","rules_refused":"f","rules_version":"v","shedder_cache":"d","shedder_refused":"e","status":"s","store":"o"}`)
	f(adminapi.Problem{Detail: "d", Status: 400, Title: "t", Type: "about:blank"}, `{"detail":"d","status":400,"title":"t","type":"about:blank"}`)
	f(adminapi.Explanation{Client: "::1", RulesVersion: "v", Upstream: "u", Class: "read", Verdict: "pass", Rules: []adminapi.RuleDecision{{Rule: "a"}}},
		`{"client":"::1","rules_version":"v","upstream":"u","class":"read","verdict":"pass","rules":[{"rule":"a","mode":"","algorithm":"","key":"","cost":0,`+
			`"limit":0,"window":"","allowed":false,"remaining":0,"reset_after":"","source":""}]}`)
	f(adminapi.Reset{Reset: []string{"k"}}, `{"reset":["k"]}`)
}

// A registration has room for one line; the first error survives.
func TestRefusalSurvivesRegistration(t *testing.T) {
	f := func(r, want *adminapi.Refusal) {
		t.Helper()
		require.Equal(t, want, adminapi.ParseRefusal(r.String()))
	}
	f(refused, &adminapi.Refusal{Version: "0123456789ab", Errors: []string{"rules[0].id: is required"}})
	missing := &adminapi.Refusal{Errors: []string{"weir/rules/current: is missing"}}
	f(missing, missing)
	require.Empty(t, (*adminapi.Refusal)(nil).String())
}

// A reader decodes the settings of a node of another version.
func TestShedderOfAnotherVersion(t *testing.T) {
	f := func(document string, off bool) {
		t.Helper()
		var s adminapi.Shedder
		require.NoError(t, json.Unmarshal([]byte(`{"version": "v", "document": `+document+`}`), &s))
		require.Equal(t, adminapi.Running{Version: "v", Off: off}, s.Running())
	}
	f(`{"enabled": false, "law": ["another", "shape"]}`, true)
	f(`{"enabled": true}`, false)
	f(`{}`, false)
	f(`null`, false)
}

func must(text []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return text
}
