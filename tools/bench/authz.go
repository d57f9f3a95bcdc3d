package main

import (
	"context"
	"fmt"
	"math/rand/v2"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	auth "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
)

// authzUsers is smaller than users because every user's request is kept in memory.
const authzUsers = 10_000

type bareAuthz struct {
	auth.UnimplementedAuthorizationServer
	answer *auth.CheckResponse
}

// Check implements auth.AuthorizationServer.
func (b bareAuthz) Check(context.Context, *auth.CheckRequest) (*auth.CheckResponse, error) {
	return b.answer, nil
}

// authz measures calls of Envoy's external authorization by 64 callers, and by one, for latency
// without queueing.
func (b *bench) authz(ctx context.Context) error {
	redis, err := b.startRedis()
	if err != nil {
		return err
	}
	requests := make([]*auth.CheckRequest, authzUsers)
	for i := range requests {
		requests[i] = authzRequest(i)
	}
	bare := freeAddr()
	var all, single []*contender
	for i, v := range []struct{ name, rule string }{
		{"weir, Redis, rolling_window", `key: ["header:X-User"], algorithm: rolling_window, limit: 1000, window: 1m`},
		{"weir, one tenant, token_bucket, leased", `key: ["header:X-Tenant"], algorithm: token_bucket, consistency: leased, limit: 100000000, window: 1m`},
	} {
		addr := freeAddr()
		if err := b.startEdgeRLS(fmt.Sprint("authz-", i), addr, redis, "  - {id: asked, "+v.rule+"}\n"); err != nil {
			return err
		}
		if i == 0 {
			answer, err := authzAnswer(ctx, addr)
			if err != nil {
				return err
			}
			if err := b.startBareGRPC("authz", bare, answer); err != nil {
				return err
			}
			const name = "bare grpc-go server, the same answer"
			all, single = append(all, b.byAuthz(name, bare, false, connections, requests)), append(single, b.byAuthz(name, bare, false, 1, requests))
		}
		all, single = append(all, b.byAuthz(v.name, addr, true, connections, requests)), append(single, b.byAuthz(v.name, addr, true, 1, requests))
	}
	if err := b.compare(ctx, "authz", fmt.Sprintf("Envoy's external authorization, %d users uniform, %d callers", authzUsers, connections), "calls", all...); err != nil {
		return err
	}
	return b.compare(ctx, "authz-one", "Envoy's external authorization, one caller", "calls", single...)
}

func authzAnswer(ctx context.Context, addr string) (*auth.CheckResponse, error) {
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return auth.NewAuthorizationClient(conn).Check(ctx, authzRequest(0))
}

// authzRequest is Envoy's description of a small browser request.
func authzRequest(user int) *auth.CheckRequest {
	address := &core.Address{Address: &core.Address_SocketAddress{SocketAddress: &core.SocketAddress{Address: "203.0.113.1"}}}
	return &auth.CheckRequest{Attributes: &auth.AttributeContext{
		Source: &auth.AttributeContext_Peer{Address: address},
		Request: &auth.AttributeContext_Request{Http: &auth.AttributeContext_HttpRequest{
			Id: "1", Method: "GET", Path: "/hello", Host: "shop.example.com", Scheme: "https", Protocol: "HTTP/2",
			Headers: map[string]string{
				":method": "GET", ":path": "/hello", ":authority": "shop.example.com", ":scheme": "https", "accept": "*/*", "user-agent": "Mozilla/5.0",
				"accept-encoding": "gzip", "x-forwarded-proto": "https", "x-request-id": "1", "x-tenant": "big", "x-user": fmt.Sprint("user-", user),
			},
		}},
	}}
}

// byAuthz returns a contender whose callers load addr, each with one request in flight.
func (b *bench) byAuthz(name, addr string, ours bool, callers int, requests []*auth.CheckRequest) *contender {
	return b.byGRPC(name, addr, ours, callers, func(ctx context.Context, conn *grpc.ClientConn) error {
		a, err := auth.NewAuthorizationClient(conn).Check(ctx, requests[rand.IntN(len(requests))])
		if err == nil && a.GetStatus().GetCode() != int32(codes.OK) {
			err = fmt.Errorf("%s answered %v", addr, a.GetStatus())
		}
		return err
	})
}
