package consul

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
)

// Any value of a pointer, history entry or lock is either read or refused. A value that was
// read is valid and survives a round trip.
func FuzzPointer(f *testing.F) {
	whole, err := json.Marshal(NewPointer([]byte("rules: []"), "ann", time.Unix(1_800_000_000, 0)))
	require.NoError(f, err)
	for _, seed := range []string{string(whole), "", "{}", `{"version":[],"sha256":{}}`, `{"then":7}`, `{"applied_at":"2026-13-01"}`, `{"by":"ann","until":"9999-12-31T23:59:59Z"}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		testenv.Bounded(t, 8<<20, func() {
			parseLock(value)
			if c, err := parseChange(value); err == nil {
				require.NoError(t, c.validate())
			}
			p, err := ParsePointer(value)
			if err != nil {
				require.NotEmpty(t, err.Error())
				return
			}
			p.ActiveAt(time.Now())
			written, err := json.Marshal(p)
			if err != nil {
				return // a year that JSON cannot represent
			}
			again, err := ParsePointer(written)
			require.NoError(t, err)
			require.Equal(t, p.ActiveAt(time.Time{}), again.ActiveAt(time.Time{}))
		})
	})
}

// Any record of a rollout is either read or refused; one that was read is valid and survives
// being written and read again.
func FuzzRollout(f *testing.F) {
	p := NewPointer([]byte("rules: []"), "ana", time.Unix(1_800_000_000, 0))
	named := Named{p.Version, p.SHA256}
	whole, err := json.Marshal(Rollout{Named: named, By: "ana", BeganAt: p.AppliedAt, SeenAt: p.AppliedAt, Flags: []string{"--waves=1,rest"}, Canary: "ams1", Waves: [][]string{{"eu-west"}, {"us-east"}}, Before: map[string]Named{"eu-west": named}, Halted: "why"})
	require.NoError(f, err)
	for _, seed := range []string{string(whole), "", "{}", "null", `{"waves":[[]]}`, `{"waves":{"a":1}}`, `{"began_at":"2026-13-01"}`, `{"before":{"a":null}}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		testenv.Bounded(t, 8<<20, func() {
			r, err := parseRollout(value)
			if err != nil {
				require.NotEmpty(t, err.Error())
				return
			}
			written, err := json.Marshal(r)
			if err != nil {
				return // a year that JSON cannot represent
			}
			again, err := parseRollout(written)
			require.NoError(t, err)
			require.True(t, r.SameRollout(again))
		})
	})
}

// Any service may register under this name, with any meta: a load stays within bounds, and
// nothing fails.
func FuzzRegistration(f *testing.F) {
	f.Add("edge-1", "eu", "ams1", "10.0.0.1:8081", "0.25", "passing", "10.0.0.1", 8080)
	f.Add("", "", "", "", "NaN", "", "", -1)
	f.Add("\x00", "../..", "{}", "::1", "1e999", "critical", "[::1%eth0]", 1<<20)
	f.Fuzz(func(t *testing.T, id, region, pop, admin, level, status, address string, port int) {
		i := newInstance(&api.ServiceEntry{
			Service: &api.AgentService{ID: id, Address: address, Port: port, Meta: map[string]string{
				MetaNode: id, MetaRegion: region, MetaPoP: pop, MetaAdmin: admin, MetaDemand: level, MetaCapacity: level, MetaCapacityAtLeast: level,
			}},
			Checks: api.HealthChecks{{Status: status, Output: level, CheckID: id}},
		})
		for _, rate := range []float64{i.Demand, i.Capacity, i.CapacityAtLeast} {
			require.True(t, rate >= 0 && rate <= maxRate, rate)
		}
	})
}
