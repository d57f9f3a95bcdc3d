// Command distance simulates the distance between the lab's regions: proxies between their edges
// delay messages, and can cut a region off.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
)

// link is the path from a region's edges to one edge of another region.
type link struct {
	From, To       string
	Listen, Target string
	Milliseconds   int64 `json:"round_trip_ms"`

	proxy *toxiproxy.Proxy
}

func main() {
	listen := flag.String("listen", "127.0.0.1:8474", "`ADDRESS` for POST /cut/REGION and /join/REGION")
	file := flag.String("links", "links.json", "the `FILE` of links")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *listen, *file); err != nil {
		fmt.Fprintln(os.Stderr, "distance:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, listen, file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	d := &distance{cut: map[string]bool{}}
	if err := json.Unmarshal(text, &d.links); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	defer d.close()
	if err := d.open(); err != nil {
		return err
	}
	ln, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: d, ReadHeaderTimeout: 5 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ln) }()
	select {
	case <-ctx.Done():
		return server.Close()
	case err := <-ended:
		return err
	}
}

// distance holds all links.
type distance struct {
	links []link

	mu  sync.Mutex
	cut map[string]bool // regions
}

func (d *distance) open() error {
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(prometheus.NewRegistry()), zerolog.Nop())
	for i := range d.links {
		l := &d.links[i]
		p := toxiproxy.NewProxy(server, l.From+" to "+l.Target, l.Listen, l.Target)
		if err := p.Start(); err != nil {
			return fmt.Errorf("%s: %w", l.Listen, err)
		}
		l.proxy = p
		for _, stream := range streams {
			if err := l.spoil("far", stream, "latency", fmt.Sprintf(`{"latency":%d}`, l.Milliseconds/2)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (d *distance) close() {
	for i := range d.links {
		if p := d.links[i].proxy; p != nil {
			p.Stop()
		}
	}
}

// streams are both directions of a link.
var streams = []string{"upstream", "downstream"}

func (l *link) spoil(name, stream, kind, attributes string) error {
	_, err := l.proxy.Toxics.AddToxicJson(strings.NewReader(fmt.Sprintf(`{"name":"%s %s","type":%q,"stream":%[2]q,"attributes":%[4]s}`, name, stream, kind, attributes)))
	return err
}

// set blocks messages between a region and the others, or lets them pass again.
func (d *distance) set(ctx context.Context, region string, cut bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	known := false
	var failed error
	for i := range d.links {
		l := &d.links[i]
		other := l.From
		if other == region {
			other = l.To
		} else if l.To != region {
			continue
		}
		if known = true; d.cut[region] == cut || d.cut[other] {
			continue // the other is cut off, so this link stays as it is
		}
		for _, stream := range streams {
			if cut {
				failed = errors.Join(failed, l.spoil("cut", stream, "timeout", `{"timeout":0}`))
			} else {
				failed = errors.Join(failed, l.proxy.Toxics.RemoveToxic(ctx, "cut "+stream))
			}
		}
	}
	if !known {
		return fmt.Errorf("no link leads to %q", region)
	}
	d.cut[region] = cut
	return failed
}

// ServeHTTP cuts a region off or joins it again. GET / reports that the links are open.
func (d *distance) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	verb, region, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	switch {
	case r.Method == http.MethodGet && verb == "":
		fmt.Fprintf(w, "%d links\n", len(d.links))
	case r.Method == http.MethodPost && (verb == "cut" || verb == "join"):
		if err := d.set(r.Context(), region, verb == "cut"); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
		}
	default:
		http.NotFound(w, r)
	}
}
