package terraform_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	encoding "encoding/pem"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
)

// authority certifies a server as Terraform's tls provider would.
func authority(t *testing.T, name string) (ca, cert, key string) {
	t.Helper()
	issue := func(template, parent *x509.Certificate, signer *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey, string) {
		own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		require.NoError(t, err)
		if parent == nil {
			parent, signer = template, own
		}
		der, err := x509.CreateCertificate(rand.Reader, template, parent, &own.PublicKey, signer)
		require.NoError(t, err)
		parsed, err := x509.ParseCertificate(der)
		require.NoError(t, err)
		return parsed, own, string(encoding.EncodeToMemory(&encoding.Block{Type: "CERTIFICATE", Bytes: der}))
	}
	from, to := time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	root, rootKey, ca := issue(&x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "weir Consul CA"}, NotBefore: from, NotAfter: to,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature,
	}, nil, nil)
	_, own, cert := issue(&x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, NotBefore: from, NotAfter: to,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		DNSNames: []string{name, "localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}, root, rootKey)
	der, err := x509.MarshalECPrivateKey(own)
	require.NoError(t, err)
	return ca, cert, string(encoding.EncodeToMemory(&encoding.Block{Type: "EC PRIVATE KEY", Bytes: der}))
}

// machine is a booted instance of a role.
func machine(t *testing.T, out map[string]any, role string) *instance {
	t.Helper()
	m := boot(t, out[role].(string))
	for name, text := range out["secrets"].(map[string]any) {
		m.secret(name, text.(string)+"\n")
	}
	m.secret("redis", "x")
	text, err := m.run("/usr/local/lib/weir/boot")
	require.NoError(t, err, "%s", text)
	return m
}

// consul starts an instance's agent with its own configuration, except for addresses:
// everything runs on this machine, and there is no cloud to ask for servers.
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
	require.NoError(m.t, os.WriteFile(filepath.Join(dir, "secret.json"), []byte(m.read("/etc/consul.d/secret.json")), 0o600))
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

// A server and an edge's agent, each as its instance configures it, find each other
// with TLS, gossip encryption and ACLs, and the edge's token registers a service.
func TestConsulServerAndAgent(t *testing.T) {
	out := regionOutputs(t)
	ca, cert, key := authority(t, "server.eu-west.consul")
	ports := testenv.FreePorts(t, 7)
	server, edge := machine(t, out, "consul"), machine(t, out, "edge")
	for _, m := range []*instance{server, edge} {
		m.write("/etc/consul.d/ca.pem", ca, 0o600)
	}
	server.write("/etc/consul.d/server.pem", cert, 0o600)
	server.write("/etc/consul.d/server.key", key, 0o600)

	local := func(port int) string { return "127.0.0.1:" + strconv.Itoa(port) }
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
	tokens := map[string]string{}
	for _, line := range strings.Split(strings.TrimSpace(server.read("/etc/weir/tokens.env")), "\n") {
		name, value, _ := strings.Cut(line, "=")
		tokens[name] = strings.Trim(value, "'")
	}
	ctl, err := api.NewClient(&api.Config{
		Address: local(ports[1]), Scheme: "https", Token: tokens["REGIONCTL"], TLSConfig: api.TLSConfig{CAFile: file, Address: "server.eu-west.consul"},
	})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		services, _, err := ctl.Health().Service("weir-edge", "", false, nil)
		return err == nil && len(services) == 1 && services[0].Node.Node == id
	}, testenv.Patience, 100*time.Millisecond, "the edge does not reach the catalog")
}

func mustAbs(t *testing.T, name string) string {
	t.Helper()
	abs, err := filepath.Abs(name)
	require.NoError(t, err)
	return abs
}

// uuids are tokens as Terraform would make them.
var uuids = map[string]string{
	"AGENT":     "11111111-2222-3333-4444-000000000001",
	"EDGE":      "11111111-2222-3333-4444-000000000002",
	"REGIONCTL": "11111111-2222-3333-4444-000000000003",
	"DNS":       "11111111-2222-3333-4444-000000000004",
}

// The servers create a new datacenter's policies and tokens, however often they run.
func TestConsulTokens(t *testing.T) {
	consul := testenv.StartConsul(t, testenv.ConsulOptions{ACL: true})
	root := t.TempDir()
	policies := filepath.Join(root, "etc/weir/policies")
	require.NoError(t, os.MkdirAll(policies, 0o755))
	names, err := filepath.Glob("modules/region/files/policies/*.hcl")
	require.NoError(t, err)
	require.Len(t, names, len(uuids))
	for _, name := range names {
		require.NoError(t, os.WriteFile(filepath.Join(policies, filepath.Base(name)), []byte(read(t, name)), 0o600))
	}
	tokens := "MANAGEMENT='" + consul.Token() + "'\n"
	for name, uuid := range uuids {
		tokens += name + "='" + uuid + "'\n"
	}
	require.NoError(t, os.WriteFile(filepath.Join(root, "etc/weir/tokens.env"), []byte(tokens), 0o600))
	bin, err := filepath.Abs("../.bin")
	require.NoError(t, err)
	script := func() string {
		cmd := exec.Command("modules/region/files/consul-acl.sh")
		cmd.Env = append(os.Environ(), "WEIR_ROOT="+root, "PATH="+bin+":"+os.Getenv("PATH"), "CONSUL_HTTP_ADDR="+consul.Addr())
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
	edge, ctl, dns := as("EDGE"), as("REGIONCTL"), as("DNS")
	require.NoError(t, edge.Agent().ServiceRegister(&api.AgentServiceRegistration{Name: "weir-edge"}))
	require.Error(t, edge.Agent().ServiceRegister(&api.AgentServiceRegistration{Name: "other"}))
	for _, key := range []string{"weir/rules/current", "weir/shedder/current", "weir/topology", "weir/drain/ams1"} {
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
	require.False(t, reads(edge, "weir/drain/ams1"))
	require.True(t, reads(dns, "weir/topology"))
	require.True(t, reads(dns, "weir/drain/ams1"))
	require.False(t, reads(dns, "weir/rules/current"))
	for _, c := range []*api.Client{ctl, dns} {
		services, _, err := c.Health().Service("weir-edge", "", false, nil)
		require.NoError(t, err)
		require.Len(t, services, 1)
		members, err := c.Agent().Members(true)
		require.NoError(t, err)
		require.Len(t, members, 1, "the WAN's")
	}
}
