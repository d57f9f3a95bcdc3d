package ctl

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/internal/testenv"
	"github.com/weir-edge/weir/pkg/region"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// In a Consul with ACLs, each role of the manual can do what the manual says. A forbidden
// command changes nothing, and its error names the missing permission.
func TestRoles(t *testing.T) {
	t.Parallel()
	server := testenv.StartConsul(t, testenv.ConsulOptions{Datacenter: "eu-west", ACL: true})
	dir := t.TempDir()
	clients := map[string]*consul.Client{}
	accessors := map[string]string{}
	fleetOf := func(role string) *testFleet {
		token := filepath.Join(dir, role+".token")
		if accessors[role] == "" {
			accessor, secret := server.NewToken(t, testenv.Policy(t, role))
			require.NoError(t, os.WriteFile(token, []byte(secret), 0o600))
			c, err := consul.Open(consul.Config{Addr: server.Addr(), TokenFile: token})
			require.NoError(t, err)
			t.Cleanup(c.Close)
			accessors[role], clients[role] = accessor, c
		}
		return &testFleet{names: []string{"eu-west"}, file: write(t, "fleet.yaml", fmt.Sprintf("regions: [{name: eu-west, consul: {addr: %q, token_file: %q}}]", server.Addr(), token))}
	}
	rules, again := write(t, "rules.yaml", rulesOf(1)), write(t, "again.yaml", rulesOf(2))
	policy := write(t, "policy.yaml", "mode: enforce")
	topology := write(t, "topology.yaml", "{zone: e.example, regions: [{name: eu-west, pops: [{name: ams1, addresses: [203.0.113.1]}, {name: ams2, addresses: [203.0.113.2]}]}]}")
	may := func(role string, commands ...string) {
		t.Helper()
		for _, c := range commands {
			fleetOf(role).good(t, strings.Fields(c)...)
		}
	}
	mayNot := func(role, permission, key string, commands ...string) {
		t.Helper()
		for _, c := range commands {
			before, _, err := server.Client().KV().List("weir/", nil)
			require.NoError(t, err)
			r := fleetOf(role).run(t, strings.Fields(c)...)
			require.NotEqual(t, 0, r.status, c)
			require.NotEqual(t, term.StatusPartial, r.status, c)
			require.Regexp(t, `lacks permission '`+permission+`' on "`+key, r.errOut, "%s: %s", role, c)
			after, _, err := server.Client().KV().List("weir/", nil)
			require.NoError(t, err)
			require.Equal(t, before, after, "%s: %s", role, c)
		}
	}
	const operator, author, reader, edge, router = "weir-regionctl", "weir-author", "weir-reader", "weir-edge", "weir-dns"
	looks := []string{"rules show", "rules history", "rules diff " + rules, "shedder show", "shedder history", "topology show", "audit verify", "audit list", "status"}

	mayNot(author, "key:write", "weir/region", "init --yes")
	may(operator, "init --yes", "rules apply "+rules+" --yes --wait 0", "shedder set signals.inflight.high=400 --yes --wait 0", "topology apply "+topology+" --yes", "rules apply "+again+" --yes --wait 0")
	may(operator, looks...)
	may(operator, "policy apply "+policy+" --yes --wait 0", "policy show", "policy history", "prune policy --yes")
	may(operator, "undo rules --yes --wait 0", "prune rules --yes")
	changes, _, err := clients[operator].Documents("rules").History(t.Context(), 1)
	require.NoError(t, err)
	require.Equal(t, accessors[operator], changes[0].Token.Accessor, "the history names the token")

	may(author, looks...)
	may(author, "rules apply "+again+" --yes --wait 0", "undo rules --yes --wait 0", "prune rules --yes")
	mayNot(author, "key:write", "weir/shedder/", "shedder set signals.inflight.high=300 --yes --wait 0")
	mayNot(author, "key:write", "weir/policy/", "policy apply "+write(t, "other.yaml", "mode: shadow")+" --yes --wait 0")
	mayNot(author, "key:write", "weir/topology/", "topology apply "+write(t, "t.yaml", "{zone: f.example, regions: [{name: eu-west, pops: [{name: ams1, addresses: [203.0.113.1]}]}]}")+" --yes")

	may(reader, looks...)
	mayNot(reader, "key:write", "weir/rules/", "rules apply "+again+" --yes --wait 0", "undo rules --yes --wait 0")
	mayNot(reader, "key:write", "weir/shedder/", "shedder set signals.inflight.high=300 --yes --wait 0")

	mayNot(router, "key:read", "weir/rules/current", "rules status", "rules show")
	may(edge, "topology show") // for nodes with listen.peer
	for _, role := range []string{router, edge} {
		mayNot(role, "key:read", "weir/region", "rules apply "+again+" --yes --wait 0")
	}

	// The programs that have these roles.
	_, _, err = clients[edge].Documents("rules").Current(t.Context())
	require.NoError(t, err)
	_, _, err = clients[edge].Documents("policy").Current(t.Context())
	require.NoError(t, err)
	_, err = clients[edge].Documents("rules").Signatures(t.Context(), "0123456789ab")
	require.NoError(t, err)
	_, _, err = region.PublishedTopology(t.Context(), clients[router])
	require.NoError(t, err)
	_, err = clients[router].Nodes(t.Context())
	require.NoError(t, err)
	for _, role := range []string{edge, router, reader} {
		require.ErrorContains(t, clients[role].Put(t.Context(), clients[role].Key("rules", "current"), []byte("{}")), `lacks permission 'key:write' on "weir/rules/current"`, role)
		require.ErrorContains(t, clients[role].Put(t.Context(), clients[role].Key("drain", "current"), []byte("{}")), `lacks permission 'key:write' on "weir/drain/current"`, role)
	}
	require.ErrorContains(t, clients[author].Put(t.Context(), clients[author].Key("drain", "current"), []byte("{}")), `lacks permission 'key:write' on "weir/drain/current"`)
}
