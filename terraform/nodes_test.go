package terraform_test

import (
	"crypto/rand"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
)

// nodeTokens is a server that makes the tokens of edges.
type nodeTokens struct {
	*instance
	addr, management string // of Consul
}

// makesTokens lets a booted server reach a Consul.
func makesTokens(m *instance, addr, management string) *nodeTokens {
	m.t.Helper()
	require.NoError(m.t, os.RemoveAll(filepath.Join(m.objects, "nodes")))
	require.NoError(m.t, os.Remove(filepath.Join(m.bin, "curl")), "it answers for the instance's metadata")
	m.env = append(m.env, "PATH="+m.bin+":"+mustAbs(m.t, "../.bin")+":"+os.Getenv("PATH"), "CONSUL_HTTP_ADDR="+addr)
	m.env = append(m.env, strings.Fields(m.read("/etc/weir/node-tokens.env"))...)
	return &nodeTokens{m, addr, management}
}

func newNodeTokens(t *testing.T) (*nodeTokens, *testenv.Consul) {
	t.Helper()
	m := machine(t, regionOutputs(t), "consul")
	consul := testenv.StartConsul(t, testenv.ConsulOptions{ACL: true, Datacenter: "eu-west"})
	m.write("/etc/consul.d/management.json", consul.Token(), 0o600)
	n := makesTokens(m, consul.Addr(), consul.Token())
	out, err := n.run("/usr/local/lib/weir/consul-acl")
	require.NoError(t, err, "%s", out)
	return n, consul
}

// instances are what EC2 says of the edges' group.
func (n *nodeTokens) instances(lines ...string) {
	n.write("/answer", strings.Join(lines, "\n")+"\n", 0o600)
	require.NoError(n.t, os.Rename(filepath.Join(n.root, "answer"), filepath.Join(n.objects, "instances")))
}

func (n *nodeTokens) make() string {
	n.t.Helper()
	out, err := n.run("/usr/local/lib/weir/node-tokens")
	require.NoError(n.t, err, "%s", out)
	return out
}

// tokens returns the tokens of an instance, which its objects hold.
func (n *nodeTokens) tokens(id string) (agent, edge string) {
	n.t.Helper()
	of := func(name string) string { return read(n.t, filepath.Join(n.objects, "nodes/nodes", role+":"+id, name)) }
	return strings.TrimSuffix(strings.TrimPrefix(of("agent.json"), `{"acl":{"tokens":{"agent":"`), `"}}}`+"\n"), strings.TrimSpace(of("consul-token"))
}

func (n *nodeTokens) as(token string) *api.Client {
	n.t.Helper()
	c, err := api.NewClient(&api.Config{Address: n.addr, Token: token})
	require.NoError(n.t, err)
	return c
}

func (n *nodeTokens) works(token string) bool {
	_, _, err := n.as(token).ACL().TokenReadSelf(nil)
	return err == nil
}

// Each edge has tokens that end with it. Its agent's is good for no other node.
func TestNodeTokens(t *testing.T) {
	n, consul := newNodeTokens(t)
	const one, two = "i-0aa", "i-0bb"
	n.instances(one+"\trunning", two+"\tpending", "i-0cc\tterminated", "None\tNone")
	require.Equal(t, 4, strings.Count(n.make(), "created"))
	require.Empty(t, n.make(), "repeating it changes nothing")
	require.NoDirExists(t, filepath.Join(n.objects, "nodes/nodes", role+":i-0cc"))
	agent, edge := n.tokens(one)
	otherAgent, otherEdge := n.tokens(two)
	require.Len(t, map[string]bool{agent: true, edge: true, otherAgent: true, otherEdge: true}, 4)
	admin := filepath.Join(n.objects, "nodes/nodes", role+":"+one, "admin.pem")
	checked, err := exec.Command("openssl", "verify", "-CAfile", filepath.Join(n.root, "etc/consul.d/ca.pem"), "-verify_hostname", "edge-admin.eu-west.weir", "-purpose", "sslserver", admin).CombinedOutput()
	require.NoError(t, err, "%s", checked)
	for _, token := range []string{agent, edge, otherAgent, otherEdge} {
		require.True(t, n.works(token))
	}

	register := func(token, node, address string) error {
		_, err := n.as(token).Catalog().Register(&api.CatalogRegistration{Node: node, Address: address}, nil)
		return err
	}
	require.NoError(t, register(agent, one, "10.1.128.7"))
	require.NoError(t, register(otherAgent, two, "10.1.128.8"))
	require.ErrorContains(t, register(agent, two, "10.1.128.7"), "response code: 403 (", "another's node")
	require.ErrorContains(t, register(edge, one, "10.1.128.8"), "response code: 403 (", "weir registers no node")
	_, err = n.as(agent).Catalog().Deregister(&api.CatalogDeregistration{Node: two}, nil)
	require.ErrorContains(t, err, "response code: 403 (", "it removes another")
	_, err = n.as(agent).KV().Put(&api.KVPair{Key: "weir/rules/current"}, nil)
	require.ErrorContains(t, err, "response code: 403 (")
	require.NoError(t, n.as(edge).Agent().ServiceRegister(&api.AgentServiceRegistration{Name: "weir-edge"}))
	self, _, err := n.as(edge).ACL().TokenReadSelf(nil)
	require.NoError(t, err)
	require.Equal(t, "node-edge "+one, self.Description, "by which the history and Consul's audit log tell edges apart")

	// An instance reads its own objects, and the stub stands for IAM.
	document := load(t, filepath.Join("modules", "region"))
	identity := document.data["aws_iam_policy_document.identity"]
	require.Contains(t, document.text(identity.Body.Range()), `resources = ["${aws_s3_bucket.nodes.arn}/nodes/&{aws:userid}/*"]`)
	for _, group := range []string{"edge", "consul"} {
		name := map[string]string{"edge": "identity", "consul": "nodes"}[group]
		require.Contains(t, document.text(document.resources["aws_iam_role_policy."+name].Body.Range()), `aws_iam_role.instance["`+group+`"].id`)
		require.Contains(t, document.text(document.resources["aws_autoscaling_group."+group].Body.Range()), "aws_iam_role_policy."+name)
	}

	// No answer ends nothing; one that EC2 does not show may be new.
	n.instances()
	require.Contains(t, n.make(), "nothing changes")
	n.instances(two + "\trunning")
	n.make()
	require.True(t, n.works(agent))
	n.instances(one+"\tterminated", two+"\trunning")
	require.Equal(t, 2, strings.Count(n.make(), "which is gone, deleted"))
	require.False(t, n.works(agent))
	require.False(t, n.works(edge))
	require.True(t, n.works(otherAgent))
	require.NoFileExists(t, filepath.Join(n.objects, "nodes/nodes", role+":"+one, "consul-token"))
	require.NoFileExists(t, admin)

	// Two months later there is another certificate.
	admin = filepath.Join(n.objects, "nodes/nodes", role+":"+two, "admin.pem")
	first, long := read(t, admin), time.Now().Add(-61*24*time.Hour)
	require.NoError(t, os.Chtimes(filepath.Join(n.root, "var/lib/weir-nodes", two+".pem"), long, long))
	require.Empty(t, n.make())
	require.NotEqual(t, first, read(t, admin))
	require.Empty(t, n.make())

	// A replaced secret makes new tokens; the ones before work until the next replacement.
	for range 2 {
		n.write("/etc/weir/tokens/nodes", rand.Text()+"\n", 0o600)
		require.Equal(t, 2, strings.Count(n.make(), "created"))
	}
	require.Equal(t, 2, strings.Count(n.make(), "which is old, deleted"))
	require.False(t, n.works(otherAgent), "two replacements later")
	last, _ := n.tokens(two)
	require.True(t, n.works(last))

	// Without Consul a new edge still gets tokens, which count later.
	consul.Kill()
	n.instances("i-0dd\trunning", two+"\trunning")
	text, err := n.run("/usr/local/lib/weir/node-tokens")
	require.Error(t, err)
	require.Contains(t, text, "i-0dd may fetch its tokens")
}

// Two servers make the same tokens at the same time, and one that is behind takes nothing away.
func TestNodeTokensOfTwoServers(t *testing.T) {
	n, _ := newNodeTokens(t)
	n.instances("i-0aa\trunning", "i-0bb\trunning")
	var running []*exec.Cmd
	for range 2 {
		cmd := exec.Command(filepath.Join(n.root, "usr/local/lib/weir/node-tokens"))
		cmd.Env = n.env
		require.NoError(t, cmd.Start())
		running = append(running, cmd)
	}
	for _, cmd := range running {
		_ = cmd.Wait() // the slower one may fail, and is repeated
	}
	n.make()
	list, _, err := n.as(n.management).ACL().TokenList(nil)
	require.NoError(t, err)
	names := map[string]int{}
	for _, token := range list {
		names[token.Description]++
	}
	for _, name := range []string{"node-agent i-0aa", "node-edge i-0aa", "node-agent i-0bb", "node-edge i-0bb"} {
		require.Equal(t, 1, names[name], name)
	}
}

// An edge that comes before its tokens starts without them, as in an outage of Consul, and
// takes them when they are there.
func TestEdgeWaitsForItsTokens(t *testing.T) {
	out := regionOutputs(t)
	m := boot(t, out["edge"].(string))
	for name, text := range out["secrets"].(map[string]any) {
		m.secret(name, text.(string)+"\n")
	}
	m.secret("redis", "x\n")
	m.fleet()
	text, err := m.run("/usr/local/lib/weir/boot")
	require.NoError(t, err, "%s", text)
	require.Contains(t, text, "starting without what is missing")
	require.Empty(t, m.read("/etc/weir/consul-token"))
	text, err = m.run("/usr/local/lib/weir/admin")
	require.NoError(t, err, "%s", text)
	checked, err := exec.Command(testenv.Program(t, "edge"), "-check", "-config", m.here("/etc/weir/edge.yaml")).CombinedOutput()
	require.NoError(t, err, "%s", checked)

	text, err = m.run("/usr/local/lib/weir/secrets")
	require.Error(t, err, "%s", text)
	m.object("agent.json", "{}\n")
	m.object("consul-token", uuids["edge"]+"\n")
	certificate := adminPEM(t)
	m.object("admin.pem", certificate)
	text, err = m.run("/usr/local/lib/weir/secrets")
	require.NoError(t, err, "%s", text)
	require.Equal(t, uuids["edge"]+"\n", m.read("/etc/weir/consul-token"))
	require.Contains(t, m.read("systemctl"), "try-restart weir-consul.service", "an agent without a token waits for one")
	require.Equal(t, certificate, m.read("/etc/weir/admin.pem"), "that of the servers replaces its own")
	require.Contains(t, m.read("systemctl"), "try-reload-or-restart weir-edge.service")

	// A missing secret of Secrets Manager is not forgiven.
	m.secret("denied", "")
	text, err = m.run("/usr/local/lib/weir/boot")
	require.Error(t, err, "%s", text)
	require.NotContains(t, text, "starting without")
}
