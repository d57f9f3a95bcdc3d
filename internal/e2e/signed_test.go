package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/internal/testenv"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// signedFleet is two regions whose nodes require signatures, and an attacker who writes to
// their Consuls without regionctl.
type signedFleet struct {
	*fleet
	key, keys string // ana's key, and the file of trusted keys
	asked     int
}

func startSigned(t *testing.T) *signedFleet {
	t.Helper()
	f := &signedFleet{fleet: &fleet{t: t}}
	dir := t.TempDir()
	f.key, f.keys = filepath.Join(dir, "ana.pem"), filepath.Join(dir, "keys.pem")
	f.newKey(f.key)
	f.trust(f.key)
	backend, names := origin(t, nil), []string{"eu-west", "us-east"}
	for i, consul := range testenv.StartConsuls(t, testenv.ConsulOptions{}, names...) {
		s := &site{name: names[i], consul: consul, redis: testenv.Redis(t, testenv.Options{})}
		f.regions = append(f.regions, s)
	}
	f.write("")
	for _, s := range f.regions {
		config := s.config(backend, 0, filepath.Join(t.TempDir(), "rules.json"), "")
		s.nodes = []*testenv.EdgeNode{testenv.StartEdge(t, config+fmt.Sprintf("documents: {verify_keys: [%q], require_signed: true}\n", f.keys))}
	}
	return f
}

func (f *signedFleet) newKey(file string) {
	f.t.Helper()
	out, errOut, status := f.regionctl("keys", "generate", file)
	require.Zero(f.t, status, "%s%s", out, errOut)
}

// trust replaces the trusted public keys by these keys' halves.
func (f *signedFleet) trust(keys ...string) {
	f.t.Helper()
	var all strings.Builder
	for _, key := range keys {
		text, err := os.ReadFile(key + ".pub")
		require.NoError(f.t, err)
		all.Write(text)
	}
	require.NoError(f.t, os.WriteFile(f.keys+".new", []byte(all.String()), 0o644))
	require.NoError(f.t, os.Rename(f.keys+".new", f.keys))
}

// kv returns the attacker's access to Consul.
func (s *site) kv() *api.KV { return s.consul.Client().KV() }

func (s *site) read(t *testing.T, key string) []byte {
	t.Helper()
	pair, _, err := s.kv().Get(key, nil)
	require.NoError(t, err)
	require.NotNil(t, pair, key)
	return pair.Value
}

func (s *site) put(t *testing.T, key string, value []byte) {
	t.Helper()
	_, err := s.kv().Put(&api.KVPair{Key: key, Value: value}, nil)
	require.NoError(t, err)
}

// forge stores a document and points at it, with signatures copied from elsewhere.
func (s *site) forge(t *testing.T, at, document string, signatures []byte, expires time.Duration) consul.Pointer {
	t.Helper()
	p := consul.NewPointer([]byte(document), "eve", time.Now())
	if expires != 0 {
		p.ExpiresAt = new(p.AppliedAt.Add(expires))
	}
	text, err := json.Marshal(p)
	require.NoError(t, err)
	s.put(t, "weir/rules/versions/"+p.Version, []byte(document))
	if signatures != nil {
		s.put(t, "weir/rules/signatures/"+p.Version, signatures)
	}
	s.put(t, at, text)
	return p
}

// refuses waits until the node reports that it refuses a version, and requires that it still
// decides by the rules before.
func (f *signedFleet) refuses(n *testenv.EdgeNode, version, why string, limit int) {
	f.t.Helper()
	eventually(f.t, testenv.Patience, "it refuses "+version, func() bool {
		r, err := rulesOf(n)
		return err == nil && r.Refused != nil && r.Refused.Version == version && strings.Contains(strings.Join(r.Refused.Errors, " "), why)
	})
	got, err := f.policies(n)
	require.NoError(f.t, err)
	require.Equal(f.t, policyOf(limit), got)
}

func (f *signedFleet) runs(n *testenv.EdgeNode, limit int) {
	f.t.Helper()
	eventually(f.t, testenv.Patience, fmt.Sprintf("it decides by limit %d", limit), func() bool {
		got, err := f.policies(n)
		return err == nil && got == policyOf(limit)
	})
}

// policies asks as many clients in turn: a patient wait uses up none of their limits.
func (f *signedFleet) policies(n *testenv.EdgeNode) (string, error) {
	f.asked++
	return policies(n, "/", fmt.Sprintf("203.0.113.%d", f.asked%250))
}

// An attacker who can write to Consul and has no key cannot get a document past a real node,
// except one that was signed for its region before; the audit reports that one.
func TestSignaturesUnderAttack(t *testing.T) {
	t.Parallel()
	f := startSigned(t)
	europe, america := f.regions[0], f.regions[1]
	edge := europe.nodes[0]
	f.registers()
	f.apply(doc(100), "--sign", f.key)
	for _, n := range f.nodes() {
		n.WaitReady()
		f.runs(n, 100)
	}
	const current, canary = "weir/rules/current", "weir/rules/canary/eu-west-pop0"
	replayed := europe.read(t, current)

	// regionctl changes nothing that a strict node would refuse, including canaries.
	file := filepath.Join(t.TempDir(), "rules.yaml")
	require.NoError(t, os.WriteFile(file, []byte(doc(150)), 0o600))
	for _, args := range [][]string{{}, {"--canary", "eu-west-pop0", "--bake", "1h"}, {"--waves", "1,rest"}} {
		out, errOut, status := f.regionctl(append([]string{"rules", "apply", file, "--yes"}, args...)...)
		require.Equal(t, term.StatusFailed, status, "%v: %s", args, out)
		require.Contains(t, errOut, "accepts only what is signed by key", "%v", args)
		require.Equal(t, replayed, europe.read(t, current))
	}

	// Unsigned; as a canary; signed for another region; signed as other settings.
	p := europe.forge(t, current, doc(1), nil, 0)
	f.refuses(edge, p.Version, "is not signed", 100)
	europe.put(t, current, replayed)
	p = europe.forge(t, canary, doc(2), nil, time.Hour)
	f.refuses(edge, p.Version, "is not signed", 100)
	_, err := europe.kv().Delete(canary, nil)
	require.NoError(t, err)
	f.apply(doc(200), "--sign", f.key, "--region", "us-east")
	f.runs(america.nodes[0], 200)
	stolen := america.read(t, "weir/rules/signatures/"+consul.NewPointer([]byte(doc(200)), "", time.Time{}).Version)
	p = europe.forge(t, current, doc(200), stolen, 0)
	f.refuses(edge, p.Version, "covers another document, kind or region", 100)
	p = europe.forge(t, canary, doc(200), stolen, time.Hour)
	f.refuses(edge, p.Version, "covers another document, kind or region", 100)
	_, err = europe.kv().Delete(canary, nil)
	require.NoError(t, err)
	europe.put(t, current, replayed)
	f.set("signals.inflight.high=500", "--sign", f.key)
	var settings consul.Pointer
	require.NoError(t, json.Unmarshal(europe.read(t, "weir/shedder/current"), &settings))
	p = europe.forge(t, current, string(europe.read(t, "weir/shedder/versions/"+settings.Version)), europe.read(t, "weir/shedder/signatures/"+settings.Version), 0)
	f.refuses(edge, p.Version, "covers another document, kind or region", 100)
	europe.put(t, current, replayed)

	// An old version, restored byte for byte, passes like a rollback. The audit reports it.
	f.apply(doc(300), "--sign", f.key)
	f.runs(edge, 300)
	out, errOut, status := f.regionctl("audit", "verify", "--region", "eu-west")
	require.Zero(t, status, "%s%s", out, errOut)
	newest := europe.read(t, current)
	europe.put(t, current, replayed)
	f.runs(edge, 100)
	out, _, status = f.regionctl("audit", "verify", "--region", "eu-west")
	require.Equal(t, term.StatusFailed, status, out)
	require.Contains(t, out, "was put back")
	europe.put(t, current, newest)
	f.runs(edge, 300)

	// A replaced key is trusted immediately, without a restart, and the previous one no longer.
	bob := filepath.Join(t.TempDir(), "bob.pem")
	f.newKey(bob)
	f.trust(f.key, bob)
	require.NoError(t, os.WriteFile(file, []byte(doc(400)), 0o600))
	eventually(t, testenv.Patience, "the nodes register the new key", func() bool {
		_, _, status := f.regionctl("rules", "apply", file, "--yes", "--sign", bob)
		return status == 0
	})
	f.runs(edge, 400)
	f.trust(bob)
	p = europe.forge(t, current, doc(300), nil, 0) // ana's signature
	f.refuses(edge, p.Version, "is signed by key", 400)
	f.apply(doc(500), "--sign", bob)
	f.runs(edge, 500)
}
