package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// outcomes count what became of the requests of a class.
type outcomes struct {
	sent, answered, byLevel, byCap atomic.Int64
	slowest                        atomic.Int64 // of those answered, in nanoseconds
}

// answer counts an answered request.
func (o *outcomes) answer(took time.Duration) {
	o.answered.Add(1)
	for was := o.slowest.Load(); int64(took) > was && !o.slowest.CompareAndSwap(was, int64(took)); {
		was = o.slowest.Load()
	}
}

// overload sends a node of -dev more than its origin's /busy serves, and prints which requests
// were answered and which shed. A fast closed loop would not do: it ends before the level reacts.
func overload(ctx context.Context, addr string, stdout io.Writer) error {
	url := "http://" + addr + "/busy"
	fmt.Fprintf(stdout, "sending 100 test and 4 critical requests per second for 5 s to %s, which serves 20 per second\n", url)
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}, Timeout: 30 * time.Second}
	defer client.CloseIdleConnections()
	var all sync.WaitGroup
	var critical, test outcomes
	send := func(o *outcomes, class, from string) {
		o.sent.Add(1)
		began := time.Now()
		all.Go(func() {
			switch reason, err := askBusy(ctx, client, url, class, from); {
			case err != nil:
				stop(err)
			case reason == "":
				o.answer(time.Since(began))
			case strings.HasSuffix(reason, ";kind=level"):
				o.byLevel.Add(1)
			default:
				o.byCap.Add(1)
			}
		})
	}
	// On a slow machine ticks are lost, and the requests become fewer per second, but no bursts.
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for i := range 500 {
		select {
		case <-ctx.Done():
		case <-tick.C:
			send(&test, "test", fmt.Sprintf("203.0.113.%d", i%250))
			if i%25 == 0 {
				send(&critical, "critical", fmt.Sprintf("198.51.100.%d", i/25))
			}
		}
	}
	all.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	fmt.Fprintln(stdout, "class     sent  answered  slowest  shed by level  shed by cap")
	for _, line := range []struct {
		class string
		o     *outcomes
	}{{"critical", &critical}, {"test", &test}} {
		slowest := fmt.Sprintf("%.1f s", time.Duration(line.o.slowest.Load()).Seconds())
		fmt.Fprintf(stdout, "%-8s  %4d  %8d  %7s  %13d  %11d\n", line.class, line.o.sent.Load(), line.o.answered.Load(), slowest, line.o.byLevel.Load(), line.o.byCap.Load())
	}
	return nil
}

// askBusy returns why a request was shed; empty if it was answered.
func askBusy(ctx context.Context, client *http.Client, url, class, from string) (reason string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	req.Header.Set("X-Weir-Class", class)
	req.Header.Set("X-Forwarded-For", from)
	resp, err := client.Do(req)
	if err != nil {
		return "", fmt.Errorf("%w; run edge -dev in another terminal", err)
	}
	defer resp.Body.Close()
	if _, err = io.Copy(io.Discard, resp.Body); err != nil {
		return "", err
	}
	reason = resp.Header.Get("Weir-Shed-Reason")
	if resp.StatusCode != http.StatusOK && reason == "" {
		return "", fmt.Errorf("%s answered %s, so it is no node of edge -dev as it starts; run a new one", url, resp.Status)
	}
	return reason, nil
}
