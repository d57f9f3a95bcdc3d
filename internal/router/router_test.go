package router

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/pkg/region"
)

func TestBindErrorsSayWhatToDo(t *testing.T) {
	for cause, want := range map[error]string{
		syscall.EACCES: "cap_net_bind_service", syscall.EADDRINUSE: "systemd-resolved", syscall.EADDRNOTAVAIL: "does not have that address",
		errors.New("else"): "else",
	} {
		require.ErrorContains(t, bindError("192.0.2.53:53", &net.OpError{Op: "listen", Err: cause}), want)
	}
}

// Each change is one line; no change is none.
func TestStateLog(t *testing.T) {
	topology, err := region.ParseTopology([]byte(`{zone: edge.example.com, regions: [{name: eu-west, pops: [{name: ams1, addresses: [203.0.113.1]}]}, {name: us-east, pops: [{name: iad1, addresses: [203.0.113.2]}]}]}`))
	require.NoError(t, err)
	var out bytes.Buffer
	s := newStateLog(slog.New(slog.NewTextHandler(&out, nil)), []string{"eu-west"}, false)
	now := time.Now()
	step := func(want int, ams region.PoPState) {
		t.Helper()
		out.Reset()
		v := region.NewView(topology, map[string]region.PoPState{"ams1": ams}, nil)
		v.At, v.Regions = now, map[string]region.RegionState{"eu-west": {Known: true, Heard: now}}
		s.changed(v)
		require.Equal(t, want, strings.Count(out.String(), "\n"), out.String())
	}
	up := region.PoPState{Healthy: true, Known: true, Nodes: 2, Passing: 2, Since: now}
	step(5, up) // the topology, us-east that nobody follows, all go to one, the region, the PoP
	require.Contains(t, out.String(), "nothing tells clients apart, so all go to eu-west")
	step(0, up)
	down := region.PoPState{Known: true, Nodes: 2, Since: now}
	step(1, down)
	require.Contains(t, out.String(), `why="0 of 2 edges pass"`)
	step(1, up)
	up.Drained = &region.Drain{Who: "ann", Why: "x", Since: now}
	step(1, up)
	step(0, up)
}

func TestUnsignedTopologyIsCounted(t *testing.T) {
	v := region.NewView(nil, nil, nil)
	v.Regions = map[string]region.RegionState{"eu": {Unsigned: true}, "us": {}}
	m := newMetrics(func() *region.View { return v }, false, func() bool { return true })
	answer := httptest.NewRecorder()
	m.handler().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	require.Contains(t, answer.Body.String(), `weir_dns_topology_unsigned{region="eu"} 1`)
	require.Contains(t, answer.Body.String(), `weir_dns_topology_unsigned{region="us"} 0`)
}
