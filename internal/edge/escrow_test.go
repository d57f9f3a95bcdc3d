package edge

import (
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/edge/config"
	"github.com/weir-edge/weir/internal/testenv"
)

var escrowRules = `
rules:
  - {id: divided, key: [client_ip], algorithm: fixed_window, limit: %d, window: ` + testenv.LongWindow() + `, scope: global, global: {mode: escrow}, on_store_failure: closed, consistency: %s}`

// Clients that move find in one region what the others do not need, and all regions together
// never pass more than the limit.
func TestRegionsDivideALimit(t *testing.T) { regionsDivideALimit(t, "strict") }

// Nor if nodes lease units of their region's part.
func TestRegionsLeaseALimit(t *testing.T) { regionsDivideALimit(t, "leased") }

func regionsDivideALimit(t *testing.T, consistency string) {
	const limit = 211 // more takes minutes on a busy machine with the race detector
	regions := exchangingRegions(t, fmt.Sprintf(escrowRules, limit, consistency))
	var mu sync.Mutex
	passed := 0
	ask := func(r, i int) {
		if regions[r][i%2].get("/").status == http.StatusOK {
			mu.Lock()
			passed++
			mu.Unlock()
		}
	}
	eventually(t, "one region passes nearly all", func() bool {
		for i := range 50 {
			ask(1, i)
		}
		return passed >= limit*97/100
	})
	e := regions[1][0].explained("divided", "127.0.0.1", "").Global
	require.Equal(t, 3, e.Regions)
	require.Empty(t, e.Escrow.Error)
	require.InDelta(t, limit/3, e.Escrow.Part, 1)

	var group sync.WaitGroup
	for r := range regions {
		group.Go(func() {
			for i := range limit {
				ask(r, i)
			}
		})
	}
	group.Wait()
	eventually(t, "what is left is spent somewhere, and no more", func() bool {
		for r := range regions {
			ask(r, 0)
		}
		return passed >= limit
	})
	for r := range regions {
		for i := range 50 {
			ask(r, i)
		}
	}
	require.Equal(t, limit, passed)
	received := regions[1][0].metric(`weir_global_rights_total{direction="in"}`) + regions[1][1].metric(`weir_global_rights_total{direction="in"}`)
	require.GreaterOrEqual(t, received, float64(limit/3))
	if consistency == "leased" {
		granted := `weir_lease_units_total{fate="granted",rule="divided"}`
		require.Positive(t, regions[1][0].metric(granted)+regions[1][1].metric(granted))
	}
	require.Contains(t, regions[0][0].get("/").header.Get("RateLimit-Policy"), `"divided";q=211`)
}

// A node that cannot reach other regions must not take the whole limit for its own.
func TestEscrowWithoutPeers(t *testing.T) {
	c := config.Dev("127.0.0.1:1")
	document := fmt.Sprintf(escrowRules, 5, "strict")
	_, err := New(c, document, discard())
	require.ErrorContains(t, err, "rules[0].global.mode: escrow requires a connection to other regions; set listen.peer on every node, or use mode: eventual")
	c.Node.Region, c.Listen.Peer = "eu-west", &config.PeerListen{Address: "127.0.0.1:0", Insecure: true}
	e, err := New(c, document, discard())
	require.NoError(t, err)
	e.close()
}
