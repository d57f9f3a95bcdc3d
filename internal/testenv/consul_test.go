package testenv

import (
	"errors"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"
)

func put(t *testing.T, c *api.Client, key, value string) {
	t.Helper()
	_, err := c.KV().Put(&api.KVPair{Key: key, Value: []byte(value)}, nil)
	require.NoError(t, err)
}

func requireValue(t *testing.T, c *api.Client, datacenter, key, want string) {
	t.Helper()
	pair, _, err := c.KV().Get(key, &api.QueryOptions{Datacenter: datacenter})
	require.NoError(t, err)
	require.NotNil(t, pair)
	require.Equal(t, want, string(pair.Value))
}

func TestConsul(t *testing.T) {
	t.Parallel()
	f := func(name string, o ConsulOptions) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			since := time.Now()
			c := StartConsul(t, o)
			started(t, since)
			require.Equal(t, []string{c.Addr()}, c.Addrs())
			require.Equal(t, o.ACL, c.Token() != "")
			require.Equal(t, o.TLS, c.CAFile() != "")
			keys, _, err := c.Client().KV().Keys("", "", nil)
			require.NoError(t, err)
			require.Empty(t, keys, "the start leaves nothing behind")
			put(t, c.Client(), "weir/key", "value")
			requireValue(t, c.Client(), "", "weir/key", "value")

			self, err := c.Client().Agent().Self()
			require.NoError(t, err)
			require.Equal(t, c.Datacenter, self["Config"]["Datacenter"])

			// As a program is configured: address and files.
			conf := &api.Config{Address: c.Addr(), Token: c.Token()}
			if o.TLS {
				conf.Address, conf.TLSConfig.CAFile = "https://"+c.Addr(), c.CAFile()
			}
			client, err := api.NewClient(conf)
			require.NoError(t, err)
			requireValue(t, client, "", "weir/key", "value")
		})
	}
	f("plain", ConsulOptions{})
	f("acl", ConsulOptions{ACL: true, Datacenter: "eu-west"})
	f("tls and acl", ConsulOptions{TLS: true, ACL: true})
}

func TestConsulKeepsWhatItStored(t *testing.T) {
	t.Parallel()
	c := StartConsul(t, ConsulOptions{ACL: true})
	_, secret := c.NewToken(t, `key_prefix "weir/" { policy = "read" }`)
	put(t, c.Client(), "weir/key", "value")
	pair, _, err := c.Client().KV().Get("weir/key", nil)
	require.NoError(t, err)

	addr := c.Addr()
	c.Kill()
	c.Kill() // nothing left to kill
	_, err = net.Dial("tcp", addr)
	require.ErrorIs(t, err, syscall.ECONNREFUSED)

	since := time.Now()
	c.Start()
	t.Logf("came back in %v", time.Since(since))
	c.Start() // already running
	require.Equal(t, addr, c.Addr())
	again, _, err := c.Client().KV().Get("weir/key", &api.QueryOptions{Token: secret})
	require.NoError(t, err)
	require.Equal(t, pair, again)
}

func TestConsulSuspendAndResume(t *testing.T) {
	t.Parallel()
	c := StartConsul(t, ConsulOptions{})
	put(t, c.Client(), "weir/key", "value")
	c.Suspend()
	conn, err := net.Dial("tcp", c.Addr())
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.Write([]byte("GET /v1/status/leader HTTP/1.0\r\n\r\n"))
	require.NoError(t, err)
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
	var timeout net.Error
	_, err = conn.Read(make([]byte, 1))
	require.ErrorAs(t, err, &timeout)
	require.True(t, timeout.Timeout(), "a suspended server accepts but does not answer")
	c.Resume()
	c.Resume() // already running
	c.WaitHealthy()
	requireValue(t, c.Client(), "", "weir/key", "value")
	c.Suspend() // a suspended server must still die at cleanup
}

func TestConsulDatacenters(t *testing.T) {
	t.Parallel()
	names := []string{"eu-west", "us-east", "ap-south"}
	f := func(name string, o ConsulOptions) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			since := time.Now()
			all := StartConsuls(t, o, names...)
			started(t, since)
			for i, c := range all {
				require.Equal(t, names[i], c.Datacenter)
				put(t, c.Client(), "weir/here", c.Datacenter)
			}
			for _, c := range all {
				known, err := c.Client().Catalog().Datacenters()
				require.NoError(t, err)
				require.ElementsMatch(t, names, known)
				requireValue(t, c.Client(), "", "weir/here", c.Datacenter)
				for _, d := range names {
					requireValue(t, c.Client(), d, "weir/here", d)
				}
			}

			// The others notice the loss and return of a datacenter.
			all[1].Kill()
			since = time.Now()
			all[0].servers[0].wait("miss a datacenter", func() error { return all[0].servers[0].sees(2) })
			t.Logf("missed in %v", time.Since(since))
			all[1].Start()
			since = time.Now()
			require.Eventually(t, func() bool {
				return all[0].servers[0].reads(names[1]) == nil && all[1].servers[0].reads(names[2]) == nil
			}, Patience, pollEvery)
			t.Logf("rejoined in %v", time.Since(since))
		})
	}
	f("plain", ConsulOptions{})
	f("acl", ConsulOptions{ACL: true})
}

func TestConsulACL(t *testing.T) {
	t.Parallel()
	c := StartConsul(t, ConsulOptions{ACL: true})
	put(t, c.Client(), "weir/key", "value")
	put(t, c.Client(), "other/key", "value")

	refused := func(err error) {
		t.Helper()
		var status api.StatusError
		require.ErrorAs(t, err, &status)
		require.Equal(t, 403, status.Code)
	}
	stranger, err := api.NewClient(&api.Config{Address: c.Addr()})
	require.NoError(t, err)
	_, err = stranger.KV().Put(&api.KVPair{Key: "weir/key"}, nil)
	refused(err)
	_, _, err = stranger.KV().Get("weir/key", nil)
	refused(err)

	accessor, secret := c.NewToken(t, `key_prefix "weir/" { policy = "read" }`)
	reader, err := api.NewClient(&api.Config{Address: c.Addr(), Token: secret})
	require.NoError(t, err)
	requireValue(t, reader, "", "weir/key", "value")
	_, err = reader.KV().Put(&api.KVPair{Key: "weir/key"}, nil)
	refused(err)
	_, _, err = reader.KV().Get("other/key", nil)
	refused(err)

	_, err = c.Client().ACL().TokenDelete(accessor, nil)
	require.NoError(t, err)
	_, _, err = reader.KV().Get("weir/key", nil)
	refused(err)
}

func TestConsulElectsANewLeader(t *testing.T) {
	t.Parallel()
	since := time.Now()
	c := StartConsul(t, ConsulOptions{Servers: 3, ACL: true})
	started(t, since)
	require.Len(t, c.Addrs(), 3)
	c.NewToken(t, `key_prefix "" { policy = "read" }`)
	put(t, c.Client(), "weir/key", "before")

	dead := c.KillLeader()
	require.Contains(t, c.Addrs(), dead)
	_, err := net.Dial("tcp", dead)
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	since = time.Now()
	c.WaitHealthy()
	t.Logf("elected another in %v", time.Since(since))
	c.servers[0].wait("agree on a leader", func() error {
		leader, err := c.leader() // a busy machine may have lost one again
		if err == nil && leader.Addr == dead {
			err = errors.New("the dead server leads")
		}
		return err
	})
	requireValue(t, c.Client(), "", "weir/key", "before")
	put(t, c.Client(), "weir/key", "after")

	since = time.Now()
	c.Start()
	t.Logf("rejoined in %v", time.Since(since))
	for _, s := range c.servers {
		requireValue(t, s.api, "", "weir/key", "after")
	}

	c.Kill()
	since = time.Now()
	c.Start()
	t.Logf("all came back in %v", time.Since(since))
	requireValue(t, c.Client(), "", "weir/key", "after")
}

func TestConsulFailuresSayWhy(t *testing.T) {
	t.Parallel()
	f := func(what, dir string, want ...string) {
		t.Helper()
		cmd := child(t, what)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		require.Error(t, err, "%s", out)
		for _, w := range append(want, "--- FAIL") {
			require.Contains(t, string(out), w)
		}
	}
	f("consul", t.TempDir(), "consul not found in .bin/ at the root of the repository: make tools")
	f("misconfigured consul", ".", "the process is gone", "consul.log:", "No such Datacenter")
}
