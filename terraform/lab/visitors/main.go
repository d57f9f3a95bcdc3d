// Command visitors acts as a few hundred clients of the lab's edges, to give the console
// something to show: most are modest, one exceeds its limit, and one guesses passwords. The
// request rate is fixed, however the edges answer.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

const (
	// mostAtOnce bounds the requests in flight; others are dropped.
	mostAtOnce = 32
	// patience bounds a request.
	patience = 5 * time.Second
	// again is how often to list the edges again: PoPs come and go.
	again = 10 * time.Second
	// mostRate prevents accidental overload of the lab; make loadtest is for that.
	mostRate = 2000
)

func main() {
	regionctl := flag.String("regionctl", "bin/regionctl", "`PROGRAM` to ask for the edges")
	fleet := flag.String("fleet", ".lab/fleet.yaml", "its fleet `FILE`")
	rate := flag.Int("rate", 60, "requests a `SECOND`, all together, 1 to 2000")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if *rate < 1 || *rate > mostRate {
		fmt.Fprintf(os.Stderr, "visitors: -rate %d: must be 1 to %d\n", *rate, mostRate)
		os.Exit(2)
	}
	edges := func(ctx context.Context) ([]string, error) { return edgesOf(ctx, *regionctl, *fleet) }
	if err := visit(ctx, edges, *rate, rand.IntN); err != nil {
		fmt.Fprintln(os.Stderr, "visitors:", err)
		os.Exit(1)
	}
}

// edgesOf returns the public addresses of all registered edges.
func edgesOf(ctx context.Context, regionctl, fleet string) (list []string, err error) {
	out, err := exec.CommandContext(ctx, regionctl, "--fleet", fleet, "rules", "status", "-o", "json").Output()
	var answer struct {
		Regions []struct {
			Nodes []struct {
				Address string `json:"address"`
			} `json:"nodes"`
		} `json:"regions"`
	}
	// regionctl also exits with status 3 if edges run different versions.
	if wrong := json.Unmarshal(out, &answer); wrong != nil {
		return nil, errors.Join(err, wrong)
	}
	for _, r := range answer.Regions {
		for _, n := range r.Nodes {
			list = append(list, n.Address)
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%s: no edge is registered", fleet)
	}
	return list, nil
}

// visit sends requests until ctx ends. It fails only if it finds no edge at first.
func visit(ctx context.Context, edges func(context.Context) ([]string, error), rate int, random func(int) int) error {
	at, err := edges(ctx)
	if err != nil {
		return err
	}
	transport := &http.Transport{MaxIdleConnsPerHost: mostAtOnce}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: patience}
	slots := make(chan struct{}, mostAtOnce)
	defer func() {
		for range mostAtOnce { // until all have their answers
			slots <- struct{}{}
		}
	}()
	tick, look := time.NewTicker(time.Second/time.Duration(rate)), time.NewTicker(again)
	defer tick.Stop()
	defer look.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return nil
		case <-look.C:
			if now, err := edges(ctx); err == nil {
				at = now
			}
			continue
		case <-tick.C:
		}
		r := request(ctx, at, i, random)
		select {
		case slots <- struct{}{}:
			go func() {
				defer func() { <-slots }()
				if resp, err := client.Do(r); err == nil { // an edge that is gone is one to look at
					_, _ = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
				}
			}()
		default:
		}
	}
}

// request returns the request with a number.
func request(ctx context.Context, edges []string, i int, random func(int) int) *http.Request {
	paths := []string{"/", "/products", "/products/4711", "/cart", "/api/v1/orders", "/api/v1/search"}
	method, path, client, edge := http.MethodGet, paths[random(len(paths))], fmt.Sprintf("198.18.%d.%d", random(2), 1+random(200)), edges[random(len(edges))]
	switch {
	case i%2 == 0: // one client asks too often, always the same edge
		path, client, edge = "/api/v1/search", "203.0.113.66", edges[0]
	case i%25 == 1:
		method, path, client = http.MethodPost, "/login", "203.0.113.99"
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://"+edge+path, strings.NewReader(""))
	if err != nil { // an address that is none
		r, _ = http.NewRequestWithContext(ctx, method, "http://127.0.0.1:1/", nil)
	}
	r.Header.Set("X-Forwarded-For", client)
	return r
}
