package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/valyala/fasthttp"

	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/redisstore"
	"github.com/weir-edge/weir/tools/internal/paired"
	"github.com/weir-edge/weir/tools/internal/report"
	"github.com/weir-edge/weir/tools/internal/svg"
)

// latencyRates are everyday loads: up to a third of what a node reaches on two cores.
var latencyRates = []int{500, 2_000, 5_000, 10_000}

// The contenders that others are compared with.
const (
	bareProxy  = "bare fasthttp reverse proxy"
	plainProxy = "the same, one plain EVALSHA per request"
	weirMemory = "weir, memory store"
	weirStrict = "weir, Redis, strict"
	weirLeased = "weir, Redis, leased"
)

// compared are the contenders whose differences have intervals, which takes many rounds. The
// others take part in one round of seldom.
var compared = []string{bareProxy, plainProxy, weirMemory, weirStrict, weirLeased}

const seldom = 5

// latency measures how long requests take at fixed rates.
func (b *bench) latency(ctx context.Context) error {
	all, err := b.everyday(ctx)
	if err != nil {
		return err
	}
	t := &report.Table{Name: "latency", Head: []string{"p50 / p99, µs, at"}}
	added := &report.Table{Name: "latency-added", Head: []string{"requests per second", "a plain call adds", "strict adds to memory", "of the plain call's", "memory adds to bare", "leased adds to memory"},
		Title: "What each adds to the p50, µs, with 95% intervals"}
	medians, tails := svg.Plane{Title: "p50, µs", Under: "requests per second"}, svg.Plane{Title: "p99, µs", Under: "requests per second"}
	rows := make([][]string, len(all))
	for i, c := range all {
		rows[i] = []string{c.name}
		medians.Curves = append(medians.Curves, svg.Curve{Name: c.name})
		tails.Curves = append(tails.Curves, svg.Curve{Name: c.name})
	}
	for _, rate := range latencyRates {
		list := make([]*paired.Contender, len(all))
		samples := map[string]*paired.Contender{}
		for i, c := range all {
			list[i] = &paired.Contender{Name: c.name, Measure: func(ctx context.Context, _ int) (paired.Sample, error) {
				traced := make(chan error, 1)
				file := strings.NewReplacer(" ", "-", ",", "", ":", "", "/", "").Replace(fmt.Sprint(rate, " ", c.name, ".trace"))
				go func() { traced <- b.inspect(c.addr, "trace", file) }()
				sample, err := b.openLoop(ctx, rate, c.connect)
				return sample, cmp.Or(err, <-traced)
			}}
			if !slices.Contains(compared, c.name) {
				list[i].Every = seldom
			}
			samples[c.name] = list[i]
		}
		if err := paired.Run(ctx, b.length, list...); err != nil {
			return err
		}
		text := svg.Number(float64(rate))
		t.Head = append(t.Head, text+" per second")
		medians.Places, tails.Places = append(medians.Places, text), append(tails.Places, text)
		for i, c := range list {
			p50, p99 := c.Median(func(s paired.Sample) float64 { return microseconds(s.P50) }), c.Median(func(s paired.Sample) float64 { return microseconds(s.P99) })
			rows[i] = append(rows[i], whole(p50)+" / "+whole(p99))
			medians.Curves[i].Values, tails.Curves[i].Values = append(medians.Curves[i].Values, p50), append(tails.Curves[i].Values, p99)
		}
		difference := func(a, b string) func(round []int) float64 {
			return func(rounds []int) float64 { return middle(samples[a], rounds) - middle(samples[b], rounds) }
		}
		plain, strict := difference(plainProxy, bareProxy), difference(weirStrict, weirMemory)
		n := len(list[0].Samples)
		added.Add(text, interval(n, whole, plain), interval(n, whole, strict),
			interval(n, svg.Number, func(rounds []int) float64 { return strict(rounds) / plain(rounds) }),
			interval(n, whole, difference(weirMemory, bareProxy)), interval(n, whole, difference(weirLeased, weirMemory)))
		fmt.Printf("%s per second: %s\n", text, added.Rows[len(added.Rows)-1][1:])
		t.Title = latencyTitle(n, b.duration)
	}
	t.Rows = rows
	t.Charts = []report.Chart{{Alt: "Latency at fixed rates, as curves", Picture: &svg.Lines{Title: t.Title, Panels: []svg.Plane{medians, tails}}}}
	fmt.Println(t.Text(), added.Text())
	b.tables = append(b.tables, t, added)
	return ctx.Err()
}

// latencyTitle says how many rounds each row is the median of.
func latencyTitle(rounds int, length time.Duration) string {
	title := fmt.Sprintf("Latency at fixed rates, %d connections, from the moment a request was due. Median of %d %s of %v", connections, rounds, plural("round", rounds), length)
	if others := (rounds + seldom - 1) / seldom; others < rounds {
		title += fmt.Sprintf("; of %d in rows that the next table does not compare", others)
	}
	return title
}

func microseconds(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
func whole(v float64) string               { return svg.Number(math.Round(v) + 0) } // 0, not -0

// middle is the median over rounds of a contender's p50, in µs.
func middle(c *paired.Contender, rounds []int) float64 {
	values := make([]float64, len(rounds))
	for i, r := range rounds {
		values[i] = microseconds(c.Samples[r].P50)
	}
	slices.Sort(values)
	return (values[(len(values)-1)/2] + values[len(values)/2]) / 2
}

// interval formats a figure of n rounds with its 95% interval, by drawing rounds anew
// 2,000 times (a bootstrap).
func interval(n int, format func(float64) string, of func(rounds []int) float64) string {
	rounds := make([]int, n)
	for i := range rounds {
		rounds[i] = i
	}
	figure := of(rounds)
	r := rand.New(rand.NewPCG(1, 1))
	drawn := make([]float64, 2000)
	for i := range drawn {
		for j := range rounds {
			rounds[j] = r.IntN(n)
		}
		drawn[i] = of(rounds)
	}
	slices.Sort(drawn)
	return fmt.Sprintf("%s (%s to %s)", format(figure), format(drawn[len(drawn)*25/1000]), format(drawn[len(drawn)*975/1000]))
}

// served is a contender of latency.
type served struct {
	name, addr string
	connect    func() call
}

// everyday starts the contenders of latency: proxies without encryption, then those with TLS
// and HTTP/2.
func (b *bench) everyday(ctx context.Context) ([]served, error) {
	origin, bare, single, err := b.proxies()
	if err != nil {
		return nil, err
	}
	cluster, err := b.startCluster(ctx)
	if err != nil {
		return nil, err
	}
	certificate, key, err := b.certificate()
	if err != nil {
		return nil, err
	}
	plain, nginx, bareTLS := freeAddr(), freeAddr(), freeAddr()
	if err := cmp.Or(
		b.self(plain, "proxy-plain", "-origin", origin, "-redis", single),
		b.startNginx(nginx, origin, "limit_req_zone $http_x_user zone=z:64m rate=1000r/s;", "limit_req zone=z burst=1000 nodelay;"),
		b.self(bareTLS, "proxy", "-origin", origin, "-certificate", certificate, "-key", key),
	); err != nil {
		return nil, err
	}
	all := []served{
		{bareProxy, bare, overHTTP1("http://" + bare)},
		{plainProxy, plain, overHTTP1("http://" + plain)},
		{"nginx proxy, limit_req (this machine only)", nginx, overHTTP1("http://" + nginx)},
	}
	secure := fmt.Sprintf("  tls: {cert_file: %q, key_file: %q}\n  http2: {tls: true}\n", certificate, key)
	const perUser, perTenant = `  - {id: per-user, key: ["header:X-User"], algorithm: leaky_bucket, limit: 1000, burst: 1000, window: 1m}` + "\n",
		`  - {id: per-tenant, key: ["header:X-Tenant"], algorithm: token_bucket, limit: 100000000, window: 1m, consistency: %s}` + "\n"
	for _, w := range []struct {
		name, redis, rule, more string
		connect                 func(string) func() call
	}{
		{weirMemory, "", perUser, "", overHTTP1},
		{weirStrict, single, perUser, "", overHTTP1},
		{"weir, Redis Cluster, strict", cluster, perUser, "", overHTTP1},
		{weirLeased, single, fmt.Sprintf(perTenant, "leased"), "", overHTTP1},
		{"weir, Redis, reported", single, fmt.Sprintf(perTenant, "reported"), "", overHTTP1},
		{"TLS: weir, memory store", "", perUser, secure, overHTTP1},
		{"TLS: weir, Redis, strict", single, perUser, secure, overHTTP1},
		{"TLS, HTTP/2: weir, memory store", "", perUser, secure, overHTTP2},
		{"TLS, HTTP/2: weir, Redis, strict", single, perUser, secure, overHTTP2},
	} {
		if w.more == secure && len(all) == 8 {
			all = append(all, served{"TLS: bare fasthttp reverse proxy", bareTLS, overHTTP1("https://" + bareTLS)})
		}
		addr, err := b.startEdge(fmt.Sprint("latency-", len(all)), origin, w.redis, w.rule, w.more)
		if err != nil {
			return nil, err
		}
		scheme := "http://"
		if w.more == secure {
			scheme = "https://"
		}
		all = append(all, served{w.name, addr, w.connect(scheme + addr)})
	}
	return all, nil
}

// overHTTP1 returns calls over a connection each. Users are drawn uniformly, the tenant is
// one.
func overHTTP1(url string) func() call {
	return func() call {
		client := &fasthttp.Client{MaxConnsPerHost: 1, TLSConfig: &tls.Config{InsecureSkipVerify: true}} // a certificate of this run
		req, resp := &fasthttp.Request{}, &fasthttp.Response{}
		req.SetRequestURI(url + "/hello")
		req.Header.Set("X-Tenant", "big")
		return func(i int) error {
			req.Header.Set("X-User", user(i))
			if err := client.Do(req, resp); err != nil {
				return err
			}
			return wanted(resp.StatusCode())
		}
	}
}

// overHTTP2 returns calls that are streams of one connection.
func overHTTP2(url string) func() call {
	client := &http.Client{Transport: &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} // a certificate of this run
	return func() call {
		return func(i int) error {
			req, err := http.NewRequest(http.MethodGet, url+"/hello", nil)
			if err != nil {
				return err
			}
			req.Header.Set("X-Tenant", "big")
			req.Header.Set("X-User", user(i))
			resp, err := client.Do(req)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			if _, err := io.Copy(io.Discard, resp.Body); err != nil { // unread bodies would end in resets
				return err
			}
			return wanted(resp.StatusCode)
		}
	}
}

func wanted(status int) error {
	if status != http.StatusOK {
		return fmt.Errorf("status %d", status)
	}
	return nil
}

// user is whom request number i is of: a fixed shuffle of all users.
func user(i int) string { return fmt.Sprint("user-", i*7919%users) }

// plainCall makes a handler pass only the requests that Redis lets pass, by one EVALSHA of
// go-redis each, with weir's own script and arguments.
func plainCall(ctx context.Context, addr string, next fasthttp.RequestHandler) (fasthttp.RequestHandler, error) {
	client := redis.NewClient(&redis.Options{Addr: addr, PoolSize: connections})
	l := &limiter.Limit{Rule: "plain", Algorithm: limiter.LeakyBucket, Limit: perMinute, Burst: perMinute, Window: time.Minute}
	const none = "weir:{}:plain:lb"
	command, source := redisstore.Command(nil, []*limiter.Call{{Checks: []limiter.Check{{Limit: l, Key: []byte(none), Cost: 1}}, Times: 1}})
	if err := client.ScriptLoad(ctx, source).Err(); err != nil {
		return nil, err
	}
	at := slices.IndexFunc(command, func(arg any) bool { return fmt.Sprintf("%s", arg) == none })
	if at < 0 {
		return nil, fmt.Errorf("the command %q lacks its key", command)
	}
	return func(req *fasthttp.RequestCtx) {
		own := slices.Clone(command)
		own[at] = fmt.Appendf(nil, "weir:{%s}:plain:lb", req.Request.Header.Peek("X-User"))
		answer, err := client.Do(ctx, own...).Slice()
		if err != nil || len(answer) == 0 {
			req.Error(fmt.Sprint("redis: ", err), fasthttp.StatusBadGateway)
			return
		}
		next(req)
	}, nil
}
