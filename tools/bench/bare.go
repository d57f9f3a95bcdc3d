package main

import (
	"context"
	"fmt"
	"net/http"

	"github.com/valyala/fasthttp"
)

// serveBare runs the smallest fasthttp server for a role: the baselines.
func serveBare(ctx context.Context, role, listen, origin, redis, certificate, key string) error {
	if role == "rls" || role == "authz" {
		return serveBareGRPC(ctx, role, listen, origin)
	}
	var handler fasthttp.RequestHandler
	body := []byte("hello from the origin\n")
	switch role {
	case "origin-h2c":
		server := &http.Server{Addr: listen, Protocols: new(http.Protocols), Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(body) })}
		server.Protocols.SetUnencryptedHTTP2(true)
		return server.ListenAndServe()
	case "origin":
		handler = func(req *fasthttp.RequestCtx) {
			if string(req.Path()) == "/hold" { // keeps a request in flight
				<-ctx.Done()
			}
			req.SetBody(body)
		}
	case "refuse-short-429":
		handler = refuse(fasthttp.StatusTooManyRequests, `{"title":"Too many requests","status":429}`, "Retry-After", "60")
	case "refuse-short-503":
		handler = refuse(fasthttp.StatusServiceUnavailable, `{"title":"Shedding load","status":503}`, "Retry-After", "5")
	case "refuse-429": // the message that weir sends
		handler = refuse(fasthttp.StatusTooManyRequests, `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Too many requests","status":429,"violated-policies":["per-client"]}`,
			"Retry-After", "600", "RateLimit-Policy", `"per-client";q=1;w=600`, "RateLimit", `"per-client";r=0;t=600`)
	case "refuse-503":
		handler = refuse(fasthttp.StatusServiceUnavailable, `{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity","title":"Shedding load","status":503,"class":"read"}`,
			"Retry-After", "5")
	case "proxy", "proxy-least", "proxy-plain":
		client := &fasthttp.HostClient{Addr: origin, MaxConns: 1024}
		handler = func(ctx *fasthttp.RequestCtx) {
			ctx.Request.Header.Del("Connection")
			ctx.Request.URI().SetScheme("http")
			if err := client.Do(&ctx.Request, &ctx.Response); err != nil {
				ctx.Error("bad gateway", fasthttp.StatusBadGateway)
			}
			ctx.Response.Header.Del("Connection")
		}
		var err error
		switch role {
		case "proxy-least":
			var l *least
			if l, err = startLeast(ctx, redis, perMinute, 60_000); err == nil {
				handler = l.limit(handler)
			}
		case "proxy-plain":
			handler, err = plainCall(ctx, redis, handler)
		}
		if err != nil {
			return err
		}
	default:
		return fmt.Errorf("unknown role %q", role)
	}
	server := &fasthttp.Server{Handler: handler}
	go func() { <-ctx.Done(); _ = server.Shutdown() }()
	if certificate != "" {
		return server.ListenAndServeTLS(listen, certificate, key)
	}
	return server.ListenAndServe(listen)
}

// refuse returns the smallest handler that sends one fixed answer with these headers.
func refuse(status int, text string, headers ...string) fasthttp.RequestHandler {
	body := []byte(text)
	return func(req *fasthttp.RequestCtx) {
		req.SetStatusCode(status)
		req.SetContentType("application/problem+json")
		for i := 0; i < len(headers); i += 2 {
			req.Response.Header.Set(headers[i], headers[i+1])
		}
		req.SetBody(body)
	}
}
