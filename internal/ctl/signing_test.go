package ctl

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/ctl/audit"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/pkg/limiter/rules"
	"github.com/weir-edge/weir/pkg/region/consul"
	"github.com/weir-edge/weir/pkg/sign"
)

func TestSigning(t *testing.T) {
	t.Parallel()
	inFleets(t, map[string]func(*testing.T, *testFleet){"documents": testSignDocuments, "required": testSignRequired, "forged": testForgedObjections})
}

// key makes a key with regionctl.
func (f *testFleet) key(t *testing.T) (file, id string, keys sign.Keys) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "key.pem")
	id = parse[keyReport](t, f.good(t, "keys", "generate", file, "-o", "json").out).ID
	require.Contains(t, f.good(t, "keys", "show", file+".pub").out, id)
	keys, err := sign.ReadPublic([]string{file + ".pub"})
	require.NoError(t, err)
	return file, id, keys
}

// signed returns nil if a document has a signature for a region.
func (f *testFleet) signed(t *testing.T, keys sign.Keys, docs *consul.Documents, kind, region string, p *consul.Pointer) error {
	t.Helper()
	list, err := docs.Signatures(t.Context(), p.Version)
	require.NoError(t, err)
	return keys.Verify(sign.Subject{Kind: kind, Region: region, SHA256: p.SHA256}, list, p.ExpiresAt)
}

// A signature is for a document, its kind and its region, and lasts as long as the document.
func testSignDocuments(t *testing.T, f *testFleet) {
	key, id, keys := f.key(t)
	_, _, others := f.key(t)
	one, two := write(t, "one.yaml", rulesOf(1)), write(t, "two.yaml", rulesOf(2))
	f.good(t, "rules", "apply", one, "--yes", "--wait", "0", "--sign", key)
	first := consul.NewPointer([]byte(rulesOf(1)), "", time.Time{})
	for _, name := range f.names {
		require.NoError(t, f.signed(t, keys, f.rules(name), "rules", name, &first))
		require.Error(t, f.signed(t, keys, f.rules(name), "rules", "elsewhere", &first))
		require.Error(t, f.signed(t, keys, f.rules(name), "shedder", name, &first))
		require.Error(t, f.signed(t, others, f.rules(name), "rules", name, &first))
	}
	require.Contains(t, f.good(t, "rules", "show", "--signatures", "--region", "us-east").out, `"key": "`+id+`"`)

	// An active document can be signed later, and by another key too. A rollback needs no key.
	f.good(t, "rules", "apply", two, "--yes", "--wait", "0")
	second := consul.NewPointer([]byte(rulesOf(2)), "", time.Time{})
	require.ErrorContains(t, f.signed(t, keys, f.rules("eu-west"), "rules", "eu-west", &second), "is not signed")
	require.Contains(t, f.run(t, "rules", "show", "--signatures", "--region", "us-east").errOut, "is not signed; apply it with --sign KEYFILE")
	f.good(t, "rules", "apply", two, "--yes", "--wait", "0", "--sign", key)
	again, _, both := f.key(t)
	f.good(t, "rules", "apply", two, "--yes", "--wait", "0", "--sign", again)
	require.NoError(t, f.signed(t, keys, f.rules("eu-west"), "rules", "eu-west", &second))
	require.NoError(t, f.signed(t, both, f.rules("eu-west"), "rules", "eu-west", &second))
	f.good(t, "undo", "rules", "--yes", "--wait", "0")
	require.NoError(t, f.signed(t, keys, f.rules("eu-west"), "rules", "eu-west", &first))
	f.good(t, "undo", "rules", "--yes", "--wait", "0", "--sign", again)

	// A kill switch's signature lasts only for its hour.
	f.good(t, "shedder", "set", "signals.inflight.high=500", "--yes", "--wait", "0", "--sign", key)
	f.good(t, "shedder", "set", "enabled=false", "--for", "1h", "--yes", "--wait", "0", "--sign", key)
	p, _, err := f.settings("eu-west").Current(t.Context())
	require.NoError(t, err)
	require.NoError(t, f.signed(t, keys, f.settings("eu-west"), "shedder", "eu-west", p))
	forever := *p
	forever.ExpiresAt = nil
	require.ErrorContains(t, f.signed(t, keys, f.settings("eu-west"), "shedder", "eu-west", &forever), "as temporary")
	require.NoError(t, f.signed(t, keys, f.settings("eu-west"), "shedder", "eu-west", &consul.Pointer{Version: p.Successor.Version, SHA256: p.Successor.SHA256}))

	// A topology can be signed later, too.
	topology := write(t, "topology.yaml", "{zone: e.example, steering: first, regions: [{name: eu-west, pops: [{name: ams1, addresses: [203.0.113.1]}]}, {name: us-east, pops: [{name: iad1, addresses: [203.0.113.2]}]}]}")
	f.good(t, "topology", "apply", topology, "--yes")
	f.good(t, "topology", "apply", topology, "--yes", "--sign", key)
	for _, name := range f.names {
		docs := f.open[name].Documents("topology")
		published, _, err := docs.Current(t.Context())
		require.NoError(t, err)
		require.NoError(t, f.signed(t, keys, docs, "topology", name, published))
	}

	// Once it is signed, routers may require that. They do not register, so regionctl refuses what
	// they would ignore.
	unsigned := strings.Replace(topologyOf(1), "edge.example.com", "e.example", 1)
	next := write(t, "next.yaml", unsigned)
	const objection = "the active topology is signed, so routers with --require-signed would keep it; sign the next one with --sign KEYFILE"
	require.Contains(t, f.refused(t, term.StatusFailed, "topology", "apply", next, "--yes"), "nothing was changed: "+objection+"\n--force changes it anyway")
	f.good(t, "topology", "apply", next, "--yes", "--force")
	require.Contains(t, f.good(t, "topology", "history").out, "(forced: "+objection+")")
	f.good(t, "undo", "topology", "--yes") // back to the signed one
	version := versionOf(unsigned)
	require.Contains(t, f.refused(t, term.StatusFailed, "undo", "topology", "--yes"), objection)
	require.Contains(t, f.refused(t, term.StatusFailed, "undo", "topology", "--to", version, "--yes"), objection)
	f.good(t, "undo", "topology", "--to", version, "--yes", "--sign", key)

	require.NoError(t, os.Chmod(key, 0o644))
	r := f.run(t, "rules", "apply", one, "--yes", "--sign", key)
	require.Equal(t, term.StatusUsage, r.status)
	require.Contains(t, r.errOut, "--sign: "+key+" is accessible to other users (mode 0644); run chmod 600 ")
	require.Equal(t, second.Version, f.current(t, "eu-west"))

	// Signatures are pruned with their documents.
	for i := range 11 {
		f.good(t, "rules", "apply", write(t, "r.yaml", rulesOf(10+i)), "--yes", "--wait", "0", "--sign", again, "--keep-versions", "10")
	}
	left, _, err := f.consuls["eu-west"].Client().KV().Keys(f.prefix+"/rules/signatures/", "", nil)
	require.NoError(t, err)
	require.Len(t, left, 10)
	require.NotContains(t, strings.Join(left, " "), first.Version)
}

// regionctl does not publish what registered nodes would refuse.
func testSignRequired(t *testing.T, f *testFleet) {
	key, id, keys := f.key(t)
	other, _, _ := f.key(t)
	f.edge(t, "us-east", "iad1", "iad1-1", func(s *stub) { s.signed = "0123456789abcdef," + id })
	file := write(t, "r.yaml", rulesOf(1))
	for _, args := range [][]string{{}, {"--sign", other}} {
		r := f.run(t, append([]string{"rules", "apply", file, "--yes", "--wait", "0"}, args...)...)
		require.Equal(t, term.StatusFailed, r.status)
		require.Contains(t, r.errOut, "nothing was changed: iad1-1 in us-east accepts only what is signed by key 0123456789abcdef or "+id+"; sign it with --sign KEYFILE")
		require.Empty(t, f.current(t, "us-east"))
	}
	f.good(t, "rules", "apply", file, "--yes", "--wait", "0", "--sign", key)
	f.good(t, "rules", "apply", write(t, "r.yaml", rulesOf(2)), "--yes", "--wait", "0", "--sign", key)
	f.good(t, "undo", "rules", "--yes", "--wait", "0")
	p := consul.NewPointer([]byte(rulesOf(1)), "", time.Time{})
	require.NoError(t, f.signed(t, keys, f.rules("us-east"), "rules", "us-east", &p))

	// --force overrides that, and the histories say what it overrode.
	objection := "iad1-1 in us-east accepts only what is signed by key 0123456789abcdef or " + id + "; sign it with --sign KEYFILE"
	force := func(name string, args ...string) {
		t.Helper()
		r := f.run(t, append(args, "--yes", "--wait", "0")...)
		require.Equal(t, term.StatusFailed, r.status)
		require.Contains(t, r.errOut, objection+"\n--force changes it anyway")
		require.Contains(t, f.good(t, append(args, "--yes", "--wait", "0", "--force")...).errOut, objection)
		require.Contains(t, f.good(t, name, "history").out, "(forced: "+objection+")")
		last := parse[[]audit.Entry](t, f.good(t, "audit", "list", "-n", "1", "-o", "json").out)[0]
		require.Equal(t, []any{name, objection}, []any{last.Kind, last.Forced})
		f.good(t, "audit", "verify")
	}
	force("rules", "rules", "apply", write(t, "r.yaml", rulesOf(3)))
	force("shedder", "shedder", "set", "enabled=false", "--for", "1h")
}

// Whoever has an edge's token can register nodes that object to every change. An objection counts
// only if the node repeats it at its admin listener.
func testForgedObjections(t *testing.T, f *testFleet) {
	real := f.edge(t, "us-east", "iad1", "iad1-1")
	agent := f.consuls["us-east"].Client().Agent()
	forge := func(admin, schema, signedBy string) {
		t.Helper()
		require.NoError(t, agent.ServiceRegister(&api.AgentServiceRegistration{ID: f.prefix + "forged", Name: consul.Service, Meta: map[string]string{
			consul.MetaRegion: "us-east", consul.MetaPoP: "iad1", consul.MetaNode: "iad1-9", consul.MetaPrefix: f.prefix,
			consul.MetaAdmin: admin, consul.MetaSchema: schema, consul.MetaSignedBy: signedBy,
		}}))
		require.Eventually(t, func() bool {
			nodes, err := f.open["us-east"].Nodes(t.Context())
			return err == nil && slices.ContainsFunc(nodes, func(n consul.Node) bool {
				return n.Prefix == f.prefix && n.Admin == admin && n.SignedBy == signedBy && strconv.Itoa(n.Schema) == schema
			})
		}, patience, tick)
	}
	t.Cleanup(func() { _ = agent.ServiceDeregister(f.prefix + "forged") })
	for i, forged := range [][2]string{{"0", ""}, {strconv.Itoa(rules.Schema), "deadbeef"}} {
		for j, admin := range []string{"127.0.0.1:1", real.admin()} {
			forge(admin, forged[0], forged[1])
			r := f.good(t, "rules", "apply", write(t, "r.yaml", rulesOf(10*i+j+1)), "--yes", "--wait", "0")
			require.Contains(t, r.errOut, "us-east: an objection does not count, because its node does not prove what it is: could not ask iad1-9: ")
		}
	}
}
