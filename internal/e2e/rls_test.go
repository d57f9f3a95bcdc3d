package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/weir-edge/weir/internal/testenv"
)

// rlsProcesses starts n nodes with Envoy's rate limit service, and a client of each.
func rlsProcesses(t *testing.T, n int, redis *testenv.Server, rules string) (nodes []*testenv.EdgeNode, clients []pb.RateLimitServiceClient) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "rules.yaml")
	require.NoError(t, os.WriteFile(file, []byte(rules), 0o600))
	for _, port := range testenv.FreePorts(t, n) {
		address := fmt.Sprintf("127.0.0.1:%d", port)
		node := testenv.StartEdge(t, fmt.Sprintf("  rls: {address: %q}\nrules: {file: %q}\nupstreams: [{url: \"http://127.0.0.1:9\"}]\nstore: {timeout: %s, nodes: %d, redis: {mode: single, addrs: [%q]}}\n",
			address, file, generous, n, redis.Addr))
		node.WaitReady()
		conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		nodes, clients = append(nodes, node), append(clients, pb.NewRateLimitServiceClient(conn))
	}
	return nodes, clients
}

func calls(pairs ...string) *pb.RateLimitRequest {
	q := &pb.RateLimitRequest{Domain: "edge"}
	for i := 0; i < len(pairs); i += 2 {
		q.Descriptors = append(q.Descriptors, &ratelimit.RateLimitDescriptor{Entries: []*ratelimit.RateLimitDescriptor_Entry{{Key: pairs[i], Value: pairs[i+1]}}})
	}
	return q
}

// Three processes on one Redis admit exactly the limit. A refused descriptor charges no other.
func TestRateLimitServiceIsExact(t *testing.T) {
	redis := testenv.Redis(t, testenv.Options{})
	_, clients := rlsProcesses(t, 3, redis, `
rules:
  - {id: user, domain: edge, descriptors: [{key: user}], key: [descriptor], algorithm: fixed_window, limit: 50, window: 744h}
  - {id: all, domain: edge, descriptors: [{key: all}], key: [], algorithm: token_bucket, limit: 1000, burst: 1000, window: 744h}
`)
	const callers, each = 60, 20
	var passed atomic.Int64
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			for range each {
				a, err := clients[i%3].ShouldRateLimit(context.Background(), calls("all", "", "user", "bob"))
				if err != nil {
					t.Error(err)
					return
				}
				if a.OverallCode == pb.RateLimitResponse_OK {
					passed.Add(1)
				}
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 50, passed.Load())
	for _, c := range clients {
		q := calls("all", "")
		q.HitsAddend = 951
		a, err := c.ShouldRateLimit(context.Background(), q)
		require.NoError(t, err)
		require.Equal(t, pb.RateLimitResponse_OVER_LIMIT, a.OverallCode)
	}
	q := calls("all", "")
	q.HitsAddend = 950
	a, err := clients[0].ShouldRateLimit(context.Background(), q)
	require.NoError(t, err)
	require.Equal(t, pb.RateLimitResponse_OK, a.OverallCode, "exactly 50 of it were charged")
}

// A gateway with several nodes loses no call while they restart one by one, each when the
// gateway has dialed the one before again: gRPC waits longer after each failed attempt.
func TestRateLimitServiceRestarts(t *testing.T) {
	redis := testenv.Redis(t, testenv.Options{})
	nodes, clients := rlsProcesses(t, 2, redis, `
rules:
  - {id: user, domain: edge, descriptors: [{key: user}], key: [descriptor], algorithm: fixed_window, limit: 1000000, window: 744h}
`)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var answered atomic.Int64
	for i := range 8 {
		wg.Go(func() {
			for k := 0; ; k++ {
				select {
				case <-stop:
					return
				default:
				}
				_, err := clients[(i+k)%2].ShouldRateLimit(context.Background(), calls("user", "bob"))
				if err != nil { // Envoy retries once, on the other node
					_, err = clients[(i+k+1)%2].ShouldRateLimit(context.Background(), calls("user", "bob"))
				}
				if err != nil {
					t.Error(err)
					return
				}
				answered.Add(1)
			}
		})
	}
	for i, n := range nodes {
		before := answered.Load()
		eventually(t, testenv.Patience, "calls are answered", func() bool { return answered.Load() > before+100 })
		n.Terminate()
		n.Start()
		n.WaitReady()
		eventually(t, testenv.Patience, "the gateway has dialed the node again", func() bool {
			_, err := clients[i].ShouldRateLimit(context.Background(), calls("user", "bob"))
			return err == nil
		})
	}
	close(stop)
	wg.Wait()
}

// A node serves the rules that regionctl imports from the reference service's configuration.
func TestRateLimitServiceServesImportedRules(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), testenv.Program(t, "regionctl"), "rules", "import", "envoy", "../ctl/envoy/testdata/messaging.yaml")
	var report bytes.Buffer
	cmd.Stderr = &report
	imported, err := cmd.Output()
	require.NoError(t, err, "%s", report.String())
	require.Equal(t, 4, bytes.Count(report.Bytes(), []byte("\n")), "%s", report.String())
	_, clients := rlsProcesses(t, 1, testenv.Redis(t, testenv.Options{}), string(imported))
	f := func(want int, limit uint32, unit pb.RateLimitResponse_RateLimit_Unit, pairs ...string) {
		t.Helper()
		q := calls(pairs...)
		q.Domain = "messaging"
		var entries []*ratelimit.RateLimitDescriptor_Entry
		for _, d := range q.Descriptors { // one descriptor of all
			entries = append(entries, d.Entries...)
		}
		q.Descriptors = []*ratelimit.RateLimitDescriptor{{Entries: entries}}
		passed := 0
		for range 60 {
			a, err := clients[0].ShouldRateLimit(context.Background(), q)
			require.NoError(t, err)
			if a.OverallCode != pb.RateLimitResponse_OK {
				break
			}
			passed++
			require.Equal(t, limit, a.Statuses[0].GetCurrentLimit().GetRequestsPerUnit())
			require.Equal(t, unit, a.Statuses[0].GetCurrentLimit().GetUnit())
		}
		require.Equal(t, want, passed)
	}
	const all = 60
	f(5, 5, pb.RateLimitResponse_RateLimit_DAY, "message_type", "marketing", "to_number", "+1")
	f(5, 5, pb.RateLimitResponse_RateLimit_DAY, "message_type", "marketing", "to_number", "+2")
	f(all, 0, pb.RateLimitResponse_RateLimit_UNKNOWN, "message_type", "marketing", "to_number", "+49901")
	f(20, 20, pb.RateLimitResponse_RateLimit_MINUTE, "message_type", "promotion")
	f(all, 0, pb.RateLimitResponse_RateLimit_UNKNOWN, "message_type", "alert") // in shadow
	f(all, 100, pb.RateLimitResponse_RateLimit_WEEK, "to_number", "+1")
	f(all, 0, pb.RateLimitResponse_RateLimit_UNKNOWN, "to_number", "911")
}
