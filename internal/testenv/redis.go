package testenv

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/require"
)

// Options are the same for every server of an environment.
type Options struct {
	// TLS leaves no plain port open, not even between the servers.
	TLS bool
	// Files are the certificate to show with TLS; empty: a new one.
	Files TLSFiles
	// User and Password are an ACL user that may do everything; the default user is then
	// off. A Password alone becomes requirepass. Sentinels do not require them; they use
	// them to reach the servers. No spaces or quotes.
	User, Password string
	// Args are more lines of redis.conf, such as "maxmemory 10mb". They come last and so
	// take precedence; sentinels do not get them.
	Args []string
	// Island is where the first master of a cluster runs; all others run where the test
	// does. The test always reaches it, even while the cables are cut.
	Island *Island
	// Clock is the servers' wall clock; nil: the machine's.
	Clock *Clock
}

// Server is one Redis server or sentinel. Nothing is stored on disk, so Start after Kill
// gives an empty server (in a cluster: an empty node that knows its place).
type Server struct {
	Addr string // 127.0.0.1:port

	t         testing.TB
	role      string // "redis" or "sentinel": names the files, and determines how to run
	dir       string
	opts      Options
	tls       TLSFiles
	tlsConfig *tls.Config
	client    *redis.Client

	mu        sync.Mutex
	proc      *process
	suspended bool
}

// Redis starts one server and waits until it answers.
func Redis(t testing.TB, o Options) *Server {
	t.Helper()
	s := newServer(t, "redis", FreePorts(t, 1)[0], o, certificatesFor(t, o), nil)
	s.Start()
	return s
}

func certificatesFor(t testing.TB, o Options) TLSFiles {
	t.Helper()
	if !o.TLS || o.Files.CertFile != "" {
		return o.Files
	}
	return Certificates(t)
}

// newServer writes the configuration once: sentinels and CONFIG REWRITE change the file,
// and a restart must find their changes.
func newServer(t testing.TB, role string, port int, o Options, files TLSFiles, conf []string) *Server {
	t.Helper()
	s := &Server{Addr: address(port), t: t, role: role, dir: t.TempDir(), opts: o, tls: files}
	all := []string{"bind 127.0.0.1"}
	if o.TLS {
		s.tlsConfig = files.ClientConfig(t)
		all = append(all, "port 0", fmt.Sprintf("tls-port %d", port),
			fmt.Sprintf("tls-ca-cert-file %q", files.CAFile),
			fmt.Sprintf("tls-cert-file %q", files.CertFile),
			fmt.Sprintf("tls-key-file %q", files.KeyFile),
			"tls-auth-clients no", "tls-replication yes", "tls-cluster yes")
	} else {
		all = append(all, fmt.Sprintf("port %d", port))
	}
	if role == "redis" {
		all = append(all, `save ""`, "appendonly no", "repl-diskless-sync yes", "repl-diskless-sync-delay 0")
		all = append(all, o.credentials()...)
	}
	all = append(append(all, conf...), o.Args...)
	require.NoError(t, os.WriteFile(s.file("conf"), []byte(strings.Join(all, "\n")+"\n"), 0o600))

	s.client = redis.NewClient(&redis.Options{
		Addr: s.Addr, Dialer: dialer(o), Username: o.User, Password: o.Password, TLSConfig: s.tlsConfig,
		// A stopped server must not delay a poll for long.
		DialTimeout: time.Second, ReadTimeout: 2 * time.Second, DialerRetries: 1, MaxRetries: 1,
		// Redis 7.0 does not support these, and sentinels refuse them.
		Protocol: 2, DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	t.Cleanup(func() {
		s.client.Close()
		s.Kill()
	})
	return s
}

func dialer(o Options) func(context.Context, string, string) (net.Conn, error) {
	if o.Island == nil {
		return nil
	}
	return o.Island.dial // such environments have no TLS
}

func (o Options) credentials() []string {
	switch {
	case o.User != "":
		return []string{
			"user default off",
			fmt.Sprintf("user %s on >%s ~* &* +@all", o.User, o.Password),
			"masteruser " + o.User, "masterauth " + o.Password,
		}
	case o.Password != "":
		return []string{"requirepass " + o.Password, "masterauth " + o.Password}
	}
	return nil
}

func (s *Server) file(ext string) string { return filepath.Join(s.dir, s.role+"."+ext) }

// Start restarts the server on its port and in its directory, and waits until it answers.
// It does nothing if the server is running.
func (s *Server) Start() {
	s.t.Helper()
	s.launch()
	s.waitReady()
}

// launch does not wait, so that an environment's servers start in parallel.
func (s *Server) launch() {
	s.t.Helper()
	binary, err := exec.LookPath("redis-server")
	if err != nil {
		s.t.Fatalf("redis-server not found: apt-get install redis-server")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc != nil && !s.proc.gone() {
		return
	}
	args := []string{s.file("conf")}
	if s.role == "sentinel" {
		args = append(args, "--sentinel")
	}
	if s.proc, err = s.opts.Island.startProcess(s.dir, s.file("log"), s.opts.Clock.runs(s.t, binary), args...); err != nil {
		s.proc = nil
		s.t.Fatalf("testenv: start %s: %v", binary, err)
	}
	s.suspended = false
}

// startAll starts servers at the same time.
func startAll(servers []*Server) {
	for _, s := range servers {
		s.launch()
	}
	for _, s := range servers {
		s.waitReady()
	}
}

func (s *Server) waitReady() {
	s.t.Helper()
	s.wait("answer", func() error {
		if !s.alive() {
			return errGone
		}
		// The client logs every refused dial, and after a few of them retries only once a
		// second.
		conn, err := net.DialTimeout("tcp", s.Addr, time.Second)
		if err != nil {
			return err
		}
		conn.Close()
		if s.role == "sentinel" {
			return s.client.Do(context.Background(), sentinelPeriods...).Err()
		}
		return s.client.Ping(context.Background()).Err()
	})
}

// wait fails the test with the server's log if ready does not succeed.
func (s *Server) wait(what string, ready func() error) {
	s.t.Helper()
	if err := poll(Patience, ready); err != nil {
		s.t.Fatalf("testenv: %s %s does not %s: %v\n%s", s.role, s.Addr, what, err, lastLines(s.file("log"), 20))
	}
}

// Kill ends the server like kill -9 and returns when the process is gone. It does nothing
// if the server is not running.
func (s *Server) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc != nil {
		s.proc.kill()
	}
}

// Suspend stops the server with SIGSTOP: connections stay open, and the kernel
// accepts new ones, but nothing answers.
func (s *Server) Suspend() { s.t.Helper(); s.stopOrContinue(syscall.SIGSTOP) }

func (s *Server) Resume() { s.t.Helper(); s.stopOrContinue(syscall.SIGCONT) }

func (s *Server) stopOrContinue(sig syscall.Signal) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	err := errors.New("it was never started")
	if s.proc != nil {
		err = s.proc.signal(sig)
	}
	if err != nil {
		s.t.Fatalf("testenv: %v for %s %s: %v", sig, s.role, s.Addr, err)
	}
	s.suspended = sig == syscall.SIGSTOP
}

// alive reports whether the server can be expected to answer.
func (s *Server) alive() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc != nil && !s.proc.gone() && !s.suspended
}

// Client returns the administrator's connection to this server, the same one at every
// call. It retries once, so use your own client to count failures.
func (s *Server) Client() *redis.Client { return s.client }

// TLS returns the server's files, empty without Options.TLS.
func (s *Server) TLS() TLSFiles { return s.tls }

// TLSConfig returns a copy of what a client needs, nil without Options.TLS.
func (s *Server) TLSConfig() *tls.Config { return s.tlsConfig.Clone() }

// CommandCalls sums how often these commands ran since the server started, by INFO
// commandstats: lower-case names, subcommands as "script|load". It includes commands that
// scripts call and failed calls, but not rejected ones.
func (s *Server) CommandCalls(names ...string) int64 {
	s.t.Helper()
	info, err := s.info("commandstats")
	require.NoError(s.t, err)
	var sum int64
	for _, name := range names {
		calls, _, _ := strings.Cut(strings.TrimPrefix(info["cmdstat_"+name], "calls="), ",")
		if calls == "" {
			continue // never called
		}
		n, err := strconv.ParseInt(calls, 10, 64)
		if err != nil {
			s.t.Fatalf("testenv: commandstats of %s: %v", name, err)
		}
		sum += n
	}
	return sum
}

func (s *Server) info(section string) (map[string]string, error) {
	text, err := s.client.Info(context.Background(), section).Result()
	if err != nil {
		return nil, fmt.Errorf("info %s of %s: %w", section, s.Addr, err)
	}
	return fields(text), nil
}

// fields parses the "name:value" lines of INFO and CLUSTER INFO.
func fields(text string) map[string]string {
	m := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			m[name] = value
		}
	}
	return m
}

// replicaSynced returns why a server does not serve as a replica yet.
func replicaSynced(s *Server) error {
	info, err := s.info("replication")
	if err != nil {
		return err
	}
	if info["role"] != "slave" || info["master_link_status"] != "up" {
		return fmt.Errorf("%s is no synced replica: role %s, link to its master %q", s.Addr, info["role"], info["master_link_status"])
	}
	return nil
}

// all returns the first error of check over the servers that can answer.
func all(servers []*Server, check func(*Server) error) error {
	for _, s := range servers {
		if !s.alive() {
			continue
		}
		if err := check(s); err != nil {
			return err
		}
	}
	return nil
}
