// Command origin is the server behind the lab's edges: it immediately answers with the name of
// its region.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"
)

// The longest wait that a request may specify.
const longestWait = 30 * time.Second

func main() {
	listen := flag.String("listen", "127.0.0.1:9000", "`ADDRESS` to answer at")
	region := flag.String("region", "", "`NAME` of the region")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *listen, *region); err != nil {
		fmt.Fprintln(os.Stderr, "origin:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, listen, region string) error {
	ln, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: handler(region), ReadHeaderTimeout: 5 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ln) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil {
		return err
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// handler answers with the region and the request. ?wait=2s delays the answer, to keep requests
// in flight while a part of the lab is drained or lost. With &lane=ams1&workers=28, at most 28
// requests of that lane are delayed at a time; others queue. X-Behavior-Status sets the answer's
// status, and X-Behavior-Risk echoes the edge's judgment of the client.
func handler(region string) http.Handler {
	l := lanes{all: map[string]chan struct{}{}}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		leave, err := l.enter(r.Context(), query)
		if errors.Is(err, errGone) {
			return
		} else if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		defer leave()
		if text := query.Get("wait"); text != "" {
			wait, err := time.ParseDuration(text)
			if err != nil || wait < 0 || wait > longestWait {
				http.Error(w, fmt.Sprintf("wait must be a duration from 0s to %v", longestWait), http.StatusBadRequest)
				return
			}
			timer := time.NewTimer(wait)
			defer timer.Stop()
			select {
			case <-timer.C:
			case <-r.Context().Done():
				return
			}
		}
		w.Header().Set("Origin-Region", region)
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("X-Behavior-Risk", r.Header.Get("Weir-Risk"))
		if status, err := strconv.Atoi(r.Header.Get("X-Behavior-Status")); err == nil && status >= 200 && status < 600 {
			w.WriteHeader(status)
		}
		fmt.Fprintf(w, "hello from %s: %s %s\n", region, r.Method, r.URL.RequestURI())
	})
}
