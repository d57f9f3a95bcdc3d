// Command tables measures the tables of algorithms that are published about rate
// limiters: how far each lets a limit be exceeded, what memory a client takes, how long
// an operation lasts, and how often Redis is asked. All contenders get the same load.
// docs/TABLES.md holds a run; make tables fills it.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/memory"
	"github.com/weir-edge/weir/pkg/limiter/redisstore"
)

func main() {
	doc := flag.String("doc", "", "write the tables into this Markdown `FILE`, between its comments")
	rounds := flag.Int("rounds", 5, "floods against each limit, for the worst")
	duration := flag.Duration("duration", 4*time.Second, "of each measurement of time and calls")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *doc, *rounds, *duration); err != nil {
		fmt.Fprintln(os.Stderr, "tables:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, doc string, rounds int, duration time.Duration) error {
	server, err := startRedis(ctx, redisstore.Single)
	if err != nil {
		return err
	}
	defer server.stop()
	cluster, err := startRedis(ctx, redisstore.Cluster)
	if err != nil {
		return err
	}
	defer cluster.stop()
	var tables []table
	for _, measure := range []func() (table, error){
		func() (table, error) { return overshoot(ctx, server, rounds) },
		func() (table, error) { return memoryTable(ctx, server) },
		func() (table, error) { return times(ctx, server, duration) },
		func() (table, error) { return calls(ctx, server, cluster, duration) },
	} {
		t, err := measure()
		if err != nil {
			return err
		}
		fmt.Println(t.text())
		tables = append(tables, t)
	}
	if doc == "" {
		return nil
	}
	text, err := os.ReadFile(doc)
	if err != nil {
		return err
	}
	for _, t := range tables {
		if text, err = regenerate(text, t.name, t.markdown()); err != nil {
			return fmt.Errorf("%s: %w", doc, err)
		}
	}
	return os.WriteFile(doc, text, 0o644)
}

// contender is an algorithm with what is published of it.
type contender struct {
	name                    string
	limit                   limiter.Limit
	overshoot, memory, time string
}

// contenders of a limit in a window. The published bucket of 50 % has half the limit as burst.
func contenders(limit int64, window time.Duration) []*contender {
	l := func(a limiter.Algorithm, burst int64, s limiter.Storage) limiter.Limit {
		return limiter.Limit{Rule: "t", Algorithm: a, Limit: limit, Window: window, Burst: burst, Storage: s}
	}
	return []*contender{
		{"fixed_window", l(limiter.FixedWindow, 0, limiter.Ring), "100 %", "8 B", "30 to 55 µs"},
		{"token_bucket, burst half the limit", l(limiter.TokenBucket, limit/2, limiter.Ring), "50 %", "12 to 16 B", "30 to 55 µs"},
		{"token_bucket, burst the limit (default)", l(limiter.TokenBucket, limit, limiter.Ring), "", "12 to 16 B", "30 to 55 µs"},
		{"sliding_window", l(limiter.SlidingWindow, 0, limiter.Ring), "", "16 B", ""},
		{"rolling_window, ring", l(limiter.RollingWindow, 0, limiter.Ring), "< 1 %", "8 B × limit", "30 to 55 µs"},
		{"rolling_window, sorted_set", l(limiter.RollingWindow, 0, limiter.SortedSet), "< 1 %", "8 B × limit", "30 to 55 µs"},
	}
}

// admitted is when a request that passed was sent and answered.
type admitted struct{ sent, answered time.Time }

// overshoot floods every contender at the same time: pauses, so that buckets are full, then
// asks without end for two windows around a boundary of the clock.
func overshoot(ctx context.Context, server *server, rounds int) (table, error) {
	const limit, window = 100, 2 * time.Second
	t := table{name: "overshoot", title: fmt.Sprintf("Worst overshoot: %d in %v, a client that asks every millisecond for 4 s after a pause, %d times", limit, window, rounds),
		head: []string{"algorithm", "most in one window", "overshoot", "published"}}
	all := contenders(limit, window)
	worst := make([]int, len(all))
	store, err := open(server)
	if err != nil {
		return t, err
	}
	defer store.close()
	for round := range rounds {
		// From half a window before a boundary.
		begin := time.Now().Truncate(window).Add(2*window + window/2)
		errs := make([]error, len(all))
		var wg sync.WaitGroup
		for i, c := range all {
			wg.Go(func() {
				key := fmt.Appendf(nil, "weir:{%d-%d}:t:%s", i, round, c.limit.Tag())
				var passed []admitted
				passed, errs[i] = flood(ctx, store, &c.limit, key, begin, 2*window)
				worst[i] = max(worst[i], most(passed, window))
			})
		}
		wg.Wait()
		if err := errors.Join(append(errs, store.failure())...); err != nil {
			return t, err
		}
	}
	for i, c := range all {
		t.add(c.name, strconv.Itoa(worst[i]), fmt.Sprintf("%d %%", 100*(worst[i]-limit)/limit), c.overshoot)
	}
	return t, nil
}

func flood(ctx context.Context, store limiter.Store, l *limiter.Limit, key []byte, begin time.Time, d time.Duration) ([]admitted, error) {
	var passed []admitted
	var decision limiter.Decision
	checks := []limiter.Check{{Limit: l, Key: key, Cost: 1}}
	time.Sleep(time.Until(begin))
	for at := begin; at.Before(begin.Add(d)); at = at.Add(time.Millisecond) {
		time.Sleep(time.Until(at))
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		sent := time.Now()
		if err := store.Take(ctx, checks, &decision); err != nil {
			return nil, err
		}
		if decision.Allowed {
			passed = append(passed, admitted{sent, time.Now()})
		}
	}
	return passed, nil
}

// most returns how many were both sent and answered within less than a window: so many at
// least were decided in one, whatever the time under way.
func most(passed []admitted, window time.Duration) int {
	best := 0
	for i := range passed {
		n := 0
		for _, p := range passed[i:] {
			if p.answered.Sub(passed[i].sent) >= window {
				break
			}
			n++
		}
		best = max(best, n)
	}
	return best
}

// memoryTable spends the limit of one client and asks Redis what it takes.
func memoryTable(ctx context.Context, server *server) (table, error) {
	t := table{name: "memory", title: "Memory of one client in Redis, its limit spent: all of it (MEMORY USAGE), and what is left without the key, its entry and its object",
		head: []string{"algorithm", "limit", "all, B", "payload, B", "payload a request, B", "published"}}
	store, err := open(server)
	if err != nil {
		return t, err
	}
	defer store.close()
	for i := range contenders(1, time.Second) {
		for _, limit := range []int64{100, 1000} {
			c := contenders(limit, time.Hour)[i]
			key := "weir:{203.0.113.7}:per-client:" + c.limit.Tag()
			if err := server.client.Del(ctx, key).Err(); err != nil {
				return t, err
			}
			// The same key with an empty value, and a time to live as the counters have.
			if err := server.client.Set(ctx, key, "", time.Hour).Err(); err != nil {
				return t, err
			}
			empty, err := server.client.MemoryUsage(ctx, key, 0).Result()
			if err != nil {
				return t, err
			}
			if err := server.client.Del(ctx, key).Err(); err != nil {
				return t, err
			}
			var d limiter.Decision
			for range limit {
				if err := store.Take(ctx, []limiter.Check{{Limit: &c.limit, Key: []byte(key), Cost: 1}}, &d); err != nil {
					return t, err
				}
			}
			bytes, err := server.client.MemoryUsage(ctx, key, 0).Result()
			if err != nil {
				return t, err
			}
			t.add(c.name, strconv.FormatInt(limit, 10), strconv.FormatInt(bytes, 10), strconv.FormatInt(bytes-empty, 10), fmt.Sprintf("%.1f", float64(bytes-empty)/float64(limit)), c.memory)
		}
	}
	return t, errors.Join(store.failure())
}

// users are told apart by their keys.
const users = 100_000

// times measures one caller, who waits for each answer, and 64 of them.
func times(ctx context.Context, server *server, d time.Duration) (table, error) {
	t := table{name: "times", title: fmt.Sprintf("Time of one operation: %d uniform clients, 100 a minute each, over loopback", users),
		head: []string{"algorithm", "one caller: median", "p99", "script in Redis", "64 callers: CPU of Redis a decision", "published"}}
	for _, c := range contenders(100, time.Minute) {
		store, err := open(server)
		if err != nil {
			return t, err
		}
		alone, err := load(ctx, server, store, &c.limit, 1, false, d)
		if err != nil {
			return t, err
		}
		many, err := load(ctx, server, store, &c.limit, 64, false, d)
		if err != nil {
			return t, err
		}
		store.close()
		t.add(c.name, micro(alone.median), micro(alone.p99), fmt.Sprintf("%.1f µs", alone.script), fmt.Sprintf("%.1f µs", 1e6*many.cpu/many.decisions), c.time)
	}
	return t, nil
}

// target is how many decisions a second are to be made, and busy how much of a core a
// Redis node should use of it.
const (
	target = 400_000
	busy   = 0.7
)

// calls counts what reaches Redis, and what CPU time that takes.
func calls(ctx context.Context, single, cluster *server, d time.Duration) (table, error) {
	t := table{name: "calls", title: fmt.Sprintf("Calls to Redis and Redis nodes for %d decisions a second: %d clients, 256 callers of one edge node, 100 a minute each", target, users),
		head: []string{"algorithm", "load", "Redis", "decisions a second here", "refused", "asked of Redis, a decision", "script calls a decision", "CPU of Redis a decision", "nodes at a full core", fmt.Sprintf("nodes at %.0f %%", 100*busy)}}
	for _, c := range contenders(100, time.Minute) {
		for _, load := range []struct {
			zipf   bool
			server *server
		}{{true, cluster}, {false, cluster}, {true, single}, {false, single}} {
			if c.limit.Algorithm != limiter.RollingWindow && (!load.zipf || load.server == single) {
				continue
			}
			if err := t.calls(ctx, c, load.server, load.zipf, d); err != nil {
				return t, err
			}
		}
	}
	return t, nil
}

func (t *table) calls(ctx context.Context, c *contender, server *server, zipf bool, d time.Duration) error {
	store, err := open(server)
	if err != nil {
		return err
	}
	defer store.close()
	l, err := load(ctx, server, store, &c.limit, 256, zipf, d)
	if err != nil {
		return err
	}
	traffic, mode := "uniform", "Cluster"
	if zipf {
		traffic = "zipf(1.1)"
	}
	if server.mode == redisstore.Single {
		mode = "single"
	}
	cores := target * l.cpu / l.decisions
	t.add(c.name, traffic, mode, strconv.Itoa(int(l.decisions/l.seconds)), fmt.Sprintf("%.0f %%", 100*l.refused/l.decisions),
		fmt.Sprintf("%.3f", l.asked/l.decisions), fmt.Sprintf("%.3f", l.calls/l.decisions), fmt.Sprintf("%.2f µs", 1e6*l.cpu/l.decisions),
		fmt.Sprintf("%.0f (%.1f)", math.Ceil(cores), cores), fmt.Sprintf("%.0f", math.Ceil(cores/busy)))
	return nil
}

type loaded struct {
	decisions, refused, seconds float64
	asked, calls, script, cpu   float64 // decisions asked for; scripts; µs of each; s of CPU
	median, p99                 time.Duration
}

// load decides as fast as it can with so many callers, after a flush.
func load(ctx context.Context, server *server, store *layers, l *limiter.Limit, callers int, zipf bool, d time.Duration) (*loaded, error) {
	if err := server.client.FlushDB(ctx).Err(); err != nil {
		return nil, err
	}
	keys := make([][]byte, users)
	for i := range keys {
		keys[i] = fmt.Appendf(nil, "weir:{user-%d}:%s:%s", i, l.Rule, l.Tag())
	}
	runtime.GC()
	before, err := server.stats(ctx)
	if err != nil {
		return nil, err
	}
	var total, refused atomic.Int64
	asked := store.asked.Load()
	took, errs := make([][]time.Duration, callers), make([]error, callers)
	began := time.Now()
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			r := rand.New(rand.NewSource(int64(i)))
			next := func() int { return r.Intn(users) }
			if zipf {
				z := rand.NewZipf(r, 1.1, 1, users-1)
				next = func() int { return int(z.Uint64()) }
			}
			checks := []limiter.Check{{Limit: l, Cost: 1}}
			var decision limiter.Decision
			n, no := int64(0), int64(0)
			for errs[i] == nil && time.Since(began) < d {
				checks[0].Key = keys[next()]
				start := time.Now()
				errs[i] = store.Take(ctx, checks, &decision)
				if n++; callers == 1 || n%64 == 0 {
					took[i] = append(took[i], time.Since(start))
				}
				if !decision.Allowed {
					no++
				}
			}
			total.Add(n)
			refused.Add(no)
		})
	}
	wg.Wait()
	out := &loaded{decisions: float64(total.Load()), refused: float64(refused.Load()), seconds: time.Since(began).Seconds()}
	after, err := server.stats(ctx)
	if err := errors.Join(append(errs, err, ctx.Err(), store.failure())...); err != nil {
		return nil, err
	}
	out.asked = float64(store.asked.Load() - asked)
	out.calls, out.cpu = after.calls-before.calls, after.cpu-before.cpu
	out.script = (after.usec - before.usec) / max(1, out.calls)
	all := slices.Concat(took...)
	slices.Sort(all)
	if len(all) > 0 {
		out.median, out.p99 = all[len(all)/2], all[len(all)*99/100]
	}
	return out, nil
}

// layers are what an edge composes in front of Redis.
type layers struct {
	limiter.Store
	shared *redisstore.Store
	failed atomic.Int64
	asked  atomic.Int64 // decisions that Redis was asked for
}

func open(server *server) (*layers, error) {
	l := &layers{}
	shared, err := redisstore.Open(redisstore.Config{Mode: server.mode, Addrs: []string{server.addr}, Timeout: 5 * time.Second, Hooks: redisstore.Hooks{Batch: func(n int) { l.asked.Add(int64(n)) }}})
	if err != nil {
		return nil, err
	}
	l.shared = shared
	for deadline := time.Now().Add(5 * time.Second); shared.Ping(context.Background()) != nil || time.Now().Before(deadline.Add(-4500*time.Millisecond)); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			return nil, errors.New("redis does not answer")
		}
	}
	l.Store = limiter.NewDenied(limiter.NewFallback(shared, memory.New(memory.Config{}), func() int { return 1 }, func(error) { l.failed.Add(1) }), 100_000, 0)
	return l, nil
}

func (l *layers) failure() error {
	if n := l.failed.Load(); n > 0 {
		return fmt.Errorf("%d decisions were made without Redis", n)
	}
	return nil
}

func (l *layers) close() { _ = l.shared.Close() }

// server is a redis-server of this run.
type server struct {
	addr   string
	client *redis.Client
	cmd    *exec.Cmd
	dir    string
	mode   redisstore.Mode
}

// startRedis starts one server, or a cluster of one: what it costs to keep counts apart by slot.
func startRedis(ctx context.Context, mode redisstore.Mode) (*server, error) {
	port := freePort()
	addr := net.JoinHostPort("127.0.0.1", port)
	dir, err := os.MkdirTemp("", "weir-tables")
	if err != nil {
		return nil, err
	}
	s := &server{addr: addr, dir: dir, mode: mode, client: redis.NewClient(&redis.Options{Addr: addr})}
	s.cmd = exec.Command("redis-server", "--bind", "127.0.0.1", "--port", port, "--save", "", "--dir", dir, "--logfile", filepath.Join(dir, "log"))
	if mode == redisstore.Cluster {
		s.cmd.Args = append(s.cmd.Args, "--cluster-enabled", "yes", "--cluster-announce-ip", "127.0.0.1", "--cluster-port", freePort())
	}
	runtime.LockOSThread() // the signal comes when the thread ends that started it
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("%w (make deps installs it)", err)
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if err = s.ready(ctx); err == nil {
			return s, nil
		}
		if time.Now().After(deadline) {
			s.stop()
			return nil, err
		}
	}
}

// ready gives a cluster its slots, and reports why it does not answer yet.
func (s *server) ready(ctx context.Context) error {
	if s.mode == redisstore.Single {
		return s.client.Ping(ctx).Err()
	}
	info, err := s.client.ClusterInfo(ctx).Result()
	if err != nil || strings.Contains(info, "cluster_state:ok") {
		return err
	}
	if strings.Contains(info, "cluster_slots_assigned:0") {
		return errors.Join(s.client.ClusterAddSlotsRange(ctx, 0, 16383).Err(), errors.New("slots were just given"))
	}
	return errors.New("the cluster is not whole")
}

func freePort() string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err) // no loopback: nothing can be measured
	}
	defer ln.Close()
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	return port
}

func (s *server) stop() {
	_ = s.client.Close()
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
	_ = os.RemoveAll(s.dir)
}

type stats struct{ calls, usec, cpu float64 }

var (
	scripts = regexp.MustCompile(`(?m)^cmdstat_(?:evalsha|eval|fcall):calls=(\d+),usec=(\d+)`)
	cpus    = regexp.MustCompile(`(?m)^used_cpu_(?:sys|user):([\d.]+)`)
)

func (s *server) stats(ctx context.Context) (st stats, err error) {
	text, err := s.client.Info(ctx, "commandstats").Result()
	if err != nil {
		return st, err
	}
	for _, m := range scripts.FindAllStringSubmatch(text, -1) {
		st.calls += number(m[1])
		st.usec += number(m[2])
	}
	if text, err = s.client.Info(ctx, "cpu").Result(); err != nil {
		return st, err
	}
	for _, m := range cpus.FindAllStringSubmatch(text, -1) {
		st.cpu += number(m[1])
	}
	return st, nil
}

func number(s string) float64 {
	v, _ := strconv.ParseFloat(s, 64) // digits, by the expression
	return v
}

func micro(d time.Duration) string { return fmt.Sprintf("%.0f µs", float64(d)/1e3) }

// table is text that can be shown in two forms.
type table struct {
	name, title string
	head        []string
	rows        [][]string
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) text() string {
	widths := make([]int, len(t.head))
	for _, row := range append([][]string{t.head}, t.rows...) {
		for i, c := range row {
			widths[i] = max(widths[i], len([]rune(c)))
		}
	}
	var b strings.Builder
	b.WriteString("\n" + t.title + "\n\n")
	for _, row := range append([][]string{t.head}, t.rows...) {
		for i, c := range row {
			b.WriteString(c + strings.Repeat(" ", widths[i]-len([]rune(c))+2))
		}
		b.WriteString("\n")
	}
	return b.String()
}

func (t *table) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s. %d cores shared by all, %s.\n\n| %s |\n|%s\n", t.title, runtime.NumCPU(), runtime.Version(), strings.Join(t.head, " | "), strings.Repeat("---|", len(t.head)))
	for _, row := range t.rows {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(row, " | "))
	}
	b.WriteString("\n")
	return b.String()
}

// regenerate replaces what stands between the comments of a name.
func regenerate(document []byte, name, text string) ([]byte, error) {
	begin, end := fmt.Appendf(nil, "<!-- make tables: %s -->\n", name), fmt.Appendf(nil, "<!-- end: %s -->", name)
	before, rest, ok := bytes.Cut(document, begin)
	_, after, closed := bytes.Cut(rest, end)
	if !ok || !closed {
		return nil, fmt.Errorf("no place for %q; add the lines %s and %s", name, bytes.TrimSpace(begin), end)
	}
	return bytes.Join([][]byte{before, begin, []byte(text), end, after}, nil), nil
}
