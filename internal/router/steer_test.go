package router

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/netip"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
	"github.com/weir-edge/weir/pkg/region"
	"github.com/weir-edge/weir/pkg/region/consul"
	"github.com/weir-edge/weir/pkg/sign"
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
	publish(t, f.client, topology)
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

// newKey returns a key, and the field of a topology that names it.
func newKey(t *testing.T) (*sign.Key, string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "key")
	_, err := sign.Generate(file, file+".pub")
	require.NoError(t, err)
	key, err := sign.ReadKey(file)
	require.NoError(t, err)
	return key, fmt.Sprintf(`"routers": [{"name": "ns1", "key": %q}]`, key.Public())
}

// signedRecord returns a record as a router with that key would write it.
func signedRecord(t *testing.T, key *sign.Key, zone string, sequence int64, s *region.Spill) []byte {
	t.Helper()
	text, err := json.Marshal(map[string]any{"zone": zone, "sequence": sequence, "spill": s})
	require.NoError(t, err)
	sum := sha256.Sum256(text)
	value, err := json.Marshal(map[string]any{
		"record":    json.RawMessage(text),
		"signature": key.Sign(sign.Subject{Kind: "spill", SHA256: hex.EncodeToString(sum[:])}, nil),
	})
	require.NoError(t, err)
	return value
}

// share counts where a router sends the networks of ams1, by its answers.
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

// Who may write weir/spill steers nobody without a router's key: routers ignore forged and
// replayed records, count them, and overwrite them.
func TestForgedRecordMovesNobody(t *testing.T) {
	half := []consul.Load{{Demand: 500, Capacity: 1000}}
	key, routers := newKey(t)
	f := newFleet(t, ", "+routers, half, half)
	r := launch(t, "", f.regions, key)
	stored := func() []byte {
		kv, _, err := f.consul.Client().KV().Get("weir/spill", nil)
		if err != nil || kv == nil {
			return nil
		}
		return kv.Value
	}
	overwritten := func(value []byte) []byte {
		t.Helper()
		require.Eventually(t, func() bool {
			now := stored()
			gives, _ := r.gauge(`weir_dns_pop_gives{pop="ams1",region="eu",to="fra1"}`)
			return gives > 0 || now != nil && !bytes.Equal(now, value)
		}, testenv.Patience, testenv.Patience/1000)
		require.Zero(t, r.share(16))
		return stored()
	}
	r.logs("msg=answering")
	old := overwritten(nil)
	require.True(t, strings.HasPrefix(r.get("/readyz"), "200 ok\n"))
	all := region.Part{Goal: 1, Share: 1, Noticed: 1, Asking: [3]float64{1, 1, 1}}
	spill := &region.Spill{At: time.Now(), Since: time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC), By: "forger", Gifts: map[string]region.Gift{"ams1": {Own: 500, Parts: map[string]region.Part{"fra1": all}}}}
	plain, err := json.Marshal(spill)
	require.NoError(t, err)
	stranger, _ := newKey(t)
	for refused, value := range [][]byte{plain, signedRecord(t, stranger, "edge.example.com", 1<<60, spill), signedRecord(t, key, "lab.example.com", 1<<60, spill), old} {
		f.consul.Set(t, "weir/spill", value)
		overwritten(value)
		r.reports("weir_dns_records_refused_total", func(v float64) bool { return v > float64(refused) })
	}
	require.Contains(t, r.log.String(), "ignored a record")
}

// A router that others have no reason to follow works alone, and says why.
func TestRouterWithoutANamedKeyWorksAlone(t *testing.T) {
	half := []consul.Load{{Demand: 500, Capacity: 1000}}
	_, routers := newKey(t)
	f := newFleet(t, ", "+routers, half, half)
	key, _ := newKey(t)
	for why, r := range map[string]*running{
		"works alone: which clients go elsewhere may differ from other routers: it has no key": launch(t, "", f.regions),
		"the topology does not name its key " + key.ID():                                       launch(t, "", f.regions, key),
	} {
		r.logs("works alone")
		r.logs("msg=answering")
		require.Contains(t, r.get("/readyz"), why)
		require.Zero(t, r.share(1))
	}
}
