package e2e

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
)

const attackRules = `
rules:
  - {id: long, match: {paths: [/long]}, key: [client_ip], algorithm: rolling_window, limit: 10, window: 24h}
  - {id: short, match: {paths: [/short]}, key: [client_ip], algorithm: rolling_window, limit: 10, window: 1s}
  - {id: others, match: {paths: [/others]}, key: [client_ip], algorithm: token_bucket, limit: 1000, burst: 100000, window: 1s}
`

// A flood on one refused key costs Redis almost nothing and does not affect other clients.
func TestAttackOnOneKey(t *testing.T) {
	const attacker, callsPerRetryAfter = "198.51.100.66", 10
	requests := 40_000
	if soak() {
		requests = 200_000
	}
	for _, attack := range []struct {
		path   string
		window time.Duration
	}{{"/long", 24 * time.Hour}, {"/short", time.Second}} {
		t.Run(attack.path[1:], func(t *testing.T) {
			server := testenv.Redis(t, testenv.Options{})
			nodes := edges(t, 1, redisConfig(origin(t, nil), "single", []string{server.Addr}, generous, 1, ""), attackRules)
			awaitRedis(t, nodes, attack.path, attacker)
			statuses(t, nodes, attack.path, attacker, 10, 10) // uses up the limit

			var bystanders, bad atomic.Int64
			done := make(chan struct{})
			var wg sync.WaitGroup
			wg.Go(func() {
				c := client()
				defer c.CloseIdleConnections()
				for n := 0; ; n++ {
					select {
					case <-done:
						return
					default:
					}
					status, err := get(c, nodes[0].Public, "/others", fmt.Sprintf("203.0.113.%d", n%250))
					bystanders.Add(1)
					if err != nil || status != http.StatusOK {
						bad.Add(1)
					}
				}
			})
			before, began := server.CommandCalls("evalsha"), time.Now()
			got := statuses(t, nodes, attack.path, attacker, 64, requests)
			took := time.Since(began)
			close(done)
			wg.Wait()
			calls := server.CommandCalls("evalsha") - before - bystanders.Load()
			retries := int64(took/attack.window) + 1
			t.Logf("%d requests in %s, %d passed; Redis ran %d scripts for them in %d windows, and %d for others",
				requests, took.Round(10*time.Millisecond), got[http.StatusOK], calls, retries, bystanders.Load())
			require.Equal(t, requests, got[http.StatusOK]+got[http.StatusTooManyRequests])
			require.Zero(t, bad.Load(), "other clients keep their answers")
			require.Positive(t, bystanders.Load())
			// Redis also decides the ten requests that pass in each window.
			require.LessOrEqual(t, calls-int64(got[http.StatusOK]), callsPerRetryAfter*retries)
		})
	}
}
