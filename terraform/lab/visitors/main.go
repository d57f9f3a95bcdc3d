// Command visitors acts as a few hundred clients of the lab, to give the console something to show:
// most are modest, one exceeds its limit, one guesses passwords, and one comes by every region. Each
// asks the lab's DNS router for its PoP, so drains and failovers move it. The request rate is fixed,
// however the edges answer.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"os"
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
	// mostRate prevents accidental overload of the lab; make loadtest is for that.
	mostRate = 2000
)

func main() {
	server := flag.String("dns", "127.1.0.53:5300", "`ADDRESS:PORT` of the DNS router")
	zone := flag.String("zone", "edge.lab.test", "its `ZONE`")
	port := flag.String("port", "8080", "`PORT` of the edges")
	rate := flag.Int("rate", 60, "requests a `SECOND`, all together, 1 to 2000")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if *rate < 1 || *rate > mostRate {
		fmt.Fprintf(os.Stderr, "visitors: -rate %d: must be 1 to %d\n", *rate, mostRate)
		os.Exit(2)
	}
	ask := func(ctx context.Context, network netip.Prefix) ([]netip.Addr, time.Duration, error) {
		return resolve(ctx, *server, *zone, network)
	}
	if err := visit(ctx, &resolver{ask: ask}, *port, *rate, rand.IntN); err != nil {
		fmt.Fprintln(os.Stderr, "visitors:", err)
		os.Exit(1)
	}
}

// visit sends requests until ctx ends. It fails only if DNS does not answer at first.
func visit(ctx context.Context, sites *resolver, port string, rate int, random func(int) int) error {
	if _, err := sites.addresses(ctx, networks[0]); err != nil {
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
	tick := time.NewTicker(time.Second / time.Duration(rate))
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		v := visitOf(i, random)
		select {
		case slots <- struct{}{}:
			go func() {
				defer func() { <-slots }()
				list, err := sites.addresses(ctx, v.from)
				if err != nil {
					return // and asks again with the next request
				}
				r, err := http.NewRequestWithContext(ctx, v.method, "http://"+net.JoinHostPort(list[int(v.pick%uint64(len(list)))].String(), port)+v.path, strings.NewReader(""))
				if err != nil {
					return
				}
				r.Header.Set("X-Forwarded-For", v.client)
				if resp, err := client.Do(r); err == nil { // an edge that is gone is one to look at
					_, _ = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
				}
			}()
		default:
		}
	}
}

// networks are those of the modest clients: each PoP of the default lab has one.
var networks = []netip.Prefix{
	netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("192.0.2.0/24"),
	netip.MustParsePrefix("198.18.1.0/24"), netip.MustParsePrefix("198.18.2.0/24"), netip.MustParsePrefix("198.18.3.0/24"),
}

// aVisit is one request.
type aVisit struct {
	method, path, client string
	from                 netip.Prefix // the network that DNS is told
	pick                 uint64       // chooses among the addresses
}

// visitOf returns the visit with a number.
func visitOf(i int, random func(int) int) aVisit {
	paths := []string{"/", "/products", "/products/4711", "/cart", "/api/v1/orders", "/api/v1/search"}
	v := aVisit{method: http.MethodGet, path: paths[random(len(paths))], from: networks[random(len(networks))], pick: uint64(random(1 << 16))}
	host := v.from.Addr().As4()
	host[3] = byte(1 + random(200))
	v.client = netip.AddrFrom4(host).String()
	switch {
	case i%2 == 0: // one client asks too often
		v.path, v.client, v.from = "/api/v1/search", "203.0.113.66", networks[1]
	case i%25 == 1: // another guesses passwords
		v.method, v.path, v.client, v.from = http.MethodPost, "/login", "203.0.113.99", networks[1]
	case i%10 == 3: // a third uses resolvers everywhere, to get a limit in each region
		v.path, v.client = "/api/v1/orders", "192.0.2.210"
	}
	return v
}
