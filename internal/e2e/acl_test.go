package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
)

// The manual's policies grant exactly what the manual describes.
func TestLeastPrivilege(t *testing.T) {
	t.Parallel()
	consul := testenv.StartConsul(t, testenv.ConsulOptions{Datacenter: "eu-west", ACL: true})
	s := &site{name: "eu-west", consul: consul, redis: testenv.Redis(t, testenv.Options{})}
	f := &fleet{t: t, regions: []*site{s}}
	dir := t.TempDir()
	secretIn := func(file, policy string) (accessor, secret, path string) {
		accessor, secret = consul.NewToken(t, testenv.Policy(t, policy))
		path = filepath.Join(dir, file)
		require.NoError(t, os.WriteFile(path, []byte(secret+"\n"), 0o600))
		return accessor, secret, path
	}
	accessor, edgeToken, edgeFile := secretIn("edge.token", "weir-edge")
	_, ctlToken, ctlFile := secretIn("regionctl.token", "weir-regionctl")
	s.nodes = []*testenv.EdgeNode{testenv.StartEdge(t, s.config(origin(t, nil), 0, filepath.Join(dir, "rules.json"), fmt.Sprintf(", token_file: %q", edgeFile)))}
	f.write(fmt.Sprintf(", token_file: %q", ctlFile))
	f.registers()

	f.apply(doc(100_000))
	n := s.nodes[0]
	n.WaitReady()
	stdout, stderr, status := f.regionctl("rules", "status")
	require.Zero(t, status, "%s\n%s", stdout, stderr)
	require.Contains(t, stdout, "eu-west-0")
	f.apply(doc(200_000))
	stdout, stderr, status = f.regionctl("undo", "rules", "--yes")
	require.Zero(t, status, "%s\n%s", stdout, stderr)

	stdout, stderr, status = f.regionctl("shedder", "set", "signals.inflight.high=400", "--yes")
	require.Zero(t, status, "%s\n%s", stdout, stderr)
	stdout, stderr, status = f.regionctl("shedder", "show", "--live")
	require.Zero(t, status, "%s\n%s", stdout, stderr)

	// Neither token permits these.
	as := func(token string) *api.WriteOptions { return &api.WriteOptions{Token: token} }
	kv := consul.Client().KV()
	for _, key := range []string{"weir/rules/current", "weir/rules/versions/000000000000", "weir/shedder/current", "weir/other"} {
		_, err := kv.Put(&api.KVPair{Key: key, Value: []byte("x")}, as(edgeToken))
		require.ErrorContains(t, err, "response code: 403 (", "the edge writes %s", key)
	}
	_, err := kv.Put(&api.KVPair{Key: "weir/other", Value: []byte("x")}, as(ctlToken))
	require.ErrorContains(t, err, "response code: 403 (")
	for who, token := range map[string]string{"edge": edgeToken, "regionctl": ctlToken} {
		_, _, err := kv.Get("weir/other", &api.QueryOptions{Token: token})
		require.ErrorContains(t, err, "response code: 403 (", "%s reads other keys", who)
		_, err = consul.Client().Catalog().Register(&api.CatalogRegistration{Node: "x", Address: "192.0.2.1"}, as(token))
		require.ErrorContains(t, err, "response code: 403 (", "%s registers nodes", who)
	}

	// When the token is revoked, the node keeps running, reports it, and picks up a new token.
	_, err = consul.Client().ACL().TokenDelete(accessor, nil)
	require.NoError(t, err)
	eventually(t, testenv.Patience, "the revoked token shows", func() bool {
		r, err := rulesOf(n)
		return err == nil && !r.Consul.OK
	})
	code, text := readyz(t, n)
	require.Equal(t, 200, code, text)
	got, err := policies(n, "/", victim)
	require.NoError(t, err)
	require.Equal(t, policyOf(100_000), got)
	secretIn("edge.token", "weir-edge")
	eventually(t, testenv.Patience, "the new token is in use", func() bool {
		r, err := rulesOf(n)
		return err == nil && r.Consul.OK
	})
	f.apply(doc(300_000))
}
