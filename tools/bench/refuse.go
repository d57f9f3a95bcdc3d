package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/weir-edge/weir/tools/internal/paired"
)

// processes is how many processes of each server take turns in the comparison of refusals.
// Processes of one program differ by a percent or two, which more rounds with a single process
// would not average out.
const processes = 5

// starter starts one server and returns its address.
type starter func(i int) (addr string, err error)

// fleet returns a contender whose processes take turns. All answers must have this status.
func (b *bench) fleet(name string, ours bool, status int, start starter) (*contender, error) {
	var addrs []string
	for i := range processes {
		addr, err := start(i)
		if err != nil {
			return nil, err
		}
		if err := answers(addr, status, 10*time.Second); err != nil {
			return nil, err
		}
		addrs = append(addrs, addr)
	}
	return &contender{ours: ours, Contender: paired.Contender{Name: name, Measure: func(ctx context.Context, round int) (paired.Sample, error) {
		return b.wrk(ctx, addrs[round%len(addrs)])
	}}}, nil
}

// answers waits until a server answers with this status.
func answers(addr string, status int, within time.Duration) error {
	for deadline := time.Now().Add(within); ; time.Sleep(10 * time.Millisecond) {
		resp, err := http.Get("http://" + addr + "/hello")
		if err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			if resp.StatusCode == status {
				return nil
			}
			err = fmt.Errorf("%s answers %d, not %d", addr, resp.StatusCode, status)
		}
		if time.Now().After(deadline) {
			return err
		}
	}
}

// bare starts the bare server of a role.
func (b *bench) bare(role string) starter {
	return func(int) (string, error) {
		addr := freeAddr()
		return addr, b.self(addr, role)
	}
}

// refusing compares refusals with a bare server that sends the same bytes. The other contenders
// run only in every fifth round, for orientation.
func (b *bench) refusing(ctx context.Context, name, title string, status int, edge starter, others ...*contender) error {
	same, err := b.fleet(fmt.Sprintf("bare fasthttp %d, weir's message", status), false, status, b.bare(fmt.Sprint("refuse-", status)))
	if err != nil {
		return err
	}
	short, err := b.fleet(fmt.Sprintf("bare fasthttp %d, a short message", status), false, status, b.bare(fmt.Sprint("refuse-short-", status)))
	if err != nil {
		return err
	}
	ours, err := b.fleet("weir", true, status, edge)
	if err != nil {
		return err
	}
	ours.goal = 0.93
	all := []*contender{same, ours, short}
	for _, c := range append(others, short) {
		c.Every, c.Loose = 5, true
	}
	return b.compare(ctx, name, title, "requests", append(all, others...)...)
}

// everything is the configuration of an edge with rules and with a shedder whose classes match by
// path, method and header.
const everything = `upstream: {timeout: 10m}
shedder:
  enabled: true
  user: ["header:X-Api-Key"]
  default_class: read
  classes:
    - {name: critical, match: [{paths: [/checkout/*]}], max_in_flight: %[1]d}
    - {name: write, match: [{methods: [POST]}], max_in_flight: %[1]d}
    - {name: read, max_in_flight: %[1]d}
    - {name: test, match: [{headers: {X-Weir-Class: test}}], max_in_flight: %[1]d}
`

// refuse measures one key that has used up its limit.
func (b *bench) refuse(ctx context.Context) error {
	origin, nginx := freeAddr(), freeAddr()
	if err := b.self(origin, "origin"); err != nil {
		return err
	}
	if err := b.startNginx(nginx, origin, "limit_req_zone $binary_remote_addr zone=z:1m rate=1r/m;", "limit_req zone=z; limit_req_status 429;"); err != nil {
		return err
	}
	redis, err := b.startRedis()
	if err != nil {
		return err
	}
	return b.refusing(ctx, "refuse", fmt.Sprintf("Refusing one hot key from memory, 429, %d connections", connections), http.StatusTooManyRequests, func(i int) (string, error) {
		const rule = "  - {id: per-client, key: [client_ip], algorithm: rolling_window, limit: 1, window: 10m}\n"
		return b.startEdge(fmt.Sprint("refuse-", i), origin, redis, rule, fmt.Sprintf(everything, 10_000))
	}, b.by("nginx limit_req", nginx, false))
}

// shed measures a node that refuses everything: it may have one request in flight, and has it.
func (b *bench) shed(ctx context.Context) error {
	origin, _, redis, err := b.proxies()
	if err != nil {
		return err
	}
	const rule = "  - {id: per-client, key: [client_ip], algorithm: rolling_window, limit: 1000, window: 10m}\n"
	return b.refusing(ctx, "shed", fmt.Sprintf("Shedding everything, 503, %d connections", connections), http.StatusServiceUnavailable, func(i int) (string, error) {
		addr, err := b.startEdge(fmt.Sprint("shed-", i), origin, redis, rule, fmt.Sprintf(everything, 1))
		if err != nil {
			return "", err
		}
		return addr, b.hold(addr)
	})
}

// hold sends a request that the origin never answers, and retries if it is answered: the edge
// sheds it while it still serves another.
func (b *bench) hold(addr string) error {
	for try := 1; ; try++ {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			return err
		}
		b.held = append(b.held, c)
		if _, err := c.Write([]byte("GET /hold HTTP/1.1\r\nHost: bench\r\n\r\n")); err != nil {
			return err
		}
		if err := c.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
			return err
		}
		_, err = c.Read(make([]byte, 1))
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return answers(addr, http.StatusServiceUnavailable, time.Second)
		}
		if err != nil || try == 10 {
			return fmt.Errorf("%s answers a request that its origin holds: %w", addr, cmp.Or(err, errors.New("10 times")))
		}
	}
}

func (b *bench) startNginx(addr, origin, zone, limit string) error {
	config := b.write("nginx.conf", fmt.Sprintf(`
worker_processes 1;
daemon off;
pid %[1]s/nginx.pid;
error_log %[1]s/nginx-error.log crit;
events { worker_connections 4096; }
http {
  access_log off;
  keepalive_requests 100000000;
  client_body_temp_path %[1]s; proxy_temp_path %[1]s; fastcgi_temp_path %[1]s; uwsgi_temp_path %[1]s; scgi_temp_path %[1]s;
  %[2]s
  upstream origin { server %[3]s; keepalive 128; }
  server {
    listen %[4]s;
    location / { %[5]s proxy_http_version 1.1; proxy_set_header Connection ""; proxy_pass http://origin; }
  }
}
`, b.dir, zone, origin, addr, limit))
	return b.start(addr, "nginx", "-c", config, "-p", b.dir)
}
