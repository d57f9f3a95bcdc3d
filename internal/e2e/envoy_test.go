package e2e

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	auth "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weir-edge/weir/internal/testenv"
)

const envoyRules = `
rules:
  - {id: user, domain: edge, descriptors: [{key: user}], key: ["descriptor:user"], algorithm: fixed_window, limit: 50, window: 744h, on_store_failure: closed}
  - {id: all, domain: edge, descriptors: [{key: all}], key: [], algorithm: fixed_window, limit: 1000, window: 744h, on_store_failure: open}
  - {id: api, match: {paths: [/api]}, key: [client_ip], algorithm: fixed_window, limit: 50, window: 744h}
  - {id: closed, match: {paths: [/closed]}, key: [client_ip], limit: 50, window: 1h, on_store_failure: closed}
  - {id: open, match: {paths: [/open]}, key: [client_ip], limit: 50, window: 1h, on_store_failure: open}
`

// checking returns a client's request as Envoy describes it.
func checking(client, path string) *auth.CheckRequest {
	return &auth.CheckRequest{Attributes: &auth.AttributeContext{
		Source: &auth.AttributeContext_Peer{Address: &core.Address{Address: &core.Address_SocketAddress{SocketAddress: &core.SocketAddress{Address: client}}}},
		Request: &auth.AttributeContext_Request{Http: &auth.AttributeContext_HttpRequest{
			Method: "GET", Path: path, Host: "shop.example.com", Headers: map[string]string{":path": path},
		}},
	}}
}

// Two nodes on a Redis Cluster serve Envoy's rate limit service and its external authorization.
// Counts are exact, descriptors in several slots are all or nothing, and when the cluster is
// lost each rule decides.
func TestEnvoyServicesOnCluster(t *testing.T) {
	cluster := testenv.Cluster(t, testenv.Options{})
	file := write(t, "rules.yaml", envoyRules)
	var limits []pb.RateLimitServiceClient
	var authorizations []auth.AuthorizationClient
	for _, port := range testenv.FreePorts(t, 2) {
		address := fmt.Sprintf("127.0.0.1:%d", port)
		node := testenv.StartEdge(t, fmt.Sprintf("  rls: {address: %q, from: [127.0.0.1], authorization: true}\nrules: {file: %q}\n", address, file)+
			redisConfig("http://127.0.0.1:9", "cluster", cluster.Addrs(), generous, 2, ""))
		node.WaitReady()
		conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		limits, authorizations = append(limits, pb.NewRateLimitServiceClient(conn)), append(authorizations, auth.NewAuthorizationClient(conn))
	}
	limited := func(node int, q *pb.RateLimitRequest) bool {
		a, err := limits[node].ShouldRateLimit(context.Background(), q)
		if err != nil {
			t.Error(err)
		}
		return a.GetOverallCode() != pb.RateLimitResponse_OK
	}
	check := func(node int, q *auth.CheckRequest) int {
		a, err := authorizations[node].Check(context.Background(), q)
		if err != nil {
			t.Error(err)
		}
		if denied := a.GetDeniedResponse(); denied != nil {
			return int(denied.Status.Code)
		}
		return 200
	}
	var passed, authorized atomic.Int64
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			for range 4 {
				if !limited(i%2, calls("all", "", "user", "bob")) {
					passed.Add(1)
				}
				if check(i%2, checking("203.0.113.7", "/api")) == 200 {
					authorized.Add(1)
				}
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 50, passed.Load())
	require.EqualValues(t, 50, authorized.Load())
	look := calls("all", "")
	look.Descriptors[0].HitsAddend = wrapperspb.UInt64(0)
	eventually(t, testenv.Patience, "what refused calls charged is given back", func() bool {
		a, err := limits[0].ShouldRateLimit(context.Background(), look)
		return err == nil && a.Statuses[0].LimitRemaining == 950
	})

	for _, n := range cluster.Nodes {
		n.Kill()
	}
	for node := range limits {
		require.True(t, limited(node, calls("user", "carol")), "closed")
		require.False(t, limited(node, calls("all", "")), "open")
		require.Equal(t, 503, check(node, checking("203.0.113.8", "/closed")))
		require.Equal(t, 200, check(node, checking("203.0.113.8", "/open")))
		require.Equal(t, 200, check(node, checking("203.0.113.8", "/free")))
	}
}
