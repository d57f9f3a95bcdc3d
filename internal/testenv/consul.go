package testenv

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"
)

// ConsulOptions are the same for every server of a datacenter.
type ConsulOptions struct {
	Datacenter string // "" = dc1
	// ACL refuses requests that no token permits. Each datacenter has its own tokens, like
	// regions that must outlive each other; only the management token is the same in all
	// datacenters that StartConsuls starts.
	ACL     bool
	Servers int  // 0 = 1; three survive the loss of one
	TLS     bool // closes the plain HTTP port; clients need no certificate
}

// Consul is the servers of one datacenter. Its data is on disk, so Start after Kill
// restores all of it.
type Consul struct {
	Datacenter string

	t       testing.TB
	token   string
	files   TLSFiles
	servers []*consulServer
}

// StartConsul starts one datacenter and waits until it accepts writes. That takes one to
// two seconds, for which a Consul server waits for a leader before it becomes one.
func StartConsul(t testing.TB, o ConsulOptions) *Consul {
	t.Helper()
	return StartConsuls(t, o, cmp.Or(o.Datacenter, "dc1"))[0]
}

// StartConsuls starts several datacenters, joined over the WAN, and waits until each
// accepts writes and can be read from all others (?dc=). The names replace
// ConsulOptions.Datacenter.
func StartConsuls(t testing.TB, o ConsulOptions, datacenters ...string) []*Consul {
	t.Helper()
	if len(datacenters) == 0 {
		t.Fatalf("testenv: StartConsuls: name the datacenters")
	}
	token := ""
	if o.ACL {
		token = newUUID()
	}
	files := certificatesFor(t, Options{TLS: o.TLS})
	var all []*Consul
	var wan []string
	for _, name := range datacenters {
		c := &Consul{Datacenter: name, t: t, token: token, files: files}
		for range max(o.Servers, 1) {
			s := newConsulServer(c)
			c.servers = append(c.servers, s)
			wan = append(wan, address(s.serfWAN))
		}
		all = append(all, c)
	}
	for _, c := range all {
		c.configure(wan)
	}
	for _, c := range all {
		c.launch()
	}
	for _, c := range all {
		c.waitReady()
	}
	for _, c := range all {
		c.waitFederated(all)
	}
	return all
}

func (c *Consul) configure(wan []string) {
	c.t.Helper()
	var lan []string
	for _, s := range c.servers {
		lan = append(lan, address(s.serf))
	}
	for i, s := range c.servers {
		s.configure(c, fmt.Sprintf("%s-%d", c.Datacenter, i+1), without(lan, address(s.serf)), without(wan, address(s.serfWAN)))
	}
}

// without returns the other addresses: a server that is told to join itself does not look
// further.
func without(addrs []string, own string) []string {
	return slices.DeleteFunc(slices.Clone(addrs), func(a string) bool { return a == own })
}

func (c *Consul) waitFederated(all []*Consul) {
	c.t.Helper()
	total := 0
	for _, d := range all {
		total += len(d.servers)
	}
	for _, s := range c.servers {
		s.wait("see all other datacenters", func() error {
			if err := s.sees(total); err != nil {
				return err
			}
			for _, d := range all {
				if err := s.reads(d.Datacenter); err != nil {
					return err
				}
			}
			return nil
		})
	}
}

// Addr returns the HTTP address, host:port, of the first server; with TLS it uses HTTPS.
func (c *Consul) Addr() string { return c.servers[0].Addr }

// Addrs returns the HTTP addresses of all servers, including killed ones.
func (c *Consul) Addrs() []string {
	var list []string
	for _, s := range c.servers {
		list = append(list, s.Addr)
	}
	return list
}

// Token returns the management token, "" without ACLs.
func (c *Consul) Token() string { return c.token }

// CAFile returns the authority that signed the servers' certificates, "" without TLS.
func (c *Consul) CAFile() string { return c.files.CAFile }

// Client returns a client with the management token for the first running server.
func (c *Consul) Client() *api.Client {
	for _, s := range c.servers {
		if s.alive() {
			return s.api
		}
	}
	return c.servers[0].api
}

// NewToken creates a token with the given policy, and waits until every running server
// knows it. The accessor identifies it, for example to delete it; clients send the
// secret.
func (c *Consul) NewToken(t testing.TB, policyHCL string) (accessorID, secret string) {
	t.Helper()
	client := c.Client()
	policy, _, err := client.ACL().PolicyCreate(&api.ACLPolicy{Name: "test-" + newUUID(), Rules: policyHCL}, nil)
	require.NoError(t, err, "policy")
	token, _, err := client.ACL().TokenCreate(&api.ACLToken{Policies: []*api.ACLLink{{ID: policy.ID}}}, nil)
	require.NoError(t, err, "token")
	for _, s := range c.running() {
		s.wait("know a new token", func() error {
			_, _, err := s.api.ACL().TokenReadSelf(&api.QueryOptions{Token: token.SecretID, AllowStale: true})
			return err
		})
	}
	return token.AccessorID, token.SecretID
}

// Kill ends all servers like kill -9 and returns when they are gone.
func (c *Consul) Kill() {
	for _, s := range c.servers {
		s.Kill()
	}
}

// Start restarts the servers that are not running, on their ports and with their data,
// and waits until the datacenter accepts writes.
func (c *Consul) Start() {
	c.t.Helper()
	c.launch()
	c.waitReady()
}

// Suspend stops all servers with SIGSTOP: connections stay open, and the kernel
// accepts new ones, but nothing answers.
func (c *Consul) Suspend() {
	c.t.Helper()
	for _, s := range c.running() {
		s.Suspend()
	}
}

// Resume continues suspended servers without waiting; use WaitHealthy to wait.
func (c *Consul) Resume() {
	c.t.Helper()
	for _, s := range c.servers {
		if s.stopped() {
			s.Resume()
		}
	}
}

// KillLeader kills the leader and returns its address. It does not wait for a new
// election; use WaitHealthy to wait.
func (c *Consul) KillLeader() string {
	c.t.Helper()
	var leader *consulServer
	if err := poll(Patience, func() (err error) {
		leader, err = c.leader()
		return err
	}); err != nil {
		c.t.Fatalf("testenv: consul %s has no leader to kill: %v%s", c.Datacenter, err, c.logs(5))
	}
	leader.Kill()
	return leader.Addr
}

// WaitHealthy waits until all running servers follow one of them and accept writes. It
// ignores killed and suspended ones.
func (c *Consul) WaitHealthy() {
	c.t.Helper()
	if err := poll(Patience, c.health); err != nil {
		c.t.Fatalf("testenv: consul %s is not healthy: %v%s", c.Datacenter, err, c.logs(20))
	}
}

func (c *Consul) launch() {
	c.t.Helper()
	binary := consulBinary(c.t)
	for _, s := range c.servers {
		s.launch(binary)
	}
}

// consulBinary finds the binary that make tools built, starting from the package directory in
// which a test runs.
func consulBinary(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	require.NoError(t, err)
	for {
		file := filepath.Join(dir, ".bin", "consul")
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() {
			return file
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			t.Fatalf("consul not found in .bin/ at the root of the repository: make tools")
		}
		dir = parent
	}
}

func (c *Consul) waitReady() {
	c.t.Helper()
	for _, s := range c.servers {
		s.waitReady()
	}
	c.WaitHealthy()
}

func (c *Consul) running() []*consulServer {
	var list []*consulServer
	for _, s := range c.servers {
		if s.alive() {
			list = append(list, s)
		}
	}
	return list
}

// leader returns the running server that all running servers follow.
func (c *Consul) leader() (*consulServer, error) {
	running := c.running()
	if len(running) == 0 {
		return nil, errGone
	}
	byAddress := map[string]*consulServer{}
	for _, s := range running {
		byAddress[address(s.rpc)] = s
	}
	var leader *consulServer
	for _, s := range running {
		addr, err := s.leader()
		switch {
		case err != nil:
			return nil, err
		case byAddress[addr] == nil:
			return nil, fmt.Errorf("%s follows %q", s.Addr, addr)
		case leader != nil && byAddress[addr] != leader:
			return nil, fmt.Errorf("%s follows %s, others %s", s.Addr, addr, leader.Addr)
		}
		leader = byAddress[addr]
	}
	return leader, nil
}

func (c *Consul) health() error {
	// Check for a leader first: a write without one blocks for longer than an election
	// takes.
	if _, err := c.leader(); err != nil {
		return err
	}
	for _, s := range c.running() {
		if err := s.write(); err != nil {
			return err
		}
	}
	return nil
}

// logs returns the end of each server's log, for a failure message.
func (c *Consul) logs(lines int) string {
	text := ""
	for _, s := range c.servers {
		text += "\n" + s.Addr + " " + lastLines(s.file("log"), lines)
	}
	return text
}

// newUUID returns a random UUID, the only form of a token that Consul accepts.
func newUUID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// Set writes a key without the package under test.
func (c *Consul) Set(t testing.TB, key string, value []byte) {
	t.Helper()
	_, err := c.Client().KV().Put(&api.KVPair{Key: key, Value: value}, nil)
	require.NoError(t, err)
}

func (c *Consul) Remove(t testing.TB, key string) {
	t.Helper()
	_, err := c.Client().KV().Delete(key, nil)
	require.NoError(t, err)
}

// Stored reads a key, which must exist.
func (c *Consul) Stored(t testing.TB, key string) []byte {
	t.Helper()
	pair, _, err := c.Client().KV().Get(key, nil)
	require.NoError(t, err)
	require.NotNil(t, pair, key)
	return pair.Value
}
