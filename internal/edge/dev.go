package edge

import (
	"context"
	_ "embed" // the sample rules
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// SampleRules are the rules of -dev.
//
//go:embed sample-rules.yaml
var SampleRules string

// DevConfig is the configuration of -dev: memory store and the built-in origin at
// that address.
func DevConfig(origin string) *Config {
	c := Defaults()
	c.Store.Kind = "memory"
	c.Upstreams = []UpstreamConfig{{URL: "http://" + origin}}
	c.Shutdown.Delay = 0
	c.LegacyHeaders = true
	c.Log.Level = "info"
	return &c
}

// StartOrigin starts an origin that tells what it was asked. It ends with ctx.
func StartOrigin(ctx context.Context, log *slog.Logger) (addr string, err error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("start the built-in origin: %w", err)
	}
	server := &http.Server{
		ReadHeaderTimeout: 5 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/slow" { // for trying concurrency limits and draining
				select {
				case <-time.After(2 * time.Second):
				case <-r.Context().Done():
				}
			}
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			fmt.Fprintf(w, "hello from the origin: %s %s\n", r.Method, r.URL.RequestURI())
		}),
	}
	go func() {
		if err := server.Serve(ln); err != http.ErrServerClosed {
			log.Error("built-in origin", "error", err)
		}
	}()
	go func() { <-ctx.Done(); _ = server.Close() }()
	return ln.Addr().String(), nil
}
