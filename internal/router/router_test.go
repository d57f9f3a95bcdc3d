package router

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/httpconns"
	"github.com/weir-edge/weir/internal/testenv"
	"github.com/weir-edge/weir/pkg/region"
	"github.com/weir-edge/weir/pkg/region/consul"
)

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
	require.Contains(t, out.String(), "so all other clients go to eu-west")
	step(0, up)
	down := region.PoPState{Known: true, Nodes: 2, Since: now}
	step(1, down)
	require.Contains(t, out.String(), `why="0 of 2 edges pass"`)
	step(1, up)
	up.Drained = &region.Drain{Who: "ann", Why: "x", Since: now}
	step(1, up)
	step(0, up)
}

// The lines about a PoP that cannot serve all of its clients are about one that is up. Where the
// clients of a lost PoP go is no news besides its loss.
func TestStateLogOfGifts(t *testing.T) {
	topology, err := region.ParseTopology([]byte(`{zone: edge.example.com, regions: [{name: eu-west, pops: [{name: ams1, addresses: [203.0.113.1]}, {name: fra1, addresses: [203.0.113.2]}]}]}`))
	require.NoError(t, err)
	var out bytes.Buffer
	s := newStateLog(slog.New(slog.NewTextHandler(&out, nil)), []string{"eu-west"}, false)
	now := time.Now()
	step := func(ams region.PoPState, share float64) string {
		out.Reset()
		ams.Known, ams.Nodes, ams.Passing, ams.Since = true, 2, 2, now
		v := region.NewView(topology, map[string]region.PoPState{"ams1": ams, "fra1": {Healthy: true}}, nil)
		v.At, v.Regions = now, map[string]region.RegionState{"eu-west": {Known: true, Heard: now}}
		v.Spill = &region.Spill{Gifts: map[string]region.Gift{"ams1": {Own: ams.Demand, Parts: map[string]region.Part{"fra1": {Goal: share, Share: share}}}}}
		s.changed(v)
		return out.String()
	}
	full := region.PoPState{Healthy: true, Demand: 1200, Capacity: 1000}
	up, down, drained := full, full, full
	up.Demand = 600
	down.Healthy, down.Demand, down.Capacity = false, 0, 0
	drained.Drained = &region.Drain{Who: "ann", Why: "x", Since: now}
	unknown := region.PoPState{Healthy: true}

	step(up, 0)
	require.Contains(t, step(full, 0.2), `msg="pop cannot serve all of its clients; some go to others" region=eu-west pop=ams1 demand=1200 capacity=1000`)
	require.Empty(t, step(full, 0.3))
	require.Contains(t, step(up, 0), "pop serves all of its clients again")
	for _, out := range []region.PoPState{down, drained} {
		lost := step(out, 1)
		require.Equal(t, 1, strings.Count(lost, "\n"), lost)
		require.NotContains(t, lost, "clients; some")
		require.NotContains(t, step(up, 0), "serves all")
	}
	step(full, 0.2)
	require.NotContains(t, step(down, 1), "serves all", "it is down instead")
	require.NotContains(t, step(up, 0.9), "clients; some", "its clients come back gradually")
	require.Empty(t, step(up, 0.1))
	require.Contains(t, step(full, 0.1), "cannot serve all of its clients", "not all could come back")
	step(down, 1)
	step(up, 0)

	// A router that starts while they come back has not seen why they left.
	s = newStateLog(s.log, s.fleet, false)
	require.NotContains(t, step(up, 0.9), "clients; some")
	require.Contains(t, step(full, 0.9), "cannot serve all of its clients")
	s = newStateLog(s.log, s.fleet, false)
	require.Contains(t, step(full, 0.2), "cannot serve all of its clients")
	require.Contains(t, step(up, 0), "serves all of its clients again")

	require.Contains(t, step(unknown, 0.2), `msg="pop has not published its load; some clients go to others until it does" region=eu-west pop=ams1`)
}

func TestUnsignedTopologyIsCounted(t *testing.T) {
	v := region.NewView(nil, nil, nil)
	v.Regions = map[string]region.RegionState{"eu": {Unsigned: true}, "us": {}}
	m := newMetrics(func() *region.View { return v }, nil, func() bool { return true }, func() bool { return false })
	answer := httptest.NewRecorder()
	m.handler().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	require.Contains(t, answer.Body.String(), `weir_dns_topology_unsigned{region="eu"} 1`)
	require.Contains(t, answer.Body.String(), `weir_dns_topology_unsigned{region="us"} 0`)
}

// Strangers' connections to the metrics listener take a bounded number of open files, which DNS
// over TCP and requests to Consul need, too.
func TestMetricsConnectionsAreBounded(t *testing.T) {
	r := &router{Config: &Config{Metrics: fmt.Sprintf("127.0.0.1:%d", testenv.FreePorts(t, 1)[0]), Log: slog.New(slog.DiscardHandler)}}
	r.metrics = newMetrics(func() *region.View { return region.NewView(nil, nil, nil) }, nil, r.ready.Load, r.ready.Load)
	stop, err := r.serveMetrics()
	require.NoError(t, err)
	defer stop()
	_, err = r.serveMetrics()
	require.ErrorContains(t, err, "--metrics: listen tcp "+r.Metrics+": bind: address already in use; stop the program that uses it ")
	require.ErrorContains(t, err, ", or pass --metrics '' for none")
	require.Equal(t, httpconns.Max, testenv.Crowd(t, r.Metrics, "/healthz", httpconns.Max+10))
}

// systemctl start returns when the router answers; before a fleet's first topology it does not wait.
func TestRouterNotifiesSystemd(t *testing.T) {
	server := testenv.StartConsul(t, testenv.ConsulOptions{})
	client, err := consul.Open(consul.Config{Addr: server.Addr()})
	require.NoError(t, err)
	t.Cleanup(client.Close)
	manager := testenv.StartSystemd(t, t.TempDir())
	t.Setenv("NOTIFY_SOCKET", manager.Socket)
	r := launch(t, "", []region.FollowedRegion{{Name: "eu", Consul: client}})
	require.Equal(t, "READY=1\nSTATUS=waiting for a topology", manager.Next())
	topology, err := region.ParseTopology([]byte(`{zone: edge.example.com, regions: [{name: eu, pops: [{name: ams1, addresses: [203.0.113.1]}]}]}`))
	require.NoError(t, err)
	publish(t, client, topology)
	require.Equal(t, "READY=1\nSTATUS=answering", manager.Next())
	r.stop()
	require.Equal(t, "STOPPING=1", manager.Next())
}
