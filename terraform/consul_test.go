package terraform_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	encoding "encoding/pem"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
)

// authority is a certificate and its key, as Terraform's tls provider makes them.
func authority(t *testing.T) (ca, key string) {
	t.Helper()
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "weir Consul CA"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(365 * 24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &own.PublicKey, own)
	require.NoError(t, err)
	private, err := x509.MarshalECPrivateKey(own)
	require.NoError(t, err)
	pem := func(kind string, der []byte) string {
		return string(encoding.EncodeToMemory(&encoding.Block{Type: kind, Bytes: der}))
	}
	return pem("CERTIFICATE", der), pem("EC PRIVATE KEY", private)
}

// machine is a booted instance of a role.
func machine(t *testing.T, out map[string]any, role string) *instance {
	t.Helper()
	m := boot(t, out[role].(string))
	m.object("agent.json", "{}\n")
	m.object("consul-token", "x\n")
	m.object("admin.pem", adminPEM(t))
	m.ready(out)
	return m
}

// ready boots an instance that may read all secrets.
func (m *instance) ready(out map[string]any) {
	m.t.Helper()
	for name, text := range out["secrets"].(map[string]any) {
		m.secret(name, text.(string)+"\n")
	}
	m.secret("redis", "x")
	m.fleet()
	text, err := m.run("/usr/local/lib/weir/boot")
	require.NoError(m.t, err, "%s", text)
}

// consul starts an instance's agent with its own configuration, except for addresses:
// everything runs on this machine, and no stub can stand for EC2: go-discover asks for dual stack,
// with which AWS's SDK refuses other endpoints.
func (m *instance) consul(changes map[string]any) {
	m.t.Helper()
	dir := m.t.TempDir()
	var config map[string]any
	require.NoError(m.t, json.Unmarshal([]byte(read(m.t, m.here("/etc/consul.d/consul.json"))), &config))
	require.Contains(m.t, config["retry_join"].([]any)[0], "provider=aws region=eu-west-1 tag_key=weir:consul tag_value=weir-eu-west ")
	for key, value := range changes {
		config[key] = value
	}
	text, err := json.Marshal(config)
	require.NoError(m.t, err)
	require.NoError(m.t, os.WriteFile(filepath.Join(dir, "consul.json"), text, 0o600))
	secrets, err := filepath.Glob(filepath.Join(m.root, "etc/consul.d/*.json"))
	require.NoError(m.t, err)
	for _, name := range secrets {
		if filepath.Base(name) != "consul.json" {
			require.NoError(m.t, os.WriteFile(filepath.Join(dir, filepath.Base(name)), []byte(read(m.t, name)), 0o600))
		}
	}
	require.NoError(m.t, os.MkdirAll(filepath.Join(m.root, "var/lib/consul"), 0o755))

	binary, err := filepath.Abs("../.bin/consul")
	require.NoError(m.t, err)
	checked, err := exec.Command(binary, "validate", dir).CombinedOutput()
	require.NoError(m.t, err, "%s", checked)
	log, err := os.Create(filepath.Join(m.t.TempDir(), "log"))
	require.NoError(m.t, err)
	cmd := exec.Command(binary, "agent", "-config-dir", dir)
	cmd.Stdout, cmd.Stderr = log, log
	require.NoError(m.t, cmd.Start())
	m.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGKILL)
		_ = cmd.Wait()
		_ = log.Close()
		if m.t.Failed() {
			m.t.Log(read(m.t, log.Name()))
		}
	})
}

// The Consul that make release-aws packs finds servers in AWS: where nobody gave it credentials, it
// misses those, and not the cloud.
func TestConsulKnowsAWS(t *testing.T) {
	consul, err := filepath.Abs("../bin/aws-" + runtime.GOARCH + "/consul")
	require.NoError(t, err)
	out, err := exec.Command("../tools/consul/build.sh", consul).CombinedOutput()
	require.NoError(t, err, "%s", out)
	joins := regionOutputs(t)["join"].(string)
	require.Contains(t, joins, "provider=aws ")
	ports := testenv.FreePorts(t, 2)
	cmd := exec.Command(consul, "agent", "-data-dir", t.TempDir(), "-bind", "127.0.0.1", "-dns-port", "-1", "-grpc-port", "-1",
		"-http-port", strconv.Itoa(ports[0]), "-serf-lan-port", strconv.Itoa(ports[1]), "-retry-join", joins, "-retry-max", "1", "-retry-interval", "1s")
	cmd.Env = []string{"AWS_EC2_METADATA_DISABLED=true", "AWS_CONFIG_FILE=/dev/null", "AWS_SHARED_CREDENTIALS_FILE=/dev/null", "HOME=" + t.TempDir()}
	out, err = cmd.CombinedOutput()
	require.Error(t, err, "it joins nobody and ends")
	require.Contains(t, string(out), "get credentials")
}

// A server and an edge's agent, each as its instance configures it, find each other
// with TLS, gossip encryption and ACLs, and the edge's token registers a service.
func TestConsulServerAndAgent(t *testing.T) {
	out := regionOutputs(t)
	ports := testenv.FreePorts(t, 7)
	server := machine(t, out, "consul")
	require.Contains(t, server.certifies(), "a new certificate")
	ca := server.read("/etc/consul.d/ca.pem")

	local := func(port int) string { return "127.0.0.1:" + strconv.Itoa(port) }
	joined := func(server string) error { return joins(t, out, local(ports[0]), server) }
	require.Error(t, joined(local(ports[2])), "Consul does not run yet")
	server.consul(map[string]any{
		"node_name": "server-1", "bind_addr": "127.0.0.1", "bootstrap_expect": 1, "retry_join": []string{}, "retry_join_wan": []string{},
		"ports": map[string]int{"http": ports[0], "https": ports[1], "server": ports[2], "serf_lan": ports[3], "serf_wan": ports[4], "grpc": -1, "grpc_tls": -1, "dns": -1},
	})
	env := append(server.env, "CONSUL_HTTP_ADDR="+local(ports[0]), "PATH="+filepath.Join(mustAbs(t, ".."), ".bin")+":"+os.Getenv("PATH"))
	var last string
	require.Eventually(t, func() bool {
		cmd := exec.Command(filepath.Join(server.root, "usr/local/lib/weir/consul-acl"))
		cmd.Env = env
		text, err := cmd.CombinedOutput()
		last = string(text)
		return err == nil
	}, testenv.Patience, 200*time.Millisecond, "no leader")
	require.Contains(t, last, "are in place")
	require.NoError(t, joined(local(ports[2])))
	require.Error(t, joined("10.9.9.9:8300"), "no server of this datacenter")

	tokens := makesTokens(server, local(ports[0]), "")
	tokens.instances(id + "\trunning")
	require.Equal(t, 2, strings.Count(tokens.make(), "created"))
	edge := boot(t, out["edge"].(string))
	edge.env = append(edge.env, "OBJECTS="+server.objects)
	edge.ready(out)
	edge.write("/etc/consul.d/ca.pem", ca, 0o600)
	edge.consul(map[string]any{
		"bind_addr": "127.0.0.1", "retry_join": []string{local(ports[3])},
		"ports": map[string]int{"http": ports[5], "https": -1, "server": ports[2], "serf_lan": ports[6], "grpc": -1, "grpc_tls": -1, "dns": -1},
	})
	agent, err := api.NewClient(&api.Config{Address: local(ports[5]), Token: strings.TrimSpace(edge.read("/etc/weir/consul-token"))})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		return agent.Agent().ServiceRegister(&api.AgentServiceRegistration{Name: "weir-edge", ID: "weir-edge-" + id}) == nil
	}, testenv.Patience, 100*time.Millisecond, "the agent does not take the edge's token")

	// regionctl connects over HTTPS under the name in its fleet file.
	file := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(file, []byte(ca), 0o600))
	ctl, err := api.NewClient(&api.Config{
		Address: local(ports[1]), Scheme: "https", Token: strings.TrimSpace(server.read("/etc/weir/tokens/regionctl")), TLSConfig: api.TLSConfig{CAFile: file, Address: "server.eu-west.consul"},
	})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		services, _, err := ctl.Health().Service("weir-edge", "", false, nil)
		return err == nil && len(services) == 1 && services[0].Node.Node == id
	}, testenv.Patience, 100*time.Millisecond, "the edge does not reach the catalog")

	// A certificate that ends soon is replaced, and Consul reads the new one.
	require.Empty(t, server.certifies(), "it is valid for long")
	server.write("/etc/consul.d/server.pem", adminPEM(t), 0o600)
	require.Contains(t, server.certifies(), "a new certificate")
	require.Contains(t, server.read("systemctl"), "try-reload-or-restart weir-consul.service")
	certificate, err := os.ReadFile(server.here("/etc/consul.d/server.pem"))
	require.NoError(t, err)
	pair, err := tls.X509KeyPair(certificate, certificate)
	require.NoError(t, err)
	require.InDelta(t, 90*24, time.Until(pair.Leaf.NotAfter).Hours(), 1)
	management, err := api.NewClient(&api.Config{Address: local(ports[0]), Token: regexp.MustCompile(`[0-9a-f-]{36}`).FindString(server.read("/etc/consul.d/management.json"))})
	require.NoError(t, err)
	require.NoError(t, management.Agent().Reload())
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM([]byte(ca)))
	require.Eventually(t, func() bool {
		conn, err := tls.Dial("tcp", local(ports[1]), &tls.Config{RootCAs: roots, ServerName: "server.eu-west.consul"})
		if err != nil {
			return false
		}
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0].Equal(pair.Leaf)
	}, testenv.Patience, 100*time.Millisecond, "Consul keeps the old one")

	// The agent's token is its own: it writes this node and no other.
	own, err := api.NewClient(&api.Config{Address: local(ports[0]), Token: regexp.MustCompile(`[0-9a-f-]{36}`).FindString(edge.read("/etc/consul.d/agent.json"))})
	require.NoError(t, err)
	_, err = own.Catalog().Deregister(&api.CatalogDeregistration{Node: "server-1"}, nil)
	require.ErrorContains(t, err, "response code: 403 (")
	self, _, err := own.ACL().TokenReadSelf(nil)
	require.NoError(t, err)
	require.Equal(t, id, self.NodeIdentities[0].NodeName)
}

// certifies runs what certifies a Consul server, and returns what it says.
func (m *instance) certifies() string {
	m.t.Helper()
	cmd := exec.Command(filepath.Join(m.root, "usr/local/lib/weir/certificate"))
	cmd.Env = append(m.env, strings.TrimSpace(m.read("/etc/weir/certificate.env")))
	out, err := cmd.CombinedOutput()
	require.NoError(m.t, err, "%s", out)
	return string(out)
}

// joins runs what tells the autoscaling group that a server has joined, and requires that
// it tells the group exactly if it succeeds, also where nobody waits for that.
func joins(t *testing.T, out map[string]any, addr, server string) (err error) {
	t.Helper()
	m := boot(t, out["consul"].(string))
	bin := t.TempDir()
	for _, answer := range []string{"exit 0", "echo 'No active Lifecycle Action found' >&2; exit 254"} {
		aws := "#!/bin/sh\necho \"$@\" >>\"$WEIR_ROOT/told\"\n" + answer + "\n"
		require.NoError(t, os.WriteFile(filepath.Join(bin, "aws"), []byte(aws), 0o755))
		cmd := exec.Command(filepath.Join(m.root, "usr/local/lib/weir/joined"))
		cmd.Env = append(os.Environ(), "WEIR_ROOT="+m.root, "CONSUL_HTTP_ADDR="+addr, "PATH="+bin+":"+os.Getenv("PATH"))
		for line := range strings.Lines(m.read("/etc/weir/joined.env")) {
			cmd.Env = append(cmd.Env, strings.TrimSpace(line))
		}
		cmd.Env = append(cmd.Env, "SERVER="+server)
		if _, err = cmd.CombinedOutput(); err != nil {
			require.NoFileExists(t, filepath.Join(m.root, "told"))
			return err
		}
	}
	require.Equal(t, 2, strings.Count(m.read("told"), "autoscaling complete-lifecycle-action --region eu-west-1 --auto-scaling-group-name weir-eu-west-consul --lifecycle-hook-name joined --instance-id @INSTANCE_ID@ --lifecycle-action-result CONTINUE"))
	return nil
}

func mustAbs(t *testing.T, name string) string {
	t.Helper()
	abs, err := filepath.Abs(name)
	require.NoError(t, err)
	return abs
}

// uuids are tokens as Terraform would make them.
var uuids = map[string]string{
	"agent":     "11111111-2222-3333-4444-000000000001",
	"edge":      "11111111-2222-3333-4444-000000000002",
	"regionctl": "11111111-2222-3333-4444-000000000003",
	"dns":       "11111111-2222-3333-4444-000000000004",
}

// The servers create a new datacenter's policies and tokens, however often they run, and
// keep the token before the newest, which nodes still use.
func TestConsulTokens(t *testing.T) {
	consul := testenv.StartConsul(t, testenv.ConsulOptions{ACL: true})
	m := &instance{t: t, root: t.TempDir(), secrets: t.TempDir()}
	names, err := filepath.Glob("modules/region/files/policies/*.hcl")
	require.NoError(t, err)
	require.Len(t, names, len(uuids))
	for _, name := range names {
		m.write("/etc/weir/policies/"+filepath.Base(name), read(t, name), 0o600)
	}
	m.write("/etc/consul.d/management.json", `{"acl":{"tokens":{"initial_management":"`+consul.Token()+`"}}}`, 0o600)
	m.write("/etc/consul.d/agent.json", `{"acl":{"tokens":{"agent":"`+uuids["agent"]+`"}}}`, 0o600)
	for _, name := range []string{"edge", "regionctl", "dns"} {
		m.write("/etc/weir/tokens/"+name, uuids[name]+"\n", 0o600)
	}
	path := mustAbs(t, "../.bin") + ":" + os.Getenv("PATH")
	script := func() string {
		cmd := exec.Command("modules/region/files/consul-acl.sh")
		cmd.Env = append(os.Environ(), "WEIR_ROOT="+m.root, "PATH="+path, "CONSUL_HTTP_ADDR="+consul.Addr())
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return string(out)
	}
	require.Equal(t, len(uuids), strings.Count(script(), "created"))
	require.Zero(t, strings.Count(script(), "created"))

	as := func(name string) *api.Client {
		c, err := api.NewClient(&api.Config{Address: consul.Addr(), Token: uuids[name]})
		require.NoError(t, err)
		return c
	}
	put := func(c *api.Client, key string) error {
		_, err := c.KV().Put(&api.KVPair{Key: key, Value: []byte("x")}, nil)
		return err
	}
	edge, ctl, dns := as("edge"), as("regionctl"), as("dns")
	require.NoError(t, edge.Agent().ServiceRegister(&api.AgentServiceRegistration{Name: "weir-edge"}))
	require.Error(t, edge.Agent().ServiceRegister(&api.AgentServiceRegistration{Name: "other"}))
	for _, key := range []string{"weir/rules/current", "weir/shedder/current", "weir/policy/current", "weir/clients/current", "weir/topology/current", "weir/drain/current"} {
		require.NoError(t, put(ctl, key))
		require.Error(t, put(edge, key), "%s", key)
		require.Error(t, put(dns, key), "%s", key)
	}
	reads := func(c *api.Client, key string) bool {
		pair, _, err := c.KV().Get(key, nil)
		return err == nil && pair != nil
	}
	require.True(t, reads(edge, "weir/rules/current"))
	require.True(t, reads(edge, "weir/shedder/current"))
	require.True(t, reads(edge, "weir/policy/current"))
	require.True(t, reads(edge, "weir/clients/current"))
	require.True(t, reads(edge, "weir/topology/current"))
	require.False(t, reads(edge, "weir/drain/current"))
	require.True(t, reads(dns, "weir/topology/current"))
	require.True(t, reads(dns, "weir/drain/current"))
	require.False(t, reads(dns, "weir/rules/current"))
	require.NoError(t, put(dns, "weir/spill"))
	require.Error(t, put(edge, "weir/spill"))
	for _, c := range []*api.Client{ctl, dns} {
		require.Eventually(t, func() bool { // the agent tells the catalog later
			services, _, err := c.Health().Service("weir-edge", "", false, nil)
			return err == nil && len(services) == 1
		}, testenv.Patience, 50*time.Millisecond)
		members, err := c.Agent().Members(true)
		require.NoError(t, err)
		require.Len(t, members, 1, "the WAN's")
	}
}

// A rotated token reaches a node only when Consul knows it, and the one before it works
// until then and until the next rotation.
func TestConsulTokenRotation(t *testing.T) {
	consul := testenv.StartConsul(t, testenv.ConsulOptions{ACL: true})
	bin := t.TempDir()
	for name, script := range tools {
		require.NoError(t, os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755))
	}
	require.NoError(t, os.Remove(filepath.Join(bin, "curl")))
	m := &instance{t: t, root: t.TempDir(), secrets: t.TempDir()}
	m.env = append(os.Environ(), "PATH="+bin+":"+mustAbs(t, "../.bin")+":"+os.Getenv("PATH"), "WEIR_ROOT="+m.root, "SECRETS="+m.secrets, "CONSUL_HTTP_ADDR="+consul.Addr())
	for _, name := range []string{"secrets", "consul-acl"} {
		file := map[string]string{"secrets": "modules/cloud-init/files/secrets.sh", "consul-acl": "modules/region/files/consul-acl.sh"}[name]
		m.write(name, read(t, file), 0o755)
	}
	m.write("/etc/consul.d/management.json", consul.Token(), 0o600)
	m.write("/etc/weir/policies/edge.hcl", read(t, "modules/region/files/policies/edge.hcl"), 0o600)
	m.write("/etc/weir/secrets.list", "/node/agent.json weir arn:aws:secretsmanager:eu-west-1:1:secret:token weir-consul.service http://"+consul.Addr()+" - now\n", 0o600)
	run := func(script string) string {
		t.Helper()
		out, err := m.run(script)
		require.NoError(t, err, "%s", out)
		return out
	}
	rotate := func(token string) {
		m.secret("token", `{"acl":{"tokens":{"agent":"`+token+`"}}}`+"\n")
		m.write("/etc/weir/tokens/edge", token, 0o600) // as the servers fetch it
	}
	works := func(token string) bool {
		c, err := api.NewClient(&api.Config{Address: consul.Addr(), Token: token})
		require.NoError(t, err)
		_, _, err = c.ACL().TokenReadSelf(nil)
		return err == nil
	}
	first, second, third := uuids["edge"], uuids["dns"], uuids["regionctl"]
	rotate(first)
	require.Contains(t, run("secrets"), "/node/agent.json is new", "a new node takes what there is")
	require.Contains(t, run("consul-acl"), "token of weir-edge created")

	rotate(second)
	require.Contains(t, run("secrets"), "does not know the new token yet")
	require.Contains(t, m.read("/node/agent.json"), first)
	run("consul-acl")
	require.True(t, works(first), "nodes still use it")
	require.Contains(t, run("secrets"), "/node/agent.json is new")
	require.Contains(t, m.read("/node/agent.json"), second)
	require.Contains(t, m.read("systemctl"), "try-reload-or-restart weir-consul.service")

	rotate(third)
	require.Contains(t, run("consul-acl"), "an old token of weir-edge deleted")
	require.False(t, works(first))
	require.True(t, works(second))
	require.True(t, works(third))
	consul.Kill()
	require.Contains(t, run("secrets"), "does not know the new token yet")
	require.Contains(t, m.read("/node/agent.json"), second)
}
