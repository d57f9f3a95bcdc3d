package grpcweir_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weir-edge/weir/internal/testenv"
	"github.com/weir-edge/weir/middleware"
	"github.com/weir-edge/weir/middleware/grpcweir"
)

// serve starts a server with these rules and returns a client of its health service.
func serve(rules string) (client healthpb.HealthClient, stop func(), err error) {
	limiter, err := middleware.New(middleware.Config{Rules: []byte(rules)})
	if err != nil {
		return nil, nil, err
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(grpcweir.Unary(limiter)), grpc.StreamInterceptor(grpcweir.Stream(limiter)))
	healthpb.RegisterHealthServer(server, health.NewServer())
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	go server.Serve(ln)
	conn, err := grpc.NewClient(ln.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	return healthpb.NewHealthClient(conn), func() {
		conn.Close()
		server.Stop()
		limiter.Close()
	}, err
}

func Example() {
	client, stop, err := serve(`
rules:
  - {id: checks, match: {paths: [/grpc.health.v1.Health/Check]}, key: [client_ip], limit: 1, window: 1h}
`)
	if err != nil {
		log.Fatal(err)
	}
	defer stop()
	for range 2 {
		_, err := client.Check(context.Background(), &healthpb.HealthCheckRequest{})
		fmt.Println(status.Code(err))
	}
	// Output:
	// OK
	// ResourceExhausted
}

func TestInterceptors(t *testing.T) {
	client, stop, err := serve(`
rules:
  - {id: keyed, match: {paths: [/grpc.health.v1.Health/Check], methods: [POST]}, key: ["header:X-Api-Key", "cookie:session"], limit: 1, window: 1h}
  - {id: hosts, match: {paths: [/grpc.health.v1.Health/List]}, key: [host], limit: 1, window: 1h}
  - {id: streams, match: {paths: [/grpc.health.v1.Health/Watch]}, key: [client_ip], algorithm: concurrency, limit: 1, window: 1h}
`)
	require.NoError(t, err)
	defer stop()
	check := func(pairs ...string) (metadata.MD, error) {
		var header metadata.MD
		ctx := metadata.AppendToOutgoingContext(context.Background(), pairs...)
		_, err := client.Check(ctx, &healthpb.HealthCheckRequest{}, grpc.Header(&header))
		return header, err
	}
	header, err := check("x-api-key", "a", "cookie", "x=y; session=b")
	require.NoError(t, err)
	require.Equal(t, []string{`"keyed";r=0;t=3600`}, header.Get("ratelimit"))
	header, err = check("x-api-key", "a", "cookie", "session=b")
	require.Equal(t, codes.ResourceExhausted, status.Code(err))
	require.NotEmpty(t, header.Get("retry-after"))
	require.Contains(t, status.Convert(err).Message(), `"violated-policies":["keyed"]`)
	require.Positive(t, status.Convert(err).Details()[0].(*errdetails.RetryInfo).RetryDelay.AsDuration())
	_, err = check("x-api-key", "a", "x-api-key", "b", "cookie", "session=b")
	require.Equal(t, codes.InvalidArgument, status.Code(err))
	_, err = client.List(context.Background(), &healthpb.HealthListRequest{})
	require.NoError(t, err)
	_, err = client.List(context.Background(), &healthpb.HealthListRequest{})
	require.Equal(t, codes.ResourceExhausted, status.Code(err))

	// A stream holds its slot until it ends.
	ctx, cancel := context.WithCancel(context.Background())
	first, err := client.Watch(ctx, &healthpb.HealthCheckRequest{})
	require.NoError(t, err)
	_, err = first.Recv()
	require.NoError(t, err)
	second, err := client.Watch(context.Background(), &healthpb.HealthCheckRequest{})
	require.NoError(t, err)
	_, err = second.Recv()
	require.Equal(t, codes.ResourceExhausted, status.Code(err))
	cancel()
	for err = nil; err == nil; _, err = first.Recv() {
	}
	require.NotErrorIs(t, err, io.EOF)
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		again, err := client.Watch(ctx, &healthpb.HealthCheckRequest{})
		require.NoError(t, err)
		_, err = again.Recv()
		return err == nil
	}, testenv.Patience, 5*time.Millisecond)
}
