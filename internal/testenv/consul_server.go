package testenv

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"
)

type consulServer struct {
	Server // the process; its Redis client stays nil

	api                      *api.Client // with the management token
	http, rpc, serf, serfWAN int         // ports
}

// settings is a part of a Consul configuration, as in JSON.
type settings = map[string]any

// newConsulServer reserves the ports and the directory of a server.
func newConsulServer(c *Consul) *consulServer {
	c.t.Helper()
	ports := FreePorts(c.t, 4)
	s := &consulServer{
		Server: Server{Addr: address(ports[0]), t: c.t, role: "consul", dir: c.t.TempDir()},
		http:   ports[0], rpc: ports[1], serf: ports[2], serfWAN: ports[3],
	}
	conf := &api.Config{Address: s.Addr, Token: c.token}
	transport := &http.Transport{MaxIdleConnsPerHost: 16}
	if c.files.CAFile != "" {
		conf.Scheme, transport.TLSClientConfig = "https", c.files.ClientConfig(c.t)
	}
	conf.HttpClient = &http.Client{Transport: transport}
	var err error
	s.api, err = api.NewClient(conf)
	require.NoError(c.t, err)
	c.t.Cleanup(func() {
		transport.CloseIdleConnections()
		s.Kill()
		if c.t.Failed() {
			c.t.Logf("consul %s %s, %s", c.Datacenter, s.Addr, lastLines(s.file("log"), 30))
		}
	})
	return s
}

// configure writes the configuration of a server that joins others: those of its
// datacenter at their serf addresses, and all at their WAN addresses.
func (s *consulServer) configure(c *Consul, name string, lan, wan []string) {
	s.t.Helper()
	// This gossip notices a failure within two to three seconds, yet tolerates a server
	// that waits for CPU time.
	gossip := settings{"gossip_interval": "50ms", "probe_interval": "500ms", "probe_timeout": "300ms", "suspicion_mult": 3}
	ports := settings{
		"http": s.http, "https": -1, "grpc": -1, "grpc_tls": -1, "dns": -1,
		"server": s.rpc, "serf_lan": s.serf, "serf_wan": s.serfWAN,
	}
	conf := settings{
		"server": true, "bootstrap_expect": len(c.servers), "datacenter": c.Datacenter, "node_name": name,
		"data_dir": filepath.Join(s.dir, "data"), "bind_addr": "127.0.0.1", "client_addr": "127.0.0.1", "ports": ports,
		"retry_join": lan, "retry_interval": "200ms", "retry_join_wan": wan, "retry_interval_wan": "200ms",
		"gossip_lan": gossip, "gossip_wan": gossip,
		"performance": settings{"raft_multiplier": 1},
		// A killed server will return, so it remains a member.
		"autopilot": settings{"cleanup_dead_servers": false}, "leave_on_terminate": false,
		// All clients of a test share one address.
		"limits": settings{"http_max_conns_per_client": 10000},
		// Preallocated, and 64 MB otherwise.
		"raft_logstore": settings{"wal": settings{"segment_size_mb": 8}},
		"connect":       settings{"enabled": false}, "peering": settings{"enabled": false},
		"disable_update_check": true, "log_level": "info",
	}
	if c.files.CAFile != "" {
		ports["http"], ports["https"] = -1, s.http
		conf["tls"] = settings{"https": settings{
			"ca_file": c.files.CAFile, "cert_file": c.files.CertFile, "key_file": c.files.KeyFile,
			"verify_incoming": false,
		}}
	}
	if c.token != "" {
		conf["acl"] = settings{
			"enabled": true, "default_policy": "deny", "enable_token_persistence": true,
			"tokens": settings{"initial_management": c.token, "agent": c.token},
		}
	}
	text, err := json.MarshalIndent(conf, "", "  ")
	if err == nil {
		err = os.WriteFile(s.file("json"), text, 0o600)
	}
	require.NoError(s.t, err)
}

// launch starts the server if it is not running. It does not wait.
func (s *consulServer) launch(binary string) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc != nil && !s.proc.gone() {
		return
	}
	var err error
	if s.proc, err = startProcess(s.dir, s.file("log"), binary, "agent", "-config-file", s.file("json")); err != nil {
		s.proc = nil
		s.t.Fatalf("testenv: start %s: %v", binary, err)
	}
	s.suspended = false
}

// waitReady waits until the server answers, even without a leader.
func (s *consulServer) waitReady() {
	s.t.Helper()
	s.wait("answer", func() error {
		if !s.alive() {
			return errGone
		}
		_, err := s.leader()
		return err
	})
}

// Suspend returns when every thread has stopped: on a busy machine one may keep running
// briefly after the signal.
func (s *consulServer) Suspend() {
	s.t.Helper()
	s.Server.Suspend()
	s.wait("stop", func() error {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", s.proc.pid))
		if err != nil {
			return err
		}
		for _, file := range threads {
			stat, err := os.ReadFile(file)
			if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
				continue // it ended
			}
			if err != nil {
				return err
			}
			if !strings.Contains(string(stat), ") T ") {
				return fmt.Errorf("a thread runs: %s", stat)
			}
		}
		return nil
	})
}

// stopped reports whether the server is suspended but not dead.
func (s *consulServer) stopped() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc != nil && !s.proc.gone() && s.suspended
}

// brief bounds one request of a poll: a stopped server must not delay it for long.
func brief() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), 2*time.Second)
}

// leader returns the RPC address of the server that this one follows, "" if none.
func (s *consulServer) leader() (string, error) {
	ctx, cancel := brief()
	defer cancel()
	return s.api.Status().LeaderWithQueryOptions((&api.QueryOptions{}).WithContext(ctx))
}

// write verifies that the server accepts writes, and leaves nothing behind.
func (s *consulServer) write() error {
	ctx, cancel := brief()
	defer cancel()
	o := (&api.WriteOptions{}).WithContext(ctx)
	_, err := s.api.KV().Put(&api.KVPair{Key: "testenv"}, o)
	if err == nil {
		_, err = s.api.KV().Delete("testenv", o)
	}
	return err
}

// reads returns why the server cannot read another datacenter's data.
func (s *consulServer) reads(datacenter string) error {
	ctx, cancel := brief()
	defer cancel()
	_, _, err := s.api.KV().Get("testenv", (&api.QueryOptions{Datacenter: datacenter}).WithContext(ctx))
	return err
}

const memberAlive = 1 // of api.AgentMember.Status, which has no constants

// sees returns why the server does not see that many servers alive over the WAN.
func (s *consulServer) sees(servers int) error {
	members, err := s.api.Agent().Members(true)
	if err != nil {
		return err
	}
	alive := 0
	for _, m := range members {
		if m.Status == memberAlive {
			alive++
		}
	}
	if alive != servers {
		return fmt.Errorf("%s sees %d of %d servers", s.Addr, alive, servers)
	}
	return nil
}
