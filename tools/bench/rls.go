package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	auth "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	"github.com/weir-edge/weir/tools/internal/paired"
)

// rlsConnections is the number of connections of an Envoy with four threads.
const rlsConnections = 4

// serveBareGRPC runs the smallest grpc-go server that sends the answer in file: the baseline.
func serveBareGRPC(ctx context.Context, role, listen, file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	s := grpc.NewServer()
	var answer proto.Message
	if role == "authz" {
		a := &auth.CheckResponse{}
		auth.RegisterAuthorizationServer(s, bareAuthz{answer: a})
		answer = a
	} else {
		a := &pb.RateLimitResponse{}
		pb.RegisterRateLimitServiceServer(s, bareRLS{answer: a})
		answer = a
	}
	if err := proto.Unmarshal(data, answer); err != nil {
		return err
	}
	ln, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	go func() { <-ctx.Done(); s.Stop() }()
	return s.Serve(ln)
}

type bareRLS struct {
	pb.UnimplementedRateLimitServiceServer
	answer *pb.RateLimitResponse
}

// ShouldRateLimit implements pb.RateLimitServiceServer.
func (b bareRLS) ShouldRateLimit(context.Context, *pb.RateLimitRequest) (*pb.RateLimitResponse, error) {
	return b.answer, nil
}

// rlsAnswer asks a server once, so that the baseline can send the same message.
func rlsAnswer(ctx context.Context, addr string, calls int) (a *pb.RateLimitResponse, err error) {
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	for range calls {
		if a, err = pb.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, rlsRequest(0)); err != nil {
			return nil, err
		}
	}
	return a, nil
}

func rlsRequest(user int) *pb.RateLimitRequest {
	return &pb.RateLimitRequest{Domain: "edge", Descriptors: []*ratelimit.RateLimitDescriptor{{
		Entries: []*ratelimit.RateLimitDescriptor_Entry{{Key: "user", Value: fmt.Sprint("user-", user)}},
	}}}
}

// byRLS returns a contender whose callers load addr, each as one of n users at a time.
func (b *bench) byRLS(name, addr string, ours bool, n int, want pb.RateLimitResponse_Code) *contender {
	requests := make([]*pb.RateLimitRequest, n)
	for i := range requests {
		requests[i] = rlsRequest(i)
	}
	return b.byGRPC(name, addr, ours, connections, func(ctx context.Context, conn *grpc.ClientConn) error {
		a, err := pb.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, requests[rand.IntN(n)])
		if err == nil && a.OverallCode != want {
			err = fmt.Errorf("%s answered %s, not %s", addr, a.OverallCode, want)
		}
		return err
	})
}

// byGRPC returns a contender that this many callers load at addr.
func (b *bench) byGRPC(name, addr string, ours bool, callers int, call func(context.Context, *grpc.ClientConn) error) *contender {
	return &contender{ours: ours, Contender: paired.Contender{Name: name, Measure: func(ctx context.Context, _ int) (paired.Sample, error) {
		return b.callGRPC(ctx, addr, callers, call)
	}}}
}

func (b *bench) callGRPC(ctx context.Context, addr string, callers int, call func(context.Context, *grpc.ClientConn) error) (paired.Sample, error) {
	var conns []*grpc.ClientConn
	for range min(rlsConnections, callers) {
		conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return paired.Sample{}, err
		}
		defer conn.Close()
		conns = append(conns, conn)
	}
	profiled := make(chan error, 1)
	go func() { profiled <- b.profile(addr) }()
	took := make([][]time.Duration, callers)
	faults := make([]error, callers)
	began := time.Now()
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			for last := time.Now(); last.Sub(began) < b.duration; {
				if faults[i] = call(ctx, conns[i%len(conns)]); faults[i] != nil {
					return
				}
				now := time.Now()
				took[i] = append(took[i], now.Sub(last))
				last = now
			}
		})
	}
	wg.Wait()
	elapsed := time.Since(began)
	for _, err := range append(faults, <-profiled) {
		if err != nil {
			return paired.Sample{}, err
		}
	}
	all := slices.Concat(took...)
	slices.Sort(all)
	return paired.Sample{Rate: float64(len(all)) / elapsed.Seconds(), P99: all[len(all)*99/100]}, nil
}

// rls measures calls of Envoy's rate limit service: decided in Redis, and refused from memory.
func (b *bench) rls(ctx context.Context) error {
	redis, err := b.startRedis()
	if err != nil {
		return err
	}
	for _, v := range []struct {
		part, title, rule string
		users, warm       int
		goal              float64
		want              pb.RateLimitResponse_Code
	}{
		{"rls", fmt.Sprintf("Envoy's rate limit service, one strict descriptor, %d users uniform, %d callers", users, connections), "limit: 1000000", users, 1, 0.8, pb.RateLimitResponse_OK},
		{"rls-refuse", fmt.Sprintf("Envoy's rate limit service, refused from memory, %d callers", connections), "limit: 1", 1, 2, 0.9, pb.RateLimitResponse_OVER_LIMIT},
	} {
		rls, bare := freeAddr(), freeAddr()
		rule := fmt.Sprintf("  - {id: %s, domain: edge, descriptors: [{key: user}], key: [descriptor], algorithm: fixed_window, window: 744h, %s}\n", v.part, v.rule)
		if err := b.startEdgeRLS(v.part, rls, redis, rule); err != nil {
			return err
		}
		answer, err := rlsAnswer(ctx, rls, v.warm)
		if err != nil {
			return err
		}
		if err := b.startBareGRPC("rls", bare, answer); err != nil {
			return err
		}
		ours := b.byRLS("weir, Redis, fixed_window", rls, true, v.users, v.want)
		if v.warm > 1 {
			ours.Name = "weir, refused from memory"
		}
		ours.goal = v.goal
		if err := b.compare(ctx, v.part, v.title, "calls", b.byRLS("bare grpc-go server, the same answer", bare, false, v.users, v.want), ours); err != nil {
			return err
		}
	}
	return nil
}

// startEdgeRLS runs the edge with listen.rls at this address, for both services.
func (b *bench) startEdgeRLS(name, rls, redis, rules string) error {
	public, admin := freeAddr(), freeAddr()
	config := b.write(name+".yaml", fmt.Sprintf(`
listen: {public: %q, admin: %q, rls: {address: %q, authorization: true, from: [127.0.0.1]}}
upstreams: [{url: "http://127.0.0.1:9"}]
store: {kind: redis, timeout: 100ms, redis: {mode: single, addrs: [%q]}}
rules: {source: file, file: %q}
log: {level: warn}
`, public, admin, rls, redis, b.write(name+"-rules.yaml", "rules:\n"+rules)))
	b.admins[rls] = admin
	return b.start(public, b.edge, "-config", config)
}

// startBareGRPC passes the answer to the process in a file.
func (b *bench) startBareGRPC(role, addr string, answer proto.Message) error {
	data, err := proto.Marshal(answer)
	if err != nil {
		return err
	}
	return b.self(addr, role, "-origin", b.write(role+"-"+addr, string(data)))
}
