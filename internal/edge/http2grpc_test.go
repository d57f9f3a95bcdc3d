package edge

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpctls "google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weir-edge/weir/internal/edge/config"
	"github.com/weir-edge/weir/internal/testenv"
)

// echoServer is a gRPC service: Say answers what it is told, and Talk each message of a stream.
type echoServer struct {
	addr    string
	running atomic.Int64 // streams
}

var echoService = grpc.ServiceDesc{
	ServiceName: "weir.test.Echo", HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{{MethodName: "Say", Handler: func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		in := &wrapperspb.StringValue{}
		if err := decode(in); err != nil {
			return nil, err
		}
		if in.Value == "fail" {
			_ = grpc.SetTrailer(ctx, metadata.Pairs("why", "asked to"))
			return nil, status.Error(codes.FailedPrecondition, "as you wish")
		}
		_ = grpc.SetHeader(ctx, metadata.Pairs("first", "1"))
		_ = grpc.SetTrailer(ctx, metadata.Pairs("last", "2"))
		return in, nil
	}}},
	Streams: []grpc.StreamDesc{{StreamName: "Talk", ServerStreams: true, ClientStreams: true, Handler: func(srv any, stream grpc.ServerStream) error {
		e := srv.(*echoServer)
		e.running.Add(1)
		defer e.running.Add(-1)
		for {
			in := &wrapperspb.StringValue{}
			if err := stream.RecvMsg(in); err == io.EOF {
				stream.SetTrailer(metadata.Pairs("last", "bye"))
				return nil
			} else if err != nil {
				return err
			}
			if err := stream.SendMsg(in); err != nil {
				return err
			}
		}
	}}},
}

func startEcho(t *testing.T, files *testenv.TLSFiles) *echoServer {
	t.Helper()
	var options []grpc.ServerOption
	if files != nil {
		c, err := grpctls.NewServerTLSFromFile(files.CertFile, files.KeyFile)
		require.NoError(t, err)
		options = append(options, grpc.Creds(c))
	}
	server := grpc.NewServer(options...)
	e := &echoServer{}
	server.RegisterService(&echoService, e)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	e.addr = ln.Addr().String()
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(ln) }()
	t.Cleanup(func() { server.Stop(); <-served })
	return e
}

// grpcClient is a client of the node.
func (n *node) grpcClient(c *tls.Config) *grpc.ClientConn {
	n.t.Helper()
	creds := insecure.NewCredentials()
	if c != nil {
		creds = grpctls.NewTLS(c)
	}
	conn, err := grpc.NewClient("passthrough:///"+n.public, grpc.WithTransportCredentials(creds), grpc.WithDisableRetry())
	require.NoError(n.t, err)
	n.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func say(conn *grpc.ClientConn, text string, options ...grpc.CallOption) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	out := &wrapperspb.StringValue{}
	err := conn.Invoke(ctx, "/weir.test.Echo/Say", wrapperspb.String(text), out, options...)
	return out.Value, err
}

func talk(ctx context.Context, conn *grpc.ClientConn) (grpc.ClientStream, error) {
	return conn.NewStream(ctx, &echoService.Streams[0], "/weir.test.Echo/Talk")
}

const grpcRules = `rules:
  - {id: calls, key: [client_ip], algorithm: fixed_window, limit: 100000, window: 1h}
  - {id: slots, match: {paths: [/weir.test.Echo/Talk]}, key: [client_ip], algorithm: concurrency, limit: 100, window: 1h}
  - {id: few, match: {headers: {X-Few: "1"}}, key: [client_ip], algorithm: fixed_window, limit: 1, window: 1h}`

func TestGRPC(t *testing.T) {
	f := func(name string, secure bool) {
		t.Run(name, func(t *testing.T) {
			var files testenv.TLSFiles
			var n *node
			var conn *grpc.ClientConn
			var e *echoServer
			if secure {
				files = testenv.Certificates(t)
				e = startEcho(t, &files)
				n = start(t, setup{clock: newClock(), rules: grpcRules, config: func(c *config.Config) {
					c.Listen.TLS, c.Listen.HTTP2.TLS = &config.TLS{Pair: pairOf(files)}, true
					c.Upstream.CAFile = files.CAFile
					c.Upstreams = []config.Upstream{{URL: "https://" + e.addr, HTTP2: true}}
				}})
				conn = n.grpcClient(files.ClientConfig(t))
			} else {
				e = startEcho(t, nil)
				n = startH2C(t, setup{clock: newClock(), rules: grpcRules, config: func(c *config.Config) {
					c.Upstreams = []config.Upstream{{URL: "h2c://" + e.addr}}
				}})
				conn = n.grpcClient(nil)
			}
			testUnary(t, n, conn)
			testStreams(t, n, e, conn)
		})
	}
	f("in the clear", false)
	f("TLS", true)
}

func testUnary(t *testing.T, n *node, conn *grpc.ClientConn) {
	var head, tail metadata.MD
	got, err := say(conn, "hello", grpc.Header(&head), grpc.Trailer(&tail))
	require.NoError(t, err)
	require.Equal(t, "hello", got)
	require.Equal(t, []string{"1"}, head.Get("first"))
	require.Contains(t, head.Get("ratelimit")[0], `"calls";r=99999`)
	require.Equal(t, []string{"2"}, tail.Get("last"))

	_, err = say(conn, "fail", grpc.Trailer(&tail))
	require.Equal(t, codes.FailedPrecondition, status.Code(err), "%v", err)
	require.Contains(t, err.Error(), "as you wish")
	require.Equal(t, []string{"asked to"}, tail.Get("why"))

	large := strings.Repeat("x", 3<<20)
	got, err = say(conn, large)
	require.NoError(t, err)
	require.True(t, got == large, "%d bytes", len(got))

	_, err = say(conn, "x")
	require.NoError(t, err)
	ctx := metadata.AppendToOutgoingContext(t.Context(), "x-few", "1")
	require.NoError(t, conn.Invoke(ctx, "/weir.test.Echo/Say", wrapperspb.String("x"), &wrapperspb.StringValue{}))
	err = conn.Invoke(ctx, "/weir.test.Echo/Say", wrapperspb.String("x"), &wrapperspb.StringValue{})
	require.Equal(t, codes.Unavailable, status.Code(err), "what gRPC makes of 429: %v", err)
	require.Contains(t, err.Error(), "429")
}

func testStreams(t *testing.T, n *node, e *echoServer, conn *grpc.ClientConn) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := talk(ctx, conn)
	require.NoError(t, err)
	for i := range 100 { // each message is answered before the next: both directions at once
		require.NoError(t, stream.SendMsg(wrapperspb.String(fmt.Sprint(i))))
		out := &wrapperspb.StringValue{}
		require.NoError(t, stream.RecvMsg(out))
		require.Equal(t, fmt.Sprint(i), out.Value)
	}
	require.EqualValues(t, 1, e.running.Load())
	n.over1(func() {
		require.EqualValues(t, 99, n.explained("slots", "127.0.0.1", "&path=/weir.test.Echo/Talk").Remaining, "the slot is held as long as the stream")
		require.EqualValues(t, 1, n.permits(), "and the permit")
	})
	require.NoError(t, stream.CloseSend())
	require.ErrorIs(t, stream.RecvMsg(&wrapperspb.StringValue{}), io.EOF)
	require.Equal(t, []string{"bye"}, stream.Trailer().Get("last"))
	n.nothingHeld(100)

	// A client that leaves ends the stream at the origin, too.
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			ctx, leave := context.WithCancel(t.Context())
			stream, err := talk(ctx, conn)
			if err == nil && stream.SendMsg(wrapperspb.String("a")) == nil {
				_ = stream.RecvMsg(&wrapperspb.StringValue{})
			}
			leave()
		})
	}
	all.Wait()
	eventually(t, "the origin's streams have ended", func() bool { return e.running.Load() == 0 })
	n.nothingHeld(100)
}

// permits returns how many of the shedder's are out.
func (n *node) permits() (held int64) {
	for _, g := range n.upstreams.Groups {
		for _, class := range g.Shedder.Status().Classes {
			held += class.InFlight
		}
	}
	return held
}

// nothingHeld waits until neither slots nor permits nor streams are held.
func (n *node) nothingHeld(slots int64) {
	n.t.Helper()
	n.over1(func() {
		eventually(n.t, "all slots are free", func() bool { return n.explained("slots", "127.0.0.1", "&path=/weir.test.Echo/Talk").Remaining == slots })
	})
	eventually(n.t, "no permit is out", func() bool { return n.permits() == 0 })
	eventually(n.t, "no stream is open", func() bool { return n.listeners.HTTP2.Streams() == 0 })
}

// An origin that stops within a stream leaves nothing behind, and the client learns of it.
func TestGRPCOriginDies(t *testing.T) {
	e := startEcho(t, nil)
	broken := testenv.Forward(t, e.addr)
	n := startH2C(t, setup{rules: grpcRules, config: func(c *config.Config) { c.Upstreams = []config.Upstream{{URL: "h2c://" + broken.Addr}} }})
	conn := n.grpcClient(nil)
	stream, err := talk(t.Context(), conn)
	require.NoError(t, err)
	require.NoError(t, stream.SendMsg(wrapperspb.String("a")))
	require.NoError(t, stream.RecvMsg(&wrapperspb.StringValue{}))
	broken.To("")
	require.Equal(t, codes.Internal, status.Code(stream.RecvMsg(&wrapperspb.StringValue{})))
	n.nothingHeld(100)
	_, err = say(conn, "x")
	require.Equal(t, codes.Unavailable, status.Code(err), "%v", err)
	require.Contains(t, err.Error(), "502")
	require.NotZero(t, n.metric(`weir_upstream_errors_total{kind="broken",upstream="default"}`))
}

// Clients of HTTP/1.1 are served by origins of HTTP/2, whose trailers they do not get.
func TestHTTP1ToHTTP2(t *testing.T) {
	var only http.Protocols
	only.SetUnencryptedHTTP2(true)
	asked := make(chan *http.Request, 1)
	origin := &http.Server{Protocols: &only, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		select {
		case asked <- r.Clone(context.Background()):
		default:
		}
		w.Header().Set("Trailer", "X-Sum")
		_, _ = w.Write(body)
		w.Header().Set("X-Sum", "7")
	})}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	go func() { _ = origin.Serve(ln) }()
	t.Cleanup(func() { _ = origin.Close() })
	n := start(t, setup{rules: "rules: [{id: slots, key: [client_ip], algorithm: concurrency, limit: 9, window: 1h}]", config: func(c *config.Config) {
		c.Upstreams = []config.Upstream{{URL: "h2c://" + ln.Addr().String()}}
		c.Upstream.HealthCheck.Path, c.Upstream.HealthCheck.Interval = "/health", 50*time.Millisecond
		c.Upstream.HealthCheck.Timeout = 50 * time.Millisecond
	}})
	<-asked // a health check
	for _, size := range []int{0, 1, 10_000, 1 << 20} {
		for _, known := range []bool{true, false} {
			var body io.Reader = strings.NewReader(strings.Repeat("x", size))
			if !known {
				body = io.MultiReader(body)
			}
			resp, err := n.client.Post("http://"+n.public+"//a%2f?b", "text/plain", body)
			require.NoError(t, err)
			a := read(t, resp)
			require.Equal(t, 200, a.status)
			require.Len(t, a.body, size)
			require.Empty(t, resp.Trailer)
		}
	}
	require.Equal(t, 200, n.ask("HEAD", "http://"+n.public+"/").status)
	n.nothingHeld(9)
}
