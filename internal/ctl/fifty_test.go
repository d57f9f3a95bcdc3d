package ctl

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/ctl/change"
	"github.com/weir-edge/weir/internal/ctl/command"
	"github.com/weir-edge/weir/internal/ctl/overview"
	"github.com/weir-edge/weir/internal/ctl/rollout"
	"github.com/weir-edge/weir/internal/ctl/status"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/internal/testenv"
	"github.com/weir-edge/weir/pkg/limiter/rules"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// roundTrip is the latency of each region's answers and connections.
const roundTrip = 100 * time.Millisecond

// farFleet is distant regions, each with one edge. It uses a synctest bubble's clock, which
// stops during computation and a real Consul's answers, so a command's duration is its number
// of sequential round trips.
type farFleet struct {
	*testFleet
	near   *api.Client // of the real Consul
	doors  map[string]chan net.Conn
	faults atomic.Pointer[map[string]fault] // by host; abandoned requests read it late
}

// faults are ways of not answering.
var faults = []fault{
	func(_ http.ResponseWriter, r *http.Request) bool { <-r.Context().Done(); return true },
	func(http.ResponseWriter, *http.Request) bool { time.Sleep(command.DefaultTimeout); return false },
	func(w http.ResponseWriter, _ *http.Request) bool {
		http.Error(w, "no", http.StatusInternalServerError)
		return true
	},
	func(w http.ResponseWriter, _ *http.Request) bool { _, _ = io.WriteString(w, "<html>"); return true },
	func(w http.ResponseWriter, r *http.Request) bool { // a byte per second
		for w.Header().Set("X-Consul-Index", "1"); r.Context().Err() == nil; time.Sleep(time.Second) {
			_, _ = io.WriteString(w, " ")
			_ = http.NewResponseController(w).Flush()
		}
		return true
	},
	func(w http.ResponseWriter, r *http.Request) bool { // endless
		for all := strings.Repeat(" ", 1<<20); r.Context().Err() == nil; {
			_, _ = io.WriteString(w, all)
		}
		return true
	},
}

// inFiftyRegions runs a test in a bubble. The regions share a real Consul, each with its own
// keys.
func inFiftyRegions(t *testing.T, test func(*testing.T, *farFleet)) {
	server := testenv.StartConsul(t, testenv.ConsulOptions{})
	text := "regions:\n"
	var names []string
	for i := range 50 {
		name := fmt.Sprintf("region-%02d", i)
		names = append(names, name)
		text += fmt.Sprintf("  - {name: %s, consul: {addr: \"consul.%s:8500\", prefix: %s}}\n", name, name, name)
		require.NoError(t, server.Client().Agent().ServiceRegister(&api.AgentServiceRegistration{
			ID: "edge." + name, Name: consul.Service, Meta: map[string]string{
				consul.MetaRegion: name, consul.MetaPoP: "pop", consul.MetaNode: "edge." + name, consul.MetaAdmin: "edge." + name + ":8081",
				consul.MetaPrefix: name, consul.MetaSchema: fmt.Sprint(rules.Schema),
			},
		}))
	}
	file := write(t, "fleet.yaml", text)
	require.Eventually(t, func() bool {
		list, _, err := server.Client().Health().Service(consul.Service, "", true, nil)
		return err == nil && len(list) == len(names)
	}, patience, tick)
	synctest.Test(t, func(t *testing.T) {
		near, err := api.NewClient(&api.Config{Address: server.Addr(), HttpClient: &http.Client{Transport: nearby}})
		require.NoError(t, err)
		f := &farFleet{testFleet: &testFleet{file: file, names: names}, near: near, doors: map[string]chan net.Conn{}}
		f.faults.Store(&map[string]fault{})
		for _, name := range names {
			f.serve(t, "consul."+name, func(w http.ResponseWriter, r *http.Request) { forward(w, r, server.Addr()) })
			f.serve(t, "edge."+name, func(w http.ResponseWriter, r *http.Request) {
				version := ""
				if current, _, err := f.near.KV().Get(name+"/rules/current", nil); err == nil && current != nil {
					p, _ := consul.ParsePointer(current.Value)
					version = p.Version
				}
				w.Header().Set(adminapi.HeaderNode, "edge."+name)
				if r.URL.Path == adminapi.PathMetrics {
					_, _ = fmt.Fprintf(w, "weir_requests_total{code_class=\"2xx\"} 1\nweir_rules_info{version=%q} 1\n", version)
					return
				}
				reply(w, adminapi.Rules{Version: version, Source: adminapi.SourceConsul})
			})
		}
		test(t, f)
	})
}

// serve makes a host answer.
func (f *farFleet) serve(t *testing.T, host string, next http.HandlerFunc) {
	door := make(chan net.Conn)
	f.doors[host] = door
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(roundTrip)
		if fault := (*f.faults.Load())[host]; fault == nil || !fault(w, r) {
			next(w, r)
		}
	})}
	l := &pipes{door, make(chan struct{})}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Shutdown(context.Background()) })
}

// pipes is a listener for in-memory connections.
type pipes struct {
	door   chan net.Conn
	closed chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.door:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}
func (p *pipes) Close() error   { close(p.closed); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (f *farFleet) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	time.Sleep(roundTrip)
	here, there := net.Pipe()
	select {
	case f.doors[host] <- there:
		return here, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// run returns a command's duration on the bubble's clock.
func (f *farFleet) run(t *testing.T, args ...string) (result, time.Duration) {
	t.Helper()
	var out, errOut buffer
	p := f.program(strings.NewReader(""), &out, &errOut)
	p.Dial = f.dial
	began := time.Now()
	err := run(t.Context(), p, append(args, "--fleet", f.file))
	return result{term.ExitStatus(err), out.String(), errOut.String()}, time.Since(began)
}

func TestFiftyRegions(t *testing.T) {
	t.Parallel()
	inFiftyRegions(t, func(t *testing.T, f *farFleet) {
		for _, c := range []struct {
			args string
			most int // sequential round trips; one more or less, by which connection is free; a record of the change costs six
		}{
			{"rules apply " + write(t, "one.yaml", rulesOf(1)) + " --yes", 34},
			{"rules apply " + write(t, "two.yaml", rulesOf(2)) + " --yes", 34},
			{"rules status", 4},
			{"status", 5 + int(overview.Apart/roundTrip)},
			{"undo rules --yes", 43},
		} {
			r, took := f.run(t, strings.Fields(c.args)...)
			require.Zero(t, r.status, r.errOut)
			require.LessOrEqual(t, took, time.Duration(c.most)*roundTrip, c.args)
			t.Logf("%v: regionctl %s", took, regexp.MustCompile(`/\S+/`).ReplaceAllString(c.args, ""))
		}
	})
}

// A region or an edge that fails or hangs is waited for up to its timeout, and delays no other.
func TestFiftyRegionsWithFaults(t *testing.T) {
	t.Parallel()
	inFiftyRegions(t, func(t *testing.T, f *farFleet) {
		r, _ := f.run(t, "rules", "apply", write(t, "one.yaml", rulesOf(1)), "--yes")
		require.Zero(t, r.status, r.errOut)
		good := len(f.names) - len(faults)
		for _, kind := range []string{"edge.", "consul."} {
			some := map[string]fault{}
			for i, fault := range faults {
				some[kind+f.names[5*i]] = fault
			}
			f.faults.Store(&some)
			r, took := f.run(t, "status", "-o", "json")
			require.LessOrEqual(t, took, overview.Apart+command.DefaultTimeout+5*roundTrip)
			measured := 0
			for _, r := range parse[overview.Fleet](t, r.out).Regions {
				for _, p := range r.PoPs {
					for _, n := range p.Nodes {
						if n.Rate != nil {
							measured++
						}
					}
				}
			}
			require.Equal(t, good, measured)
			r, took = f.run(t, "rules", "status", "-o", "json")
			require.LessOrEqual(t, took, command.DefaultTimeout+4*roundTrip)
			seen := 0
			for _, v := range parse[status.Convergence](t, r.out).Regions {
				if v.Converged && v.Nodes[0].Seen == "admin" {
					seen++
				}
			}
			require.Equal(t, good, seen)
		}
		r, took := f.run(t, "rules", "apply", write(t, "two.yaml", rulesOf(2)), "--yes", "--partial", "-o", "json")
		require.Equal(t, term.StatusPartial, r.status)
		require.LessOrEqual(t, took, command.DefaultTimeout+34*roundTrip)
		require.Equal(t, good, applied(t, r))

		// Consuls that hang at the switch.
		hanging := map[string]fault{}
		for _, name := range f.names[30:35] {
			var hangs atomic.Bool
			hanging["consul."+name] = func(w http.ResponseWriter, r *http.Request) bool {
				body, _ := io.ReadAll(r.Body)
				r.Body = io.NopCloser(bytes.NewReader(body))
				if r.Method == http.MethodPut && strings.Contains(string(body), name+"/rules/current") {
					hangs.Store(true)
				}
				return hangs.Load() && faults[0](w, r)
			}
		}
		f.faults.Store(&hanging)
		r, took = f.run(t, "rules", "apply", write(t, "three.yaml", rulesOf(3)), "--yes", "--wait", "1s", "-o", "json")
		require.Equal(t, term.StatusPartial, r.status)
		require.Equal(t, len(f.names)-5, applied(t, r))
		require.LessOrEqual(t, took, 7*command.DefaultTimeout) // one for the record of the change
	})
}

// applied counts the regions that a change has switched.
func applied(t *testing.T, r result) (n int) {
	t.Helper()
	for _, r := range parse[change.Report](t, r.out).Regions {
		if r.Result == rollout.Applied {
			n++
		}
	}
	return n
}
