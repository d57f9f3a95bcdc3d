package main

import (
	"context"
	"fmt"

	"github.com/valyala/fasthttp"
)

// serveBare runs the smallest fasthttp server for a job: the yardsticks.
func serveBare(ctx context.Context, role, listen, origin string) error {
	var handler fasthttp.RequestHandler
	switch role {
	case "origin":
		body := []byte("hello from the origin\n")
		handler = func(ctx *fasthttp.RequestCtx) { ctx.SetBody(body) }
	case "refuse":
		body := []byte(`{"title":"Too many requests","status":429}`)
		handler = func(ctx *fasthttp.RequestCtx) {
			ctx.SetStatusCode(fasthttp.StatusTooManyRequests)
			ctx.Response.Header.Set("Retry-After", "60")
			ctx.SetContentType("application/problem+json")
			ctx.SetBody(body)
		}
	case "refuse-same": // the message that weir sends
		body := []byte(`{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Too many requests","status":429,"violated-policies":["per-client"]}`)
		handler = func(ctx *fasthttp.RequestCtx) {
			ctx.SetStatusCode(fasthttp.StatusTooManyRequests)
			ctx.SetContentType("application/problem+json")
			ctx.Response.Header.Set("Retry-After", "600")
			ctx.Response.Header.Set("RateLimit-Policy", `"per-client";q=1;w=600`)
			ctx.Response.Header.Set("RateLimit", `"per-client";r=0;t=600`)
			ctx.SetBody(body)
		}
	case "proxy":
		client := &fasthttp.HostClient{Addr: origin, MaxConns: 1024}
		handler = func(ctx *fasthttp.RequestCtx) {
			ctx.Request.Header.Del("Connection")
			if err := client.Do(&ctx.Request, &ctx.Response); err != nil {
				ctx.Error("bad gateway", fasthttp.StatusBadGateway)
			}
			ctx.Response.Header.Del("Connection")
		}
	default:
		return fmt.Errorf("unknown role %q", role)
	}
	server := &fasthttp.Server{Handler: handler}
	go func() { <-ctx.Done(); _ = server.Shutdown() }()
	return server.ListenAndServe(listen)
}
