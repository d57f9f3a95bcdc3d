package edge

import (
	"context"
	_ "embed" // the sample rules
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/weir-edge/weir/pkg/region/consul"
)

// Of the built-in origin: how many requests to /busy it works on at once, and for how long.
const (
	busyWorkers = 2
	busyTime    = 100 * time.Millisecond
)

// StartOrigin starts an origin that echoes the request line. It ends with ctx.
func StartOrigin(ctx context.Context, log *slog.Logger) (addr string, err error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("start the built-in origin: %w", err)
	}
	workers := make(chan struct{}, busyWorkers)
	server := &http.Server{
		ReadHeaderTimeout: 5 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/slow": // to try concurrency limits and draining
				_ = consul.Pause(r.Context(), 2*time.Second)
			case "/busy": // to try the shedder: requests queue for its workers
				workers <- struct{}{}
				_ = consul.Pause(r.Context(), busyTime)
				<-workers
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
