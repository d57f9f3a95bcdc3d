package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
)

// visitor simulates clients of a network that resolve, keep the answer for its TTL, and open a
// new connection for each request. They do not retry.
type visitor struct {
	mu          sync.Mutex
	asked       int
	failed      int
	first, last time.Time // failures
	why         string
	stop        func()
}

func (w *world) visit(network string) *visitor {
	v := &visitor{}
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	c := http.Client{Timeout: testenv.Patience, Transport: &http.Transport{DisableKeepAlives: true}}
	for range 4 {
		all.Go(func() {
			var addrs []string
			var until time.Time
			tick := time.NewTicker(10 * time.Millisecond)
			defer tick.Stop()
			for ctx.Err() == nil {
				if now := time.Now(); now.After(until) {
					if fresh, err := w.resolve(network); err == nil {
						addrs, until = fresh, now.Add(dnsTTL)
					} else if addrs == nil {
						v.note(err)
						continue
					}
				}
				resp, err := c.Get(fmt.Sprintf("http://%s:%d/", addrs[rand.IntN(len(addrs))], w.port))
				if err == nil {
					if resp.StatusCode != http.StatusOK {
						err = fmt.Errorf("status %d", resp.StatusCode)
					}
					_ = resp.Body.Close() // nothing was read
				}
				v.note(err)
				<-tick.C
			}
		})
	}
	v.stop = sync.OnceFunc(func() { cancel(); all.Wait() })
	w.t.Cleanup(v.stop)
	return v
}

func (v *visitor) note(err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.asked++
	if err == nil {
		return
	}
	v.failed++
	v.last, v.why = time.Now(), err.Error()
	if v.first.IsZero() {
		v.first = v.last
	}
}

func (v *visitor) counts() (asked, failed int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.asked, v.failed
}

// none requires that no request failed.
func (v *visitor) none(t *testing.T, what string) {
	t.Helper()
	eventually(t, testenv.Patience, what+": clients ask", func() bool { asked, _ := v.counts(); return asked > 50 })
	v.stop()
	require.Zero(t, v.failed, "%s: of %d requests, the last: %s", what, v.asked, v.why)
	t.Logf("%s: %d requests, none failed", what, v.asked)
}

// brief requires that failures have ended within the promised TTL + 5 s of the loss.
func (v *visitor) brief(t *testing.T, what string, lost time.Time) {
	t.Helper()
	asked, failed := v.counts()
	eventually(t, testenv.Patience, what+": requests are answered again", func() bool {
		nowAsked, nowFailed := v.counts()
		if nowFailed > failed {
			asked, failed = nowAsked, nowFailed
		}
		return nowAsked >= asked+50
	})
	v.stop()
	require.NotZero(t, v.failed, "%s: no request failed, so nothing was tested", what)
	took := v.last.Sub(lost)
	t.Logf("%s: %d of %d requests failed", what, v.failed, v.asked)
	promised(t, what+": the last failure, "+v.why+",", took, dnsTTL+5*time.Second)
	require.NotContains(t, v.why, "status 4")
}
