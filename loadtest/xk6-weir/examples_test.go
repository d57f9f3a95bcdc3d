package weir

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/stretchr/testify/require"
)

// built builds a program of the repository; Go's cache makes it quick.
func built(t *testing.T, dir, pkg string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), filepath.Base(pkg))
	cmd := exec.Command("go", "build", "-o", out, pkg)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0")
	text, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", text)
	return out
}

// freeAddress returns an address that no other test gets until t ends. Its port is below those
// of outgoing connections, and an abstract socket claims it, as testenv.FreePorts does.
func freeAddress(t *testing.T) string {
	t.Helper()
	for range 1000 {
		port := 10000 + rand.IntN(32768-10000)
		claim, err := net.Listen("unix", fmt.Sprintf("@weir-testenv-port-%d", port))
		if err != nil {
			continue
		}
		t.Cleanup(func() { _ = claim.Close() })
		addr := fmt.Sprintf("127.0.0.1:%d", port)
		if ln, err := net.Listen("tcp", addr); err == nil {
			require.NoError(t, ln.Close())
			return addr
		}
	}
	t.Fatal("no port is free")
	return ""
}

// startEdge starts a real edge with the memory store and this configuration, in front of an
// origin that greets. It returns the address of each of its listeners by the one in the configuration.
func startEdge(t *testing.T, program, config string) map[string]string {
	t.Helper()
	origin, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Behavior-Risk", r.Header.Get("Weir-Risk")) // as that of the lab
		if status, err := strconv.Atoi(r.Header.Get("X-Behavior-Status")); err == nil {
			w.WriteHeader(status)
		}
		fmt.Fprintln(w, "hello")
	})}
	go func() { _ = server.Serve(origin) }()
	t.Cleanup(func() { _ = server.Close() })

	dir := t.TempDir()
	for _, name := range []string{"rules.yaml", "behavior-rules.yaml", "behavior-policy.yaml"} {
		rules, err := os.ReadFile(filepath.Join("examples", name))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), rules, 0o600))
	}
	text, err := os.ReadFile(filepath.Join("examples", config))
	require.NoError(t, err)
	command := regexp.MustCompile("(?m)^# (openssl .*)").FindSubmatch(text)
	addrs := map[string]string{"127.0.0.1:9000": origin.Addr().String()}
	text = regexp.MustCompile(`127\.0\.0\.1:\d+`).ReplaceAllFunc(text, func(fixed []byte) []byte {
		if addrs[string(fixed)] == "" {
			addrs[string(fixed)] = freeAddress(t)
		}
		return []byte(addrs[string(fixed)])
	})
	if command != nil {
		args := strings.Fields(string(command[1]))
		openssl := exec.Command(args[0], args[1:]...)
		openssl.Dir = dir
		out, err := openssl.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "edge.yaml"), text, 0o600))
	var log bytes.Buffer
	cmd := exec.Command(program, "-config", "edge.yaml")
	cmd.Dir, cmd.Stderr = dir, &log
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(log.String())
		}
	})
	require.Eventually(t, func() bool {
		resp, err := http.Get("http://" + addrs["127.0.0.1:8081"] + "/readyz")
		if err == nil {
			_ = resp.Body.Close()
		}
		return err == nil && resp.StatusCode == http.StatusOK
	}, time.Minute, 20*time.Millisecond)
	return addrs
}

// run runs an example and returns its output and exit status.
func run(t *testing.T, k6, script string, env ...string) (stdout, stderr string, status int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, k6, "run", "--no-usage-report", "--address", "", "--quiet", filepath.Join("examples", script))
	cmd.Env = append(os.Environ(), append(env, "DURATION=4s")...)
	var out, err bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &err
	var exit *exec.ExitError
	if failed := cmd.Run(); errors.As(failed, &exit) {
		status = exit.ExitCode()
	} else {
		require.NoError(t, failed)
	}
	return out.String(), err.String(), status
}

type reported struct {
	Report []struct {
		Region, Rule                                    string
		Admitted, Refused, Overadmitted, WronglyRefused int
		RetryChecked, RetryWrong                        int
		Worst                                           struct{ Excess int }
	}
}

func report(t *testing.T, stdout string) (r reported) {
	t.Helper()
	line := stdout[strings.Index(stdout, "{"):]
	require.NoError(t, json.NewDecoder(strings.NewReader(line)).Decode(&r), stdout)
	return r
}

// Every example, with the real k6 against a real edge.
func TestExamples(t *testing.T) {
	k6, edge := built(t, ".", "./cmd/k6"), built(t, "../..", "./cmd/edge")
	addrs := startEdge(t, edge, "edge.yaml")
	public := addrs["127.0.0.1:8080"]
	url := "URL=http://" + public

	t.Run("steady", func(t *testing.T) {
		out, stderr, status := run(t, k6, "steady.js", url, "RUN=1")
		require.Zero(t, status, out+stderr)
		r := report(t, out).Report
		require.Len(t, r, 1)
		require.Equal(t, "eu-west", r[0].Region)
		require.Greater(t, r[0].Admitted, 100)
		require.Greater(t, r[0].Refused, 50)
		require.Greater(t, r[0].RetryChecked, 50)
		require.Zero(t, r[0].Overadmitted+r[0].WronglyRefused+r[0].RetryWrong)
	})
	t.Run("decide", func(t *testing.T) {
		out, stderr, status := run(t, k6, "decide.js", url, "DECIDE=http://"+addrs["127.0.0.1:8083"], "RUN=4")
		require.Zero(t, status, out+stderr)
		r := report(t, out).Report
		require.Len(t, r, 1)
		require.Greater(t, r[0].Admitted, 100)
		require.Greater(t, r[0].Refused, 50)
	})
	t.Run("http2", func(t *testing.T) {
		addrs := startEdge(t, edge, "edge-tls.yaml")
		out, stderr, status := run(t, k6, "http2.js", "URL=https://"+addrs["127.0.0.1:8443"], "RUN=5")
		require.Zero(t, status, out+stderr)
		r := report(t, out).Report
		require.Len(t, r, 1)
		require.Greater(t, r[0].Admitted, 100)
		require.Greater(t, r[0].Refused, 20)
	})
	t.Run("behavior", func(t *testing.T) {
		addrs := startEdge(t, edge, "edge-behavior.yaml")
		out, stderr, status := run(t, k6, "behavior.js", "URL=http://"+addrs["127.0.0.1:8080"], "SECONDS=24", "WITHIN=20")
		require.Zero(t, status, out+stderr)
		// Static limits detect nobody, and the thresholds say so.
		out, stderr, status = run(t, k6, "behavior.js", url, "SECONDS=4", "WITHIN=3")
		require.Equal(t, 99, status, out+stderr)
	})
	t.Run("shadow is caught", func(t *testing.T) {
		out, stderr, status := run(t, k6, "shadow.js", url, "RUN=2")
		require.Equal(t, 99, status, out+stderr) // a threshold failed
		r := report(t, out).Report
		require.Len(t, r, 1)
		require.Greater(t, r[0].Overadmitted, 100)
		require.Positive(t, r[0].Worst.Excess)
	})
	t.Run("bots", func(t *testing.T) {
		out, stderr, status := run(t, k6, "bots.js", url, "RUN=3")
		require.Zero(t, status, out+stderr)
	})
	t.Run("replay", func(t *testing.T) {
		out, stderr, _ := run(t, k6, "replay.js", url, "SPEED=2")
		require.Contains(t, stderr+out, "the log has ended")
	})
	t.Run("regions", func(t *testing.T) {
		_, port, err := net.SplitHostPort(public)
		require.NoError(t, err)
		// Nothing listens at the first address: the client falls back to the second.
		server := nameserver(t, func(q *dns.Msg) []string {
			return []string{"edge.example.com. 1 A 127.0.0.99", "edge.example.com. 1 A 127.0.0.1"}
		})
		out, stderr, status := run(t, k6, "regions.js", "URL=http://edge.example.com:"+port, "DNS="+server)
		require.Zero(t, status, out+stderr)
		require.Contains(t, out, "weir_connect_errors")
		require.Contains(t, out, "weir_dns_duration")
	})
}

// nameserver answers every question with these records.
func nameserver(t *testing.T, f func(q *dns.Msg) []string) string {
	t.Helper()
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &dns.Server{PacketConn: pc, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg)
		m.SetReply(q)
		for _, text := range f(q) {
			if rr, err := dns.NewRR(text); err == nil {
				m.Answer = append(m.Answer, rr)
			}
		}
		_ = w.WriteMsg(m)
	})}
	go func() { _ = s.ActivateAndServe() }()
	t.Cleanup(func() { _ = s.Shutdown() })
	return pc.LocalAddr().String()
}
