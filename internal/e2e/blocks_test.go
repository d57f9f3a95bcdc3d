package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
)

// Every node of every region refuses a network that an operator blocks. The test prints how
// soon, from the start of the command and from its return.
func TestBlocksReachAllNodes(t *testing.T) {
	f := startFleet(t, testenv.ConsulOptions{}, 2, "eu-west", "us-east")
	f.apply("rules: []")
	for _, n := range f.nodes() {
		n.WaitReady()
	}
	c := client()
	defer c.CloseIdleConnections()
	var begun, returned []time.Duration
	for k := range 4 * runs() {
		who := fmt.Sprintf("192.0.2.%d", k+1)
		first := make(chan time.Time, len(f.nodes()))
		for _, n := range f.nodes() {
			status, err := get(c, n.Public, "/", who)
			require.NoError(t, err)
			require.Equal(t, http.StatusOK, status)
			go func() {
				again, over := time.NewTicker(time.Millisecond), time.NewTimer(testenv.Patience)
				defer again.Stop()
				defer over.Stop()
				for {
					select {
					case <-over.C:
						first <- time.Time{}
						return
					case <-again.C:
					}
					if status, err := get(c, n.Public, "/", who); err == nil && status == http.StatusForbidden {
						first <- time.Now()
						return
					}
				}
			}()
		}
		began := time.Now()
		out, fault, status := f.regionctl("clients", "block", who, "--for", "1h", "--message", "a scraper", "--by", "ana")
		require.Zero(t, status, "%s%s", out, fault)
		ended := time.Now()
		require.Equal(t, 2, strings.Count(out, "2 obey"), out)
		var last time.Time
		for range f.nodes() {
			at := <-first
			require.False(t, at.IsZero(), "a node refuses nothing")
			last = slices.MaxFunc([]time.Time{last, at}, time.Time.Compare)
		}
		begun, returned = append(begun, last.Sub(began)), append(returned, last.Sub(ended))
	}
	slices.Sort(begun)
	slices.Sort(returned)
	t.Logf("all nodes refuse, worst of %d: %s after the command began, %s after it returned", len(begun), begun[len(begun)-1].Round(time.Millisecond), returned[len(returned)-1].Round(time.Millisecond))
}
