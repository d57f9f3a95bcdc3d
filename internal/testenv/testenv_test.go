package testenv

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

var variants = []struct {
	name string
	opts Options
}{
	{"plain", Options{}},
	{"tls and acl", Options{TLS: true, User: "weir", Password: "s3cret"}},
	{"password", Options{Password: "s3cret"}},
}

// setGet verifies that a client sees a working store.
func setGet(t *testing.T, c redis.Cmdable) {
	t.Helper()
	for i := range 20 { // enough keys to reach every master of a cluster
		key, value := fmt.Sprint("key", i), fmt.Sprint("value", i)
		require.NoError(t, c.Set(t.Context(), key, value, 0).Err())
		got, err := c.Get(t.Context(), key).Result()
		require.NoError(t, err)
		require.Equal(t, value, got)
	}
}

func started(t *testing.T, since time.Time) { t.Logf("started in %v", time.Since(since)) }

func clusterClient(t *testing.T, c *RedisCluster) *redis.ClusterClient {
	o := c.Nodes[0].opts
	client := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: c.Addrs(), Username: o.User, Password: o.Password, TLSConfig: c.Nodes[0].TLSConfig(),
	})
	t.Cleanup(func() { client.Close() })
	return client
}

func failoverClient(t *testing.T, r *RedisSentinel) *redis.Client {
	o := r.Nodes[0].opts
	client := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: r.MasterName, SentinelAddrs: r.SentinelAddrs,
		Username: o.User, Password: o.Password, TLSConfig: r.Nodes[0].TLSConfig(),
	})
	t.Cleanup(func() { client.Close() })
	return client
}

func TestRedis(t *testing.T) {
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			since := time.Now()
			s := Redis(t, v.opts)
			started(t, since)
			setGet(t, s.Client())
			require.Equal(t, v.opts.TLS, s.TLS() != (TLSFiles{}))
			require.Equal(t, v.opts.TLS, s.TLSConfig() != nil)
		})
	}
}

func TestRedisRefusesStrangers(t *testing.T) {
	f := func(o Options, useTLS bool, want string) {
		t.Helper()
		s := Redis(t, o)
		stranger := &redis.Options{Addr: s.Addr, Protocol: 2, MaxRetries: -1}
		if useTLS {
			stranger.TLSConfig = s.TLSConfig()
		}
		c := redis.NewClient(stranger)
		defer c.Close()
		require.ErrorContains(t, c.Ping(t.Context()).Err(), want)
	}
	f(Options{User: "weir", Password: "s3cret"}, false, "NOAUTH")
	f(Options{Password: "s3cret"}, false, "NOAUTH")
	f(Options{TLS: true, User: "weir", Password: "s3cret"}, true, "NOAUTH")
	f(Options{TLS: true}, false, "") // TCP may close the connection in several ways
}

func TestKillAndStart(t *testing.T) {
	s := Redis(t, Options{})
	setGet(t, s.Client())
	s.Kill()
	s.Kill() // nothing left to kill
	_, err := net.Dial("tcp", s.Addr)
	require.ErrorIs(t, err, syscall.ECONNREFUSED)

	addr := s.Addr
	s.Start()
	s.Start() // already running
	require.Equal(t, addr, s.Addr)
	require.ErrorIs(t, s.Client().Get(t.Context(), "key1").Err(), redis.Nil, "nothing is stored on disk")
	setGet(t, s.Client())
}

func TestSuspendAndResume(t *testing.T) {
	s := Redis(t, Options{})
	s.Suspend()
	require.False(t, s.alive())
	c := redis.NewClient(&redis.Options{Addr: s.Addr, ReadTimeout: 50 * time.Millisecond, MaxRetries: -1})
	defer c.Close()
	var timeout net.Error
	require.ErrorAs(t, c.Ping(t.Context()).Err(), &timeout)
	require.True(t, timeout.Timeout(), "a suspended server accepts but does not answer")
	s.Resume()
	setGet(t, s.Client())
	s.Suspend() // a suspended server must still die at cleanup
}

func TestCommandCalls(t *testing.T) {
	s := Redis(t, Options{})
	require.Zero(t, s.CommandCalls("set", "get"))
	c := redis.NewClient(&redis.Options{Addr: s.Addr, ReadTimeout: Patience, MaxRetries: -1}) // what is sent twice counts twice
	defer c.Close()
	setGet(t, c)
	require.EqualValues(t, 20, s.CommandCalls("set"))
	require.EqualValues(t, 40, s.CommandCalls("set", "get", "evalsha"))
	require.NoError(t, s.Client().Eval(t.Context(), "return redis.call('get', KEYS[1])", []string{"key1"}).Err())
	require.EqualValues(t, 21, s.CommandCalls("get"), "a script's commands count")
	require.NoError(t, s.Client().ScriptLoad(t.Context(), "return 1").Err())
	require.EqualValues(t, 2, s.CommandCalls("eval", "script|load"))
}

func TestArgsWin(t *testing.T) {
	s := Redis(t, Options{Args: []string{"maxmemory 10mb", "appendonly yes"}})
	conf, err := s.Client().ConfigGet(t.Context(), "[ma][ap][xp]*").Result()
	require.NoError(t, err)
	require.Equal(t, "10485760", conf["maxmemory"])
	require.Equal(t, "yes", conf["appendonly"])
}

func TestCluster(t *testing.T) {
	t.Parallel()
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			since := time.Now()
			c := Cluster(t, v.opts)
			started(t, since)
			client := clusterClient(t, c)
			setGet(t, client)

			dead := c.MasterOf("key1")
			require.Contains(t, c.Addrs()[:clusterMasters], dead.Addr)
			dead.Kill()
			since = time.Now()
			c.WaitHealthy()
			t.Logf("failed over in %v", time.Since(since))
			promoted := c.MasterOf("key1")
			require.Contains(t, c.Addrs()[clusterMasters:], promoted.Addr)
			require.NoError(t, promoted.Client().Set(t.Context(), "key1", "after", 0).Err())

			since = time.Now()
			dead.Start()
			c.WaitHealthy()
			t.Logf("rejoined in %v", time.Since(since))
			require.Equal(t, promoted.Addr, c.MasterOf("key1").Addr)
			require.NoError(t, replicaSynced(dead))
			client.ReloadState(t.Context())
			setGet(t, client)
		})
	}
}

func TestClusterOutlastsASuspendedMaster(t *testing.T) {
	t.Parallel()
	c := Cluster(t, Options{})
	frozen := c.MasterOf("key1")
	frozen.Suspend()
	c.WaitHealthy()
	promoted := c.MasterOf("key1")
	require.NotEqual(t, frozen.Addr, promoted.Addr)
	frozen.Resume()
	c.WaitHealthy()
	require.Equal(t, promoted.Addr, c.MasterOf("key1").Addr)
	setGet(t, clusterClient(t, c))
}

func TestSentinel(t *testing.T) {
	t.Parallel()
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			since := time.Now()
			r := Sentinel(t, v.opts)
			started(t, since)
			setGet(t, failoverClient(t, r))

			dead := r.Master()
			require.Equal(t, r.Nodes[0].Addr, dead.Addr)
			dead.Kill()
			since = time.Now()
			r.WaitHealthy()
			t.Logf("failed over in %v", time.Since(since))
			promoted := r.Master()
			require.NotEqual(t, dead.Addr, promoted.Addr)
			require.NoError(t, promoted.Client().Set(t.Context(), "key1", "after", 0).Err())

			since = time.Now()
			dead.Start()
			r.WaitHealthy()
			t.Logf("rejoined in %v", time.Since(since))
			require.Equal(t, promoted.Addr, r.Master().Addr)
			require.NoError(t, replicaSynced(dead))
			setGet(t, failoverClient(t, r))
		})
	}
}

func TestNoProcessIsLeft(t *testing.T) {
	var servers []*Server
	var ports []int
	require.True(t, t.Run("environment", func(t *testing.T) {
		servers = append(servers, Redis(t, Options{}))
		servers = append(servers, Cluster(t, Options{}).Nodes...)
		r := Sentinel(t, Options{})
		servers = append(append(servers, r.Nodes...), r.Sentinels...)
		servers = append(servers, &StartConsul(t, ConsulOptions{}).servers[0].Server)
		servers[0].Suspend()
		ports = FreePorts(t, 3)
		require.False(t, reserve(t, ports[0]), "a port is assigned once")
	}))
	require.Len(t, servers, 1+clusterNodes+dataNodes+sentinels+1)
	for _, s := range servers {
		require.True(t, s.proc.gone())
		require.ErrorIs(t, syscall.Kill(s.proc.pid, 0), syscall.ESRCH)
		require.NoDirExists(t, s.dir)
	}
	require.True(t, reserve(t, ports[0]), "a port returns at the end of its test")
}

func TestServerOutlivesTheThreadThatStartedIt(t *testing.T) {
	s := Redis(t, Options{})
	s.Kill()
	thread := make(chan int)
	var start func()
	start = func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if syscall.Gettid() == os.Getpid() {
			go start() // elsewhere: Go parks the main thread instead of ending it
			return
		}
		s.Start()
		thread <- syscall.Gettid()
	}
	go start()
	task := fmt.Sprintf("/proc/self/task/%d", <-thread)
	require.NoError(t, poll(Patience, func() error {
		if _, err := os.Stat(task); err == nil {
			return errors.New("the thread has not ended")
		}
		return nil
	}))
	setGet(t, s.Client())
}

// child runs TestChild in a separate test binary.
func child(t *testing.T, what string, env ...string) *exec.Cmd {
	t.Helper()
	binary, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(binary, "-test.run=^TestChild$", "-test.v")
	cmd.Env = append(append(os.Environ(), "WEIR_TESTENV_CHILD="+what), env...)
	return cmd
}

// TestChild is what child runs. It does nothing in a run of the whole package.
func TestChild(t *testing.T) {
	switch os.Getenv("WEIR_TESTENV_CHILD") {
	case "serve":
		fmt.Println("\npid", Redis(t, Options{}).proc.pid)
		select {}
	case "misconfigured":
		Redis(t, Options{Args: []string{"no-such-setting yes"}})
	case "ordinary":
		Redis(t, Options{})
	case "consul":
		StartConsul(t, ConsulOptions{})
	case "misconfigured consul":
		StartConsul(t, ConsulOptions{Datacenter: "No such Datacenter"})
	}
}

func TestServersDieWithTheTestBinary(t *testing.T) {
	cmd := child(t, "serve")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	pid := 0
	for lines := bufio.NewScanner(out); pid == 0 && lines.Scan(); {
		if number, ok := strings.CutPrefix(lines.Text(), "pid "); ok {
			pid, err = strconv.Atoi(number)
			require.NoError(t, err)
		}
	}
	require.NoError(t, syscall.Kill(pid, 0), "the server is running")
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
	require.NoError(t, poll(Patience, func() error {
		// An orphan remains a zombie where process 1 does not reap, as in some
		// containers.
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if errors.Is(err, os.ErrNotExist) || strings.Contains(string(stat), ") Z ") {
			return nil
		}
		return fmt.Errorf("the server is still alive: %s", stat)
	}))
}

func TestFailuresSayWhy(t *testing.T) {
	f := func(what string, want []string, env ...string) {
		t.Helper()
		out, err := child(t, what, env...).CombinedOutput()
		require.Error(t, err, "%s", out)
		for _, w := range append(want, "--- FAIL") {
			require.Contains(t, string(out), w)
		}
	}
	f("ordinary", []string{"redis-server not found: apt-get install redis-server"}, "PATH=/nonexistent")
	f("misconfigured", []string{"the process is gone", "redis.log:", "no-such-setting"})
}

func TestPoll(t *testing.T) {
	calls := 0
	require.NoError(t, poll(time.Minute, func() error {
		if calls++; calls < 3 {
			return errors.New("not yet")
		}
		return nil
	}))
	require.Equal(t, 3, calls)
	require.EqualError(t, poll(time.Millisecond, func() error { return errors.New("never ready") }), "not within 1ms: never ready")
	require.Equal(t, errGone, poll(time.Minute, func() error { return errGone }))
}

func TestCertificates(t *testing.T) {
	files := Certificates(t)
	pair, err := tls.LoadX509KeyPair(files.CertFile, files.KeyFile)
	require.NoError(t, err)
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}})
	require.NoError(t, err)
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.(*tls.Conn).HandshakeContext(context.Background())
			c.Close()
		}
	}()
	f := func(name string) error {
		config := files.ClientConfig(t)
		config.ServerName = name
		c, err := tls.Dial("tcp", l.Addr().String(), config)
		if err == nil {
			c.Close()
		}
		return err
	}
	require.NoError(t, f("127.0.0.1"))
	require.NoError(t, f("localhost"))
	require.Error(t, f("elsewhere.example"))
}

func TestFreePorts(t *testing.T) {
	seen := map[int]bool{}
	for _, port := range append(FreePorts(t, 50), FreePorts(t, 50)...) {
		require.False(t, seen[port])
		seen[port] = true
		l, err := net.Listen("tcp", address(port))
		require.NoError(t, err)
		require.NoError(t, l.Close())
	}
	require.Len(t, seen, 100)
}

// BenchmarkRedis verifies that benchmarks get the same servers.
func BenchmarkRedis(b *testing.B) {
	c := Redis(b, Options{}).Client()
	for b.Loop() {
		if err := c.Ping(b.Context()).Err(); err != nil {
			b.Fatal(err)
		}
	}
}
