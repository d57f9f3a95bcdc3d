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
	"google.golang.org/protobuf/types/known/wrapperspb"

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

// An AI gateway asks first, without hits, and reports what an answer cost when it has ended.
// Under an overdraft both nodes charge reports whole, whatever remains, and refuse until time
// or the gateway has paid the debt.
func TestRateLimitServiceOverdraft(t *testing.T) {
	redis := testenv.Redis(t, testenv.Options{})
	_, clients := rlsProcesses(t, 2, redis, `
rules:
  - {id: window, domain: edge, descriptors: [{key: window}], key: [descriptor], algorithm: fixed_window, limit: 20000, window: 744h, overdraft: true}
  - {id: bucket, domain: edge, descriptors: [{key: bucket}], key: [descriptor], algorithm: token_bucket, limit: 20000, window: 744h, overdraft: true}
  - {id: small, domain: edge, descriptors: [{key: small}], key: [descriptor], algorithm: fixed_window, limit: 10, window: 744h, overdraft: true}
  - {id: all, domain: edge, descriptors: [{key: all}], key: [], algorithm: fixed_window, limit: 2, window: 744h}
`)
	send := func(node int, hits int64, pairs ...string) *pb.RateLimitResponse {
		t.Helper()
		q := calls(pairs...)
		for _, d := range q.Descriptors {
			d.HitsAddend, d.IsNegativeHits = wrapperspb.UInt64(uint64(max(hits, -hits))), hits < 0
		}
		a, err := clients[node].ShouldRateLimit(context.Background(), q)
		require.NoError(t, err)
		return a
	}
	const ok, over = pb.RateLimitResponse_OK, pb.RateLimitResponse_OVER_LIMIT
	for _, rule := range []string{"window", "bucket"} {
		f := func(node int, hits int64, want pb.RateLimitResponse_Code) {
			t.Helper()
			require.Equal(t, want, send(node, hits, rule, "ann").OverallCode, "%s: %d hits", rule, hits)
		}
		paid := func(want pb.RateLimitResponse_Code) {
			t.Helper()
			for node := range clients {
				eventually(t, testenv.Patience, "a node hears of it", func() bool { return send(node, 0, rule, "ann").OverallCode == want })
			}
		}
		f(0, 1, ok)
		for i := range 3 {
			f(i%2, 0, ok)
			f((i+1)%2, 5000, ok)
		}
		f(0, 0, ok)
		f(0, 0, ok) // two answers begin
		f(0, 5000, over)
		f(1, 5000, over)
		for range 2 {
			f(0, 0, over)
			f(1, 0, over)
		}
		f(0, 5000, over) // a repeated report is charged again
		f(1, -5000, over)
		f(1, -4999, over)
		paid(over)
		f(1, -20, ok)
		paid(ok)
		f(0, -1_000_000_000, ok)
		require.EqualValues(t, 20000, send(1, 0, rule, "ann").Statuses[0].LimitRemaining, "what is given back is never more than was charged")
		f(0, 20_000, ok)
		f(1, 1, over)
	}

	require.EqualValues(t, 7, send(0, 3, "small", "ann").Statuses[0].LimitRemaining)
	for _, hits := range []int64{9000, 9000, 8} {
		require.Equal(t, over, send(0, hits, "small", "ann").OverallCode)
	}
	require.Equal(t, over, send(1, -18_000, "small", "ann").OverallCode)
	require.Equal(t, ok, send(1, -1, "small", "ann").OverallCode, "all were charged")

	// A report is charged although another rule refuses, also one that the node knows to refuse.
	require.Equal(t, ok, send(0, 2, "all", "").OverallCode)
	for range 3 {
		require.Equal(t, over, send(0, 4, "all", "", "small", "bob").OverallCode)
	}
	require.Equal(t, over, send(1, 0, "small", "bob").OverallCode)
	q := calls("all", "")
	q.Descriptors[0].IsNegativeHits = true
	_, err := clients[0].ShouldRateLimit(context.Background(), q)
	require.ErrorContains(t, err, "descriptors[0].is_negative_hits: rule all gives no hits back; set overdraft: true there, or remove is_negative_hits")
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
