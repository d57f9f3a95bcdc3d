package terraform_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
)

// metadata answers as an instance's metadata service.
func metadata(t *testing.T, state *atomic.Value) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodPut && r.URL.Path == "/latest/api/token":
			_, _ = io.WriteString(w, "token")
		case r.Header.Get("X-aws-ec2-metadata-token") != "token":
			w.WriteHeader(http.StatusUnauthorized)
		case r.URL.Path == "/latest/meta-data/autoscaling/target-lifecycle-state":
			_, _ = io.WriteString(w, state.Load().(string))
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL + "/latest"
}

// clients send requests through a load balancer, which opens connections to the ending edge until it
// has deregistered it.
type clients struct {
	ending, other  string
	deregistered   atomic.Bool
	answers, moved atomic.Int64 // moved: connections to the other edge
	mu             sync.Mutex
	lost           []error
}

func (c *clients) get(client *http.Client, path string) {
	answer, err := client.Get("http://edge.example.com" + path)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s", answer.Status)
	}
	if err == nil {
		_, err = io.Copy(io.Discard, answer.Body)
		_ = answer.Body.Close()
	}
	if err != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.lost = append(c.lost, err)
		return
	}
	c.answers.Add(1)
}

// client has a connection of its own.
func (c *clients) client() *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		if !c.deregistered.Load() {
			return net.Dial("tcp", c.ending)
		}
		c.moved.Add(1)
		return net.Dial("tcp", c.other)
	}}}
}

// An edge that the autoscaling group terminates serves until the load balancer has deregistered it, and
// finishes its requests before the group goes on. No client notices.
func TestEdgeDrains(t *testing.T) {
	m := machine(t, regionOutputs(t), "edge")
	begun, finish := make(chan struct{}), make(chan struct{})
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			close(begun)
			<-finish
		}
	}))
	t.Cleanup(origin.Close)
	config := fmt.Sprintf("upstreams: [{url: %q}]\nstore: {kind: memory}\nshutdown: {delay: 1s, timeout: 59s}\n", origin.URL)
	ending, other := testenv.Edge(t, config, "rules: []"), testenv.Edge(t, config, "rules: []")

	c := clients{ending: ending.Public, other: other.Public}
	stop := make(chan struct{})
	var connected, running, slow sync.WaitGroup
	for range 8 {
		connected.Add(1)
		running.Go(func() {
			client := c.client()
			c.get(client, "/")
			for connected.Done(); ; c.get(client, "/") {
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	slow.Go(func() { c.get(c.client(), "/slow") })
	<-begun
	connected.Wait()

	var state atomic.Value
	state.Store("InService")
	require.NoError(t, os.Remove(filepath.Join(m.bin, "curl")))
	for name, script := range map[string]string{
		"sleep":     `if [ "$1" = 120 ]; then touch "$WEIR_ROOT/deregistering"; while [ ! -e "$WEIR_ROOT/deregistered" ]; do "$SLEEP" 0.05; done; else exec "$SLEEP" "$@"; fi`,
		"systemctl": `[ "$*" = "stop weir-edge.service" ] && kill -TERM "$EDGE" && while kill -0 "$EDGE" 2>/dev/null; do sleep 0.05; done`,
		"aws":       `[ -e "$WEIR_ROOT/hook" ] || { touch "$WEIR_ROOT/hook"; exit 254; }; ! kill -0 "$EDGE" 2>/dev/null && echo "$@" >>"$WEIR_ROOT/completed"`,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(m.bin, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755))
	}
	sleep, err := exec.LookPath("sleep")
	require.NoError(t, err)
	drain := exec.Command(filepath.Join(m.root, "usr/local/lib/weir/drain"))
	drain.Env = append(m.env, "METADATA="+metadata(t, &state), "PAUSE=0.05", "SLEEP="+sleep, fmt.Sprintf("EDGE=%d", ending.Pid()))
	for line := range strings.Lines(m.read("/etc/weir/drain.env")) {
		drain.Env = append(drain.Env, strings.TrimSpace(line))
	}
	var log strings.Builder
	drain.Stdout, drain.Stderr = &log, &log
	require.NoError(t, drain.Start())
	serves := func(why string) {
		t.Helper()
		before := c.answers.Load()
		require.Eventually(t, func() bool { return c.answers.Load() > before+100 }, testenv.Patience, 10*time.Millisecond)
		require.Zero(t, c.moved.Load(), why)
	}
	serves("the group terminates nothing")

	state.Store("Terminated")
	require.Eventually(t, func() bool {
		_, err := os.Stat(filepath.Join(m.root, "deregistering"))
		return err == nil
	}, testenv.Patience, 10*time.Millisecond, "the edge is not stopped at once")
	c.deregistered.Store(true)
	serves("the load balancer may still open connections")
	m.write("deregistered", "", 0o600)
	require.Eventually(t, func() bool { return c.moved.Load() == 8 }, testenv.Patience, 10*time.Millisecond)
	close(finish)
	slow.Wait()
	require.NoError(t, drain.Wait(), "%s", &log)
	close(stop)
	running.Wait()
	require.Empty(t, c.lost)
	require.Equal(t, "autoscaling complete-lifecycle-action --region eu-west-1 --auto-scaling-group-name weir-eu-west-edge"+
		" --lifecycle-hook-name drained --instance-id "+id+" --lifecycle-action-result CONTINUE\n", m.read("completed"))
}

// The group waits for the drain longer than it takes, and the load balancer cuts nothing off before.
func TestGroupWaitsForDrain(t *testing.T) {
	m := load(t, filepath.Join("modules", "region"))
	hook := m.text(m.resources["aws_autoscaling_lifecycle_hook.edge"].Body.Range())
	for _, want := range []string{`name = "drained"`, `lifecycle_transition = "autoscaling:EC2_INSTANCE_TERMINATING"`, `default_result = "CONTINUE"`, "heartbeat_timeout = 300"} {
		require.Contains(t, hook, want)
	}
	target := m.text(m.resources["aws_lb_target_group.edge"].Body.Range())
	require.Contains(t, target, "connection_termination = false")
	require.Contains(t, target, "deregistration_delay = local.deregistration_delay")
	require.Equal(t, "120", m.text(m.locals["deregistration_delay"].Expr.Range()), "and a minute of weir-edge.service, of the hook's 300 s")
}
