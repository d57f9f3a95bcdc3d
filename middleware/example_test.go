package middleware_test

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/weir-edge/weir/middleware"
)

func Example() {
	limiter, err := middleware.New(middleware.Config{Rules: []byte(`
rules:
  - {id: per-client, match: {paths: ["/api/*"]}, key: [client_ip], limit: 2, window: 1h}
`)})
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "hello") })
	server := httptest.NewServer(limiter.Handler(mux))
	defer server.Close()

	for range 3 {
		resp, err := http.Get(server.URL + "/api/users")
		if err != nil {
			log.Fatal(err)
		}
		resp.Body.Close()
		fmt.Println(resp.StatusCode, resp.Header.Get("RateLimit-Policy"))
	}
	// Output:
	// 200 "per-client";q=2;w=3600
	// 200 "per-client";q=2;w=3600
	// 429 "per-client";q=2;w=3600
}

func ExampleLimiter_SetRules() {
	limiter, err := middleware.New(middleware.Config{Rules: []byte("rules: []")})
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	fmt.Println(limiter.SetRules([]byte("rules: [{id: a, key: [client_ip], limit: 10, window: 1d}]")))
	// Output: Rules: rules[0].window: has no unit for days or weeks; write 24h (got "1d")
}
