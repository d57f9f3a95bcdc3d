package terraform_test

import (
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

// clients send requests through a load balancer, until stop is closed.
type clients struct {
	to             atomic.Value // the edge that new connections go to
	answers, moved atomic.Int64
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
	if answer.Close {
		c.moved.Add(1)
	}
}

// client has a connection of its own.
func (c *clients) client() *http.Client {
	return &http.Client{Transport: &http.Transport{Dial: func(string, string) (net.Conn, error) { return net.Dial("tcp", c.to.Load().(string)) }}}
}

// An edge that the autoscaling group terminates finishes its requests before the group goes on, and
// no client notices.
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
	config := fmt.Sprintf("upstreams: [{url: %q}]\nstore: {kind: memory}\nshutdown: {delay: 1s, timeout: 30s}\n", origin.URL)
	ending, other := testenv.Edge(t, config, "rules: []"), testenv.Edge(t, config, "rules: []")

	var c clients
	c.to.Store(ending.Public)
	stop := make(chan struct{})
	var running, slow sync.WaitGroup
	for range 8 {
		running.Go(func() {
			for client := c.client(); ; c.get(client, "/") {
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

	var state atomic.Value
	state.Store("InService")
	require.NoError(t, os.Remove(filepath.Join(m.bin, "curl")))
	for name, script := range map[string]string{
		"systemctl": `[ "$*" = "stop weir-edge.service" ] && kill -TERM "$EDGE" && while kill -0 "$EDGE" 2>/dev/null; do sleep 0.05; done`,
		"aws":       `! kill -0 "$EDGE" 2>/dev/null && echo "$@" >>"$WEIR_ROOT/told"`,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(m.bin, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755))
	}
	drain := exec.Command(filepath.Join(m.root, "usr/local/lib/weir/drain"))
	drain.Env = append(m.env, "METADATA="+metadata(t, &state), "PAUSE=0.05", fmt.Sprintf("EDGE=%d", ending.Pid()))
	for line := range strings.Lines(m.read("/etc/weir/drain.env")) {
		drain.Env = append(drain.Env, strings.TrimSpace(line))
	}
	var log strings.Builder
	drain.Stdout, drain.Stderr = &log, &log
	require.NoError(t, drain.Start())
	before := c.answers.Load()
	require.Eventually(t, func() bool { return c.answers.Load() > before+100 }, testenv.Patience, 10*time.Millisecond)
	require.Zero(t, c.moved.Load(), "nobody asked for it")

	c.to.Store(other.Public) // deregistered: the load balancer opens no new connections
	state.Store("Terminated")
	require.Eventually(t, func() bool { return c.moved.Load() == 8 }, testenv.Patience, 10*time.Millisecond)
	close(finish)
	slow.Wait()
	require.NoError(t, drain.Wait(), "%s", &log)
	close(stop)
	running.Wait()
	require.Empty(t, c.lost)
	require.Equal(t, "autoscaling complete-lifecycle-action --region eu-west-1 --auto-scaling-group-name weir-eu-west-edge"+
		" --lifecycle-hook-name drained --instance-id "+id+" --lifecycle-action-result CONTINUE\n", m.read("told"))
}

// The group waits for the drain longer than it takes, and the load balancer cuts nothing off before.
func TestGroupWaitsForDrain(t *testing.T) {
	m := load(t, filepath.Join("modules", "region"))
	hook := m.text(m.resources["aws_autoscaling_lifecycle_hook.edge"].Body.Range())
	for _, want := range []string{`name = "drained"`, `lifecycle_transition = "autoscaling:EC2_INSTANCE_TERMINATING"`, `default_result = "CONTINUE"`, "heartbeat_timeout = 300"} {
		require.Contains(t, hook, want)
	}
	require.Contains(t, m.text(m.resources["aws_lb_target_group.edge"].Body.Range()), "connection_termination = false")
}
