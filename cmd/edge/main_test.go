package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-edge/weir/internal/edge"
	"github.com/weir-edge/weir/internal/edge/config"
	"github.com/weir-edge/weir/internal/testenv"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"),
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"))
}

// output is written by the program and read by the test at the same time.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

func files(t *testing.T, config, rules string) string {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "edge.yaml")
	rulesFile := filepath.Join(dir, "rules.yaml")
	require.NoError(t, os.WriteFile(file, []byte(strings.ReplaceAll(config, "RULES", rulesFile)), 0o600))
	require.NoError(t, os.WriteFile(rulesFile, []byte(rules), 0o600))
	return file
}

const (
	goodConfig = "upstreams: [{url: \"http://127.0.0.1:9000\"}]\nstore: {kind: memory}\nrules: {file: RULES}\n"
	goodRules  = "rules: [{id: a, key: [client_ip], limit: 10, window: 10s}]"
)

func TestCommandLine(t *testing.T) {
	good := files(t, goodConfig, goodRules)
	badRules := files(t, goodConfig, "rules: [{id: a, key: [client_ip], limit: 0, window: 10s}]")
	oddPath := files(t, goodConfig, "rules: [{id: a, match: {paths: ['/a;b']}, key: [client_ip], limit: 1, window: 10s}]")
	badConfig := files(t, goodConfig+"listen: {public: nowhere}\n", goodRules)
	badURL := files(t, strings.Replace(goodConfig, "http://127.0.0.1:9000", "127.0.0.1:9000", 1), goodRules)
	consul := strings.Replace(goodConfig, "rules: {file: RULES}", "node: {region: eu-west, pop: ams1}\nrules: {source: consul, cache: CACHE}", 1)
	consulConfig := files(t, strings.Replace(consul, "CACHE", "/does/not/exist", 1), "")
	badCache := files(t, strings.Replace(consul, "CACHE", "RULES", 1), "junk")
	f := func(args []string, status int, stdout, stderr string) {
		t.Helper()
		var out, errs output
		err := run(t.Context(), args, &out, &errs)
		if status == 2 {
			require.ErrorIs(t, err, errUsage, "%v: main turns it into exit status 2", args)
		} else {
			require.NoError(t, err, "%v", args)
		}
		require.Contains(t, out.String(), stdout, "%v", args)
		require.Contains(t, errs.String(), stderr, "%v", args)
		if stdout == "" {
			require.Empty(t, out.String(), "%v", args)
		}
	}
	for _, help := range []string{"-help", "--help", "-h"} {
		f([]string{help}, 0, "edge -dev                  try it", "")
		f([]string{help}, 0, "-config FILE\n", "")
	}
	f([]string{"-version"}, 0, "weir edge ", "")
	f([]string{"-check", "-config", good}, 0, "configuration and rules are good\n", "")
	f([]string{"-check", "-config", oddPath}, 0, "configuration and rules are good\n", `edge: warning: rule a: match.paths[0]: other origins read "/a;b" as "/a"`)
	inClear := files(t, goodConfig+"listen: {admin: \"0.0.0.0:8081\", admin_token_file: RULES}\n", goodRules)
	f([]string{"-check", "-config", inClear}, 0, "configuration and rules are good\n", "edge: warning: listen.admin: the token travels in the clear to 0.0.0.0:8081; set listen.admin_tls\n")
	f([]string{"-check", "-config", consulConfig}, 0, "configuration and cached rules, if any, are good; consul was not asked\n", "")
	f([]string{"-check", "-config", badCache}, 2, "", "edge.yaml:4: rules.cache: ")
	f([]string{"-check", "-config", badRules}, 2, "", "rules.yaml:1: rules[0].limit: must be between 1 and")
	f([]string{"-check", "-config", badConfig}, 2, "", `edge.yaml:4: listen.public: must be host:port (got "nowhere")`)
	f([]string{"-check", "-config", badURL}, 2, "", `upstreams[0].url "127.0.0.1:9000": `)
	// Every fault of the file at once, of its URLs and rules too, or else of all that it names. Each has its line.
	wrongRules := "rules:\n- {id: a, key: [client_ip], limit: 0, window: 10s}\n- {id: b, key: [client_ip], limit: 1, window: 0s}\n"
	wrongFile := files(t, strings.Replace(goodConfig, "[{", "[{url: \"ftp://a\"}, {", 1)+"documents: {verify_keys: [RULES]}\nlisten: {public: nowhere, amdin: x}\n", wrongRules)
	wrongNamed := files(t, strings.Replace(goodConfig, "[{", "[{url: \"ftp://a\"}, {url: \"http://b\"}, {url: \"ftp://c\"}, {", 1)+"listen: {tls: {cert_file: RULES, key_file: RULES}}\n", wrongRules)
	for file, faults := range map[string][]string{
		wrongFile:  {`edge.yaml:1: upstreams[0].url "ftp://a": `, "edge.yaml:5: listen.amdin: ", "edge.yaml:4: documents.verify_keys: ", "edge.yaml:5: listen.public: ", "rules.yaml:2: rules[0].limit: ", "rules.yaml:3: rules[1].window: "},
		wrongNamed: {`edge.yaml:1: upstreams[0].url "ftp://a": `, `edge.yaml:1: upstreams[2].url "ftp://c": `, "edge.yaml:4: listen.tls: ", "rules.yaml:2: rules[0].limit: ", "rules.yaml:3: rules[1].window: "},
	} {
		for _, fault := range faults {
			f([]string{"-check", "-config", file}, 2, "", fault)
		}
	}
	both := files(t, goodConfig+"listen: {public: nowhere}\n", "rules: [{id: a, key: [client_ip], limit: 0, window: 10s}]")
	f([]string{"-check", "-config", both}, 2, "", `edge.yaml:4: listen.public: must be host:port (got "nowhere")`)
	f([]string{"-check", "-config", both}, 2, "", "rules.yaml:1: rules[0].limit: ")
	f([]string{"-config", badConfig}, 2, "", `edge.yaml:4: listen.public: must be host:port (got "nowhere")`)
	f([]string{"-config", badRules}, 2, "", "edge: rules refused: rules[0].limit: must be between 1 and")
	f([]string{"-check", "-config", "/does/not/exist"}, 2, "", "edge: read configuration: open /does/not/exist")
	f([]string{"-check"}, 2, "", "name a configuration with -config FILE, or try edge -dev")
	f(nil, 2, "", "name a configuration with -config FILE, or try edge -dev")
	f([]string{"-conifg", "x"}, 2, "", "edge: flag provided but not defined: -conifg; edge --help lists the flags\n")
	f([]string{"-dev=perhaps"}, 2, "", `edge: invalid boolean value "perhaps" for -dev: `)
	f([]string{"serve"}, 2, "", `unexpected argument "serve"; see edge -help`)
	f([]string{"-dev", "-config", good}, 2, "", "-dev brings its own configuration; leave -config and -check out")
	f([]string{"-overload", "-dev"}, 2, "", "-overload needs a node of edge -dev in another terminal")
	f([]string{"-dev", "-check"}, 2, "", "-dev brings its own configuration; leave -config and -check out")
}

// -dev on free ports: its own may be in use by someone who tries it.
func TestDev(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	origin, err := edge.StartOrigin(ctx, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	c := config.Dev(origin)
	require.Equal(t, "127.0.0.1:8080", c.Listen.Public)
	require.Equal(t, "127.0.0.1:8081", c.Listen.Admin)
	c.Listen.Public, c.Listen.Admin = "127.0.0.1:0", "127.0.0.1:0"

	var errs output
	addr, ended := make(chan string, 1), make(chan error, 1)
	go func() {
		ended <- serve(ctx, c, config.SampleRules, &errs, func(public, _ net.Addr) { addr <- public.String() })
	}()
	url := "http://" + <-addr + "/hello"
	client := &http.Client{Transport: &http.Transport{}, Timeout: testenv.Patience}
	defer client.CloseIdleConnections()
	for i := range 11 {
		resp, err := client.Get(url)
		require.NoError(t, err)
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		resp.Body.Close()
		if i < 10 {
			require.Equal(t, 200, resp.StatusCode)
			require.Equal(t, "hello from the origin: GET /hello\n", string(body))
			continue
		}
		require.Equal(t, 429, resp.StatusCode, "the 11th in ten seconds")
		require.NotEmpty(t, resp.Header.Get("X-RateLimit-Limit"))
	}
	cancel() // what a signal does
	require.Less(t, c.Shutdown.Delay+c.Shutdown.Timeout, 5*time.Second, "the longest that it may take")
	require.NoError(t, <-ended)
	require.Contains(t, errs.String(), `"msg":"drained"`)
}

func TestOverloadNeedsANodeOfDev(t *testing.T) {
	nothing := fmt.Sprintf("127.0.0.1:%d", testenv.FreePorts(t, 1)[0])
	require.ErrorContains(t, overload(t.Context(), nothing, io.Discard), "connection refused; run edge -dev in another terminal")
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	require.ErrorContains(t, overload(t.Context(), other.Listener.Addr().String(), io.Discard), "answered 404 Not Found, so it is no node of edge -dev")
}

// A service is ready when it accepts connections.
func TestNotifiesSystemd(t *testing.T) {
	manager := testenv.StartSystemd(t, t.TempDir())
	t.Setenv("NOTIFY_SOCKET", manager.Socket)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := config.Dev("127.0.0.1:9")
	ports := testenv.FreePorts(t, 2)
	c.Listen.Public, c.Listen.Admin = fmt.Sprintf("127.0.0.1:%d", ports[0]), fmt.Sprintf("127.0.0.1:%d", ports[1])
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, c, config.SampleRules, io.Discard, nil) }()
	require.Equal(t, "READY=1", manager.Next())
	conn, err := net.Dial("tcp", c.Listen.Public)
	require.NoError(t, err)
	require.NoError(t, conn.Close())
	cancel()
	require.Equal(t, "STOPPING=1", manager.Next())
	require.NoError(t, <-ended)
}

func TestDevSaysWhatToDoIfItsAddressIsInUse(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	c := config.Dev("127.0.0.1:9")
	c.Listen.Public, c.Listen.Admin = taken.Addr().String(), "127.0.0.1:0"
	err = inUse(serve(t.Context(), c, config.SampleRules, io.Discard, nil))
	require.ErrorContains(t, err, "listen.public: listen tcp "+taken.Addr().String()+": bind: address already in use; stop the program that uses it (")
	require.ErrorContains(t, err, "or use another address: set listen.public ")
	require.NoError(t, inUse(nil))
	require.Equal(t, io.EOF, inUse(io.EOF))
}

// The program itself, from -dev to a signal. It says how to try it, or why it cannot
// run; which of the two depends on who else has its ports.
func TestDevStopsOnASignal(t *testing.T) {
	cmd := exec.Command(testenv.Program(t, "edge"), "-dev")
	var errs output
	cmd.Stderr = &errs
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	watchdog := time.AfterFunc(testenv.Patience, func() { _ = cmd.Process.Kill() })
	defer watchdog.Stop()

	var hint strings.Builder
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		hint.WriteString(lines.Text() + "\n")
		if strings.HasPrefix(lines.Text(), "Ctrl-C stops it.") {
			require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
		}
	}
	err = cmd.Wait()
	if strings.Contains(errs.String(), "address already in use") {
		require.Equal(t, 1, cmd.ProcessState.ExitCode())
		require.Regexp(t, "edge: listen\\.(public|admin): .*; stop the program that uses it ", errs.String())
		return
	}
	require.NoError(t, err, errs.String())
	require.Contains(t, hint.String(), "curl -i http://127.0.0.1:8080/hello")
	require.Contains(t, errs.String(), `"msg":"drained"`)
}
