package router

import (
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
	"github.com/weir-edge/weir/pkg/region"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// fleet is one region with two PoPs, ams1 with the clients of 10.0.0.0/16 and fra1, in a Consul of
// its own.
type fleet struct {
	consul  *testenv.Consul
	client  *consul.Client
	regions []region.FollowedRegion
}

// newFleet publishes the topology, with further fields, and registers edges with these loads.
func newFleet(t *testing.T, further string, ams1, fra1 []consul.Load) *fleet {
	t.Helper()
	f := &fleet{consul: testenv.StartConsul(t, testenv.ConsulOptions{})}
	var err error
	f.client, err = consul.Open(consul.Config{Addr: f.consul.Addr()})
	require.NoError(t, err)
	t.Cleanup(f.client.Close)
	topology, err := region.ParseTopology([]byte(`{zone: edge.example.com, regions: [{name: eu, pops: [
		{name: ams1, addresses: [203.0.113.1], clients: [10.0.0.0/16]}, {name: fra1, addresses: [203.0.113.2], clients: [10.1.0.0/16]}]}]` + further + `}`))
	require.NoError(t, err)
	_, err = region.PublishTopology(t.Context(), f.client, topology, 0, consul.Fence{})
	require.NoError(t, err)
	for pop, loads := range map[string][]consul.Load{"ams1": ams1, "fra1": fra1} {
		for i, l := range loads {
			registerNode(t, f.client, "eu", pop, fmt.Sprintf("%s-%d", pop, i+1), &l)
		}
	}
	require.Eventually(t, func() bool {
		passing, _, err := f.consul.Client().Health().Service("weir-edge", "", true, nil)
		return err == nil && len(passing) == len(ams1)+len(fra1)
	}, testenv.Patience, testenv.Patience/1000)
	f.regions = []region.FollowedRegion{{Name: "eu", Consul: f.client}}
	return f
}

// shares counts where a router sends the networks of ams1, by its answers.
func (r *running) share(of int) (moved float64) {
	r.t.Helper()
	for i := range of {
		client := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i), 0}), 24)
		if r.dig("edge.example.com", "+subnet="+client.String()) != "203.0.113.1" {
			moved++
		}
	}
	return moved / float64(of)
}

// gauge reads one of the router's metrics; absent: it has none.
func (r *running) gauge(series string) (value float64, absent bool) {
	r.t.Helper()
	m := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(series) + ` (\S+)$`).FindStringSubmatch(r.get("/metrics"))
	if m == nil {
		return 0, true
	}
	value, err := strconv.ParseFloat(m[1], 64)
	require.NoError(r.t, err)
	return value, false
}

func (r *running) reports(series string, ok func(float64) bool) {
	r.t.Helper()
	r.logs("msg=answering")
	require.Eventually(r.t, func() bool { v, absent := r.gauge(series); return !absent && ok(v) }, testenv.Patience, testenv.Patience/500, series)
}

// One of three edges that claims to be overloaded does not make its PoP count as full.
func TestALyingEdgeMovesNobody(t *testing.T) {
	honest := consul.Load{Demand: 50, Capacity: 100}
	f := newFleet(t, "", []consul.Load{honest, honest, {Demand: 200, Capacity: 20}}, []consul.Load{{Demand: 100, Capacity: 1000}})
	r := launch(t, "", f.regions)
	r.reports(`weir_dns_pop_demand{pop="ams1",region="eu"}`, func(v float64) bool { return v > 2*50 })
	r.reports(`weir_dns_pop_up{pop="ams1",region="eu"}`, func(v float64) bool { return v == 1 })
	demand, _ := r.gauge(`weir_dns_pop_demand{pop="ams1",region="eu"}`)
	capacity, _ := r.gauge(`weir_dns_pop_capacity{pop="ams1",region="eu"}`)
	require.Less(t, demand/capacity, 0.83)
	require.Zero(t, r.share(16))
}
