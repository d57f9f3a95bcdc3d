package fasthttpweir_test

import (
	"fmt"
	"log"
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/weir-edge/weir/middleware"
	"github.com/weir-edge/weir/middleware/fasthttpweir"
)

func Example() {
	limiter, err := middleware.New(middleware.Config{Rules: []byte("rules: [{id: per-client, key: [client_ip], limit: 1, window: 1h}]")})
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	server := &fasthttp.Server{Handler: fasthttpweir.Handler(limiter, func(ctx *fasthttp.RequestCtx) { ctx.WriteString("hello") })}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	go server.Serve(ln)
	defer server.Shutdown()

	for range 2 {
		status, _, err := fasthttp.Get(nil, "http://"+ln.Addr().String()+"/")
		fmt.Println(status, err)
	}
	// Output:
	// 200 <nil>
	// 429 <nil>
}

func TestHandler(t *testing.T) {
	l, err := middleware.New(middleware.Config{Rules: []byte(`
rules:
  - {id: api, match: {paths: ["/api/*"]}, key: ["header:X-Api-Key", "cookie:session"], limit: 1, window: 1h}
  - {id: slots, match: {paths: [/slots]}, key: [client_ip], algorithm: concurrency, limit: 1, window: 1h}
`)})
	require.NoError(t, err)
	defer l.Close()
	var inner fasthttp.RequestHandler
	next := func(ctx *fasthttp.RequestCtx) {
		ctx.Response.Header.Set("RateLimit", `"origin";r=1`)
		if inner != nil {
			inner(ctx)
		}
	}
	ask := func(target string, headers ...string) *fasthttp.RequestCtx {
		ctx := &fasthttp.RequestCtx{}
		ctx.Init(&fasthttp.Request{}, &net.TCPAddr{IP: net.IPv4(203, 0, 113, 7)}, nil)
		ctx.Request.Header.SetRequestURI(target)
		ctx.Request.Header.SetHost("a.example")
		for _, line := range headers {
			name, value, _ := strings.Cut(line, ": ")
			ctx.Request.Header.Add(name, value)
		}
		fasthttpweir.Handler(l, next)(ctx)
		return ctx
	}
	passed := ask("/api/x?y", "X-Api-Key: a", "Cookie: session=b")
	require.Equal(t, 200, passed.Response.StatusCode())
	require.Equal(t, `"api";r=0;t=3600`, string(passed.Response.Header.Peek("RateLimit")), "in place of the handler's own")
	refused := ask("/api/x?y", "X-Api-Key: a", "Cookie: session=b")
	require.Equal(t, 429, refused.Response.StatusCode())
	require.Contains(t, string(refused.Response.Body()), `"violated-policies":["api"]`)
	require.NotEmpty(t, refused.Response.Header.Peek("Retry-After"))
	require.Equal(t, "application/problem+json", string(refused.Response.Header.ContentType()))
	require.Equal(t, 400, ask("/api/x", "X-Api-Key: a", "X-Api-Key: b", "Cookie: session=b").Response.StatusCode())
	inner = func(*fasthttp.RequestCtx) {
		inner = nil
		require.Equal(t, 429, ask("/slots").Response.StatusCode())
	}
	require.Equal(t, 200, ask("/slots").Response.StatusCode())
	require.Nil(t, inner)
}
