package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/weir-edge/weir/tools/internal/paired"
	"github.com/weir-edge/weir/tools/internal/report"
)

// gatewayKind is a program that can ask weir, configured as in docs/GATEWAYS.md.
type gatewayKind struct {
	name, block string
	listen      string // of the node
	with        string // a second block, referenced by the first
	alone       string // a configuration that does not ask weir
	change      func(b *bench, conf string) string
	command     func(b *bench, file string) (string, []string)
}

var gatewayKinds = []gatewayKind{
	{
		name: "nginx", block: "nginx.conf", listen: "decide",
		alone: `events {}
http {
  upstream origin { server 127.0.0.1:9000; keepalive 64; }
  server {
    listen 8000;
    location / { proxy_http_version 1.1; proxy_set_header Connection ""; proxy_pass http://origin; }
  }
}
`,
		change: func(b *bench, conf string) string {
			dir, _ := os.MkdirTemp(b.dir, "nginx-")
			return strings.NewReplacer(
				"events {}", fmt.Sprintf("worker_processes 1; daemon off; pid %[1]s/nginx.pid; error_log %[1]s/nginx-error.log crit;\nevents { worker_connections 4096; }", dir),
				"http {\n", fmt.Sprintf("http {\n  access_log off; keepalive_requests 100000000;\n  client_body_temp_path %[1]s; proxy_temp_path %[1]s; fastcgi_temp_path %[1]s; uwsgi_temp_path %[1]s; scgi_temp_path %[1]s;\n", dir),
			).Replace(conf)
		},
		command: func(b *bench, file string) (string, []string) { return "nginx", []string{"-c", file, "-p", b.dir} },
	},
	{
		name: "Caddy", block: "Caddyfile", listen: "decide",
		alone: "{\n  admin off\n  auto_https off\n}\nhttp://:8000 {\n  reverse_proxy 127.0.0.1:9000\n}\n",
		command: func(b *bench, file string) (string, []string) {
			return "env", []string{"XDG_CONFIG_HOME=" + b.dir, "XDG_DATA_HOME=" + b.dir, "caddy", "run", "--adapter", "caddyfile", "--config", file}
		},
	},
	{
		name: "HAProxy, SPOE", block: "haproxy-spoe.cfg", listen: "spoe", with: "weir.spoe",
		alone:   haproxyAlone,
		command: func(_ *bench, file string) (string, []string) { return "haproxy", []string{"-db", "-f", file} },
	},
	{
		name: "HAProxy, Lua", block: "haproxy.cfg", listen: "decide", with: "weir.lua",
		alone: haproxyAlone,
		change: func(_ *bench, conf string) string { // HAProxy's own proxy in front of the nodes
			return strings.ReplaceAll(conf, "127.0.0.1:8085", freeAddr())
		},
		command: func(_ *bench, file string) (string, []string) { return "haproxy", []string{"-db", "-f", file} },
	},
}

const haproxyAlone = `defaults
  mode http
  timeout connect 1s
  timeout client 60s
  timeout server 60s
frontend clients
  bind :8000
  default_backend origin
backend origin
  server origin 127.0.0.1:9000
`

// blockOf returns a file from deploy, so that the benchmark measures what users copy.
func blockOf(name string) (string, error) {
	for _, folder := range []string{"caddy", "haproxy", "nginx"} {
		if file, err := os.ReadFile(filepath.Join("deploy", folder, name)); err == nil {
			return string(file), nil
		}
	}
	return "", fmt.Errorf("deploy has no %s", name)
}

// startGateway runs a gateway that asks the node at this address, or no node if it is "".
func (b *bench) startGateway(kind gatewayKind, name, addr, origin, node string) error {
	conf, second := kind.alone, ""
	var err error
	if node != "" {
		if conf, err = blockOf(kind.block); err != nil {
			return err
		}
		if kind.with != "" {
			if second, err = blockOf(kind.with); err != nil {
				return err
			}
		}
	}
	const between = "\n-- between --\n"
	conf += between + second
	if kind.change != nil {
		conf = kind.change(b, conf)
	}
	conf = strings.NewReplacer("listen 8000;", "listen "+addr+";", "http://:8000", "http://"+addr, "bind :8000", "bind "+addr,
		"127.0.0.1:8083", node, "127.0.0.1:8084", node, "127.0.0.1:9000", origin).Replace(conf)
	conf, second, _ = strings.Cut(conf, between)
	if second != "" {
		conf = strings.ReplaceAll(conf, " "+kind.with, " "+b.write(name+"-"+kind.with, second))
	}
	program, args := kind.command(b, b.write(name+"-"+kind.block, conf))
	return b.start(addr, program, args...)
}

// gateways measures the cost of asking weir in each gateway: with one connection, where nothing
// queues, and with 64.
func (b *bench) gateways(ctx context.Context) error {
	origin, _, redis, err := b.proxies()
	if err != nil {
		return err
	}
	script := b.write("users.lua", fmt.Sprintf(userScript, users, 1))
	var all []*paired.Contender
	for i, kind := range gatewayKinds {
		node, alone, asking := freeAddr(), freeAddr(), freeAddr()
		name := fmt.Sprint("gateways-", i)
		const rule = `  - {id: asked, key: ["header:X-User"], algorithm: rolling_window, limit: 1000, window: 1m}` + "\n"
		if _, err := b.startEdge(name, origin, redis, rule, fmt.Sprintf("  %s: {address: %q, from: [127.0.0.1]}\n", kind.listen, node)); err != nil {
			return err
		}
		if err := b.startGateway(kind, name+"-alone", alone, origin, ""); err != nil {
			return err
		}
		if err := b.startGateway(kind, name, asking, origin, node); err != nil {
			return err
		}
		for _, load := range [][]string{{"-t1", "-c1"}, nil} {
			for _, addr := range []string{alone, asking} {
				all = append(all, &b.by(kind.name, addr, false, append([]string{"-s", script}, load...)...).Contender)
			}
		}
	}
	if err := paired.Run(ctx, b.length, all...); err != nil {
		return err
	}
	t := &report.Table{Name: "gateways", Title: fmt.Sprintf("A call to weir for each request, one strict check in Redis. Median of %d rounds of %v", b.length.Least, b.duration),
		Head: []string{"", "one request: alone", "with weir", "adds", "requests per second, 64 connections: alone", "with weir", "ratio"}}
	for i, kind := range gatewayKinds {
		of := all[4*i : 4*i+4]
		rate := func(c *paired.Contender) float64 { return c.Median(func(s paired.Sample) float64 { return s.Rate }) }
		alone, asking := time.Duration(1e9/rate(of[0])), time.Duration(1e9/rate(of[1]))
		throughput := []string{"", "", ""} // of nginx: the table forward has it, from longer rounds
		if kind.name != "nginx" {
			ratio, fault := of[3].Ratio(of[2])
			throughput = []string{whole(rate(of[2])), whole(rate(of[3])), ratioText(ratio, fault)}
		}
		t.Add(append([]string{kind.name, micros(alone), micros(asking), micros(asking - alone)}, throughput...)...)
	}
	fmt.Println(t.Text())
	b.tables = append(b.tables, t)
	return ctx.Err()
}

func micros(d time.Duration) string { return fmt.Sprintf("%d µs", d.Microseconds()) }
