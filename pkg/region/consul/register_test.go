package consul

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
	"github.com/weir-edge/weir/pkg/field"
)

// edge is an edge node as Consul sees it.
type edge struct {
	Registration
	ready   *atomic.Bool
	changed chan struct{}
	asked   atomic.Int32 // calls of meta

	mu     sync.Mutex
	meta   map[string]string
	states []error
}

func newEdge(t testing.TB, id, pop string) *edge {
	t.Helper()
	admin, ready := testenv.Readiness(t)
	return &edge{ready: ready, changed: make(chan struct{}, 1), meta: map[string]string{}, Registration: Registration{
		ID: id, Address: "192.0.2.7", Port: 8080, Admin: admin, Region: "eu-west", PoP: pop, CheckURL: "http://" + admin + "/readyz",
	}}
}

// register keeps e registered until stop or the end of the test.
func (e *edge) register(t testing.TB, c *Client) (stop func()) {
	t.Helper()
	return run(t, func(ctx context.Context) {
		c.Register(ctx, e.Registration, func() map[string]string {
			e.asked.Add(1)
			e.mu.Lock()
			defer e.mu.Unlock()
			return maps.Clone(e.meta)
		}, e.changed, func(err error) {
			e.mu.Lock()
			defer e.mu.Unlock()
			e.states = append(e.states, err)
		})
	})
}

// set changes the meta.
func (e *edge) set(name, value string) {
	e.mu.Lock()
	e.meta[name] = value
	e.mu.Unlock()
	select {
	case e.changed <- struct{}{}:
	default:
	}
}

// failures returns the distinct failures reported to e.
func (e *edge) failures() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	var list []string
	for _, err := range e.states {
		if err != nil && !slices.Contains(list, err.Error()) {
			list = append(list, err.Error())
		}
	}
	return list
}

// until waits until ok accepts the registered nodes.
func until(t testing.TB, c *Client, what string, ok func([]Node) bool) {
	t.Helper()
	var nodes []Node
	var err error
	for start := time.Now(); time.Since(start) < patience; _ = Pause(t.Context(), 20*time.Millisecond) {
		if nodes, err = c.Nodes(t.Context()); err == nil && ok(nodes) {
			return
		}
	}
	require.Fail(t, "never "+what, "last seen: %+v %v", nodes, err)
}

func passing(nodes []Node) bool { return len(nodes) == 1 && nodes[0].Passing }

func none(nodes []Node) bool { return len(nodes) == 0 }

func TestRegister(t *testing.T) {
	t.Parallel()
	server := testenv.StartConsul(t, testenv.ConsulOptions{})
	c := open(t, Config{Addr: server.Addr(), Datacenter: server.Datacenter})
	e := newEdge(t, "edge-1.example.com", "ams1")
	e.set("schema", "1")
	e.set("rules_version", "0123456789ab")
	e.set("region", "cannot be overwritten")
	e.set("rules_refused", strings.Repeat("ä", 1000))
	stop := e.register(t, c)

	lists := make(chan []Node, 1000)
	run(t, func(ctx context.Context) { c.WatchNodes(ctx, nil, func(nodes []Node) { lists <- nodes }) })

	var nodes []Node
	until(t, c, "passing", func(now []Node) bool { nodes = now; return passing(now) })
	require.Equal(t, []Node{{
		ID: "edge-1.example.com", Region: "eu-west", PoP: "ams1", Address: "192.0.2.7:8080", Admin: e.Admin, Prefix: "weir",
		Schema: 1, RulesVersion: "0123456789ab", RulesRefused: strings.Repeat("ä", 254) + "…", Passing: true,
	}}, nodes)
	require.LessOrEqual(t, len(nodes[0].RulesRefused), 512, "Consul accepts no more")
	services, _, err := server.Client().Catalog().Service("weir-edge", "", nil)
	require.NoError(t, err)
	require.Equal(t, "weir-edge-edge-1.example.com", services[0].ServiceID)
	checks, _, err := server.Client().Health().Checks("weir-edge", nil)
	require.NoError(t, err)
	require.Len(t, checks, 1)
	require.Equal(t, "service:weir-edge-edge-1.example.com", checks[0].CheckID)
	told := map[string]bool{} // each registration's check differs, or the servers may miss its status

	// A change reaches the watches and never makes the check fail. On a busy machine the check itself may take too long.
	e.set("rules_refused", "")
	for len(lists) > 0 {
		<-lists
	}
	for i := range 5 {
		version := fmt.Sprintf("%012d", i)
		e.set("rules_version", version)
		require.Eventually(t, func() bool {
			nodes := <-lists
			if len(nodes) == 1 && strings.Contains(nodes[0].Output, "Client.Timeout exceeded") {
				return false
			}
			require.True(t, passing(nodes), "%+v", nodes)
			return nodes[0].RulesVersion == version
		}, patience, time.Millisecond)
		checks, _, err := server.Client().Health().Checks("weir-edge", nil)
		require.NoError(t, err)
		require.False(t, told[checks[0].Notes], "%s once more", checks[0].Notes)
		told[checks[0].Notes] = true
	}

	// Rapid changes become few registrations, and the last one wins.
	before, start := e.asked.Load(), time.Now()
	for i := range 1000 {
		e.set("rules_version", fmt.Sprint("fast ", i))
	}
	until(t, c, "the last change", func(nodes []Node) bool { return passing(nodes) && nodes[0].RulesVersion == "fast 999" })
	require.LessOrEqual(t, int(e.asked.Load()-before), 2+int(time.Since(start)/registerEvery))

	e.ready.Store(false)
	until(t, c, "not passing, with its answer", func(nodes []Node) bool {
		return len(nodes) == 1 && !nodes[0].Passing && strings.Contains(nodes[0].Output, `{"status":"no rules"}`)
	})
	e.ready.Store(true)
	until(t, c, "passing again", passing)

	stop()
	until(t, c, "deregistered", none)
	require.Empty(t, e.failures())
}

// A second node with the same id waits for the first to go.
func TestRegisterTwice(t *testing.T) {
	t.Parallel()
	server := testenv.StartConsul(t, testenv.ConsulOptions{})
	c, patient := open(t, Config{Addr: server.Addr()}), open(t, Config{Addr: server.Addr()})
	c.lookEvery, patient.lookEvery, c.holdFor, patient.holdFor = time.Second, time.Second, time.Second, time.Hour
	first := newEdge(t, "edge-1", "ams1")
	stopFirst := first.register(t, c)
	until(t, c, "registered", passing)
	second := newEdge(t, "edge-1", "fra1")
	second.Port++
	stopSecond := second.register(t, patient) // or a pause of the machine, in which checks fail, would give it the id
	says := func(e *edge, pop, more string) {
		t.Helper()
		require.Eventually(t, func() bool {
			return slices.ContainsFunc(e.failures(), func(text string) bool {
				return strings.Contains(text, `node id "edge-1": `) && strings.HasSuffix(text, "in pop "+pop+" is already registered with it; give each node its own id"+more)
			})
		}, patience, 10*time.Millisecond)
	}
	says(second, "ams1", "")
	until(t, c, "still there", func(nodes []Node) bool { return passing(nodes) && nodes[0].PoP == "ams1" })
	require.Empty(t, first.failures())

	stopFirst()
	until(t, c, "free", func(nodes []Node) bool { return passing(nodes) && nodes[0].PoP == "fra1" })

	// A node whose check fails keeps its id temporarily. Then it loses the id, and reports that
	// when it recovers.
	second.ready.Store(false)
	until(t, c, "failing", func(nodes []Node) bool { return len(nodes) == 1 && !nodes[0].Passing })
	third := newEdge(t, "edge-1", "lon1")
	third.Port += 2
	stopThird := third.register(t, patient)
	says(third, "fra1", "; it fails its check, and this node takes the id once it has failed for 1h0m0s")
	until(t, c, "still there", func(nodes []Node) bool { return len(nodes) == 1 && nodes[0].PoP == "fra1" })
	stopThird()
	stopThird = third.register(t, c)
	until(t, c, "replaced", func(nodes []Node) bool { return len(nodes) == 1 && nodes[0].PoP == "lon1" })
	says(second, "lon1", "")
	until(t, c, "passing", passing)
	third.mu.Lock()
	third.states = nil // of when it waited for the id
	third.mu.Unlock()
	second.ready.Store(true)
	second.set("rules_version", "2")
	for before := second.asked.Load(); second.asked.Load() < before+3; _ = Pause(t.Context(), 10*time.Millisecond) {
	}
	until(t, c, "still there", func(nodes []Node) bool { return passing(nodes) && nodes[0].PoP == "lon1" })
	require.Empty(t, third.failures(), "changes at the second do not displace the third")
	stopSecond()
	until(t, c, "still there", func(nodes []Node) bool { return len(nodes) == 1 && nodes[0].PoP == "lon1" })
	stopThird()
	until(t, c, "deregistered", none)
}

// A dead node's check reaches the new node at its address; that is not a conflict.
func TestRegisterBehindItsOwnCheck(t *testing.T) {
	t.Parallel()
	server := testenv.StartConsul(t, testenv.ConsulOptions{})
	c := open(t, Config{Addr: server.Addr()})
	e := newEdge(t, "edge-1", "ams1")
	dead := &service{consul: c, Registration: e.Registration}
	dead.Address, dead.Admin = "192.0.2.6", "192.0.2.6:8081"
	require.NoError(t, dead.register(t.Context(), dead.current(), ""))
	until(t, c, "passing by the new node's answer", passing)
	e.register(t, c)
	until(t, c, "registered", func(nodes []Node) bool { return passing(nodes) && nodes[0].Address == "192.0.2.7:8080" })
}

// An agent that lost the service, or all its data, gets it again.
func TestRegisterAgain(t *testing.T) {
	t.Parallel()
	server := testenv.StartConsul(t, testenv.ConsulOptions{})
	front := testenv.Forward(t, "")
	c := open(t, Config{Addr: front.Addr})
	c.lookEvery = time.Second
	e := newEdge(t, "edge-1", "ams1")
	e.set("rules_version", "1")
	stop := e.register(t, c)
	require.Eventually(t, func() bool { return len(e.failures()) > 0 }, patience, time.Millisecond)
	front.To(server.Addr())
	until(t, c, "registered when Consul appears", passing)

	server.Kill()
	e.set("rules_version", "2")
	server.Start()
	until(t, c, "registered after a restart, with the changes made since", func(nodes []Node) bool {
		return passing(nodes) && nodes[0].RulesVersion == "2"
	})

	// Its absence is too short to wait for. The check notes from which registration it is.
	notes := func() string {
		checks, _, err := server.Client().Health().Checks("weir-edge", nil)
		require.NoError(t, err)
		if len(checks) == 0 {
			return ""
		}
		return checks[0].Notes
	}
	before := notes()
	require.NoError(t, server.Client().Agent().ServiceDeregister("weir-edge-edge-1"))
	until(t, c, "registered after it was forgotten", func(nodes []Node) bool {
		now := notes()
		return passing(nodes) && now != "" && now != before
	})

	fresh := testenv.StartConsul(t, testenv.ConsulOptions{})
	front.To(fresh.Addr())
	until(t, c, "registered with a Consul that lost its data", func(nodes []Node) bool {
		return passing(nodes) && nodes[0].RulesVersion == "2"
	})
	stop()
	until(t, c, "deregistered", none)
}

func TestRegisterStopsInTime(t *testing.T) {
	t.Parallel()
	t.Run("Consul unreachable", func(t *testing.T) {
		t.Parallel()
		front := testenv.Forward(t, "")
		e := newEdge(t, "edge-1", "ams1")
		stop := e.register(t, open(t, Config{Addr: front.Addr}))
		require.Eventually(t, func() bool { return len(e.failures()) > 0 }, patience, time.Millisecond)
		stop()
		failures := e.failures()
		require.Contains(t, failures[len(failures)-1], "deregister the node: ")
	})
	t.Run("Consul hangs", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := open(t, Config{Addr: "127.0.0.1:8500"})
			asked := make(chan struct{}, 10)
			c.transport.DialContext = func(context.Context, string, string) (net.Conn, error) {
				near, far := net.Pipe()
				go func() {
					_, _ = io.Copy(io.Discard, far)
					far.Close()
				}()
				asked <- struct{}{}
				return near, nil
			}
			var failures []error
			stop := run(t, func(ctx context.Context) {
				r := Registration{ID: "edge-1", Port: 8080, Admin: "127.0.0.1:8081", Region: "eu-west", PoP: "ams1", CheckURL: "http://127.0.0.1:8081/readyz"}
				c.Register(ctx, r, nil, nil, func(err error) { failures = append(failures, err) })
			})
			<-asked
			began := time.Now()
			stop()
			require.Equal(t, lastCall+deregisterTimeout, time.Since(began))
			require.ErrorContains(t, failures[len(failures)-1], "deregister the node: no answer within 1.5s")
		})
	})
	t.Run("a slow registration is not overtaken", func(t *testing.T) {
		t.Parallel()
		var order []string
		var sent []byte
		var mu sync.Mutex
		asked := make(chan struct{}, 10)
		release := make(chan struct{})
		c := answers(t, Config{}, func(_ http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/register") {
				sent, _ = io.ReadAll(r.Body)
				asked <- struct{}{}
				<-release
			}
			mu.Lock()
			defer mu.Unlock()
			order = append(order, r.URL.Path)
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		e := newEdge(t, "edge-1", "ams1")
		go func() {
			defer close(done)
			c.Register(ctx, e.Registration, nil, nil, nil)
		}()
		<-asked
		cancel()
		close(release)
		<-done
		require.Equal(t, []string{"/v1/agent/health/service/id/weir-edge-edge-1", "/v1/agent/service/register", "/v1/agent/service/deregister/weir-edge-edge-1"}, order)
		require.JSONEq(t, `{"ID":"weir-edge-edge-1","Name":"weir-edge","Address":"192.0.2.7","Port":8080,
			"Meta":{"region":"eu-west","pop":"ams1","node":"edge-1","admin":"`+e.Admin+`","prefix":"weir"},
			"Check":{"CheckID":"service:weir-edge-edge-1","Name":"readyz","HTTP":"`+e.CheckURL+`","Interval":"2s","Timeout":"1s",
				"DeregisterCriticalServiceAfter":"10m","Notes":"`+e.CheckURL+`, registration 1 of this process"},"Checks":null}`, string(sent))
	})
}

// An agent keeps using a registration's token; once that is revoked, the node's check results
// no longer reach the catalog.
func TestRegisterWithANewToken(t *testing.T) {
	t.Parallel()
	server := testenv.StartConsul(t, testenv.ConsulOptions{ACL: true})
	const policy = `
service "weir-edge" { policy = "write" }
node_prefix "" { policy = "read" }`
	accessor, secret := server.NewToken(t, policy)
	file := write(t, "token", secret)
	c := open(t, Config{Addr: server.Addr(), TokenFile: file})
	c.lookEvery = time.Second
	e := newEdge(t, "edge-1", "ams1")
	stop := e.register(t, c)
	until(t, c, "passing", passing)

	_, secret = server.NewToken(t, policy)
	require.NoError(t, os.WriteFile(file, []byte(secret), 0o600))
	_, err := server.Client().ACL().TokenDelete(accessor, nil)
	require.NoError(t, err)
	e.ready.Store(false)
	until(t, c, "not passing, by the new token", func(nodes []Node) bool { return len(nodes) == 1 && !nodes[0].Passing })
	stop()
	until(t, c, "deregistered", none)

	_, weak := server.NewToken(t, `service "weir-edge" { policy = "read" }`)
	require.NoError(t, os.WriteFile(file, []byte(weak), 0o600))
	other := newEdge(t, "edge-2", "ams1")
	other.register(t, c)
	require.Eventually(t, func() bool { return len(other.failures()) > 0 }, patience, time.Millisecond)
	require.Contains(t, other.failures()[0], "register the node: answered 403 (Permission denied")
}

func TestNodesAndTokens(t *testing.T) {
	t.Parallel()
	server := testenv.StartConsul(t, testenv.ConsulOptions{ACL: true})
	with := func(token string) *Client {
		return open(t, Config{Addr: server.Addr(), TokenFile: write(t, "token", token)})
	}
	c := with(server.Token())
	for _, id := range []string{"b", "a", "c"} {
		newEdge(t, id, "ams1").register(t, c)
	}
	until(t, c, "all", func(nodes []Node) bool { return len(nodes) == 3 })
	nodes, err := c.Nodes(t.Context())
	require.NoError(t, err)
	require.Equal(t, "a b c", nodes[0].ID+" "+nodes[1].ID+" "+nodes[2].ID)

	_, services := server.NewToken(t, `service "weir-edge" { policy = "read" }`)
	_, err = with(services).Nodes(t.Context())
	require.ErrorContains(t, err, "read the nodes of weir-edge: some entries are hidden from this token")
	_, nothing := server.NewToken(t, `key "weir/x" { policy = "read" }`)
	_, err = with(nothing).Nodes(t.Context())
	require.ErrorContains(t, err, "some entries are hidden from this token")
	nodes, err = open(t, Config{Addr: server.Addr()}).Nodes(t.Context())
	require.NoError(t, err, "without a token Consul reports nothing")
	require.Empty(t, nodes)
}

func TestRegistrationValidate(t *testing.T) {
	good := Registration{ID: "edge-1", Port: 1, Admin: "127.0.0.1:8081", Region: "eu", PoP: "ams1", CheckURL: "http://127.0.0.1:8081/readyz"}
	require.NoError(t, good.Validate())
	bad := Registration{ID: "a/b", Address: "0.0.0.0", Admin: "here", Region: "EU", CheckURL: "127.0.0.1:8081/readyz"}
	want := "id: must be 1 to 128 letters, digits or . _ : - (got \"a/b\")\n" +
		"address: must be one that clients can reach (got 0.0.0.0)\n" +
		"port: must be between 1 and 65535 (got 0)\n" +
		"admin: must be host:port or https://host:port (got \"here\")\n" +
		"region: must be 1 to 64 lower-case letters, digits or - (got \"EU\")\n" +
		"pop: must be 1 to 64 lower-case letters, digits or - (got \"\")\n" +
		"check: must be a URL such as http://127.0.0.1:8081/readyz (got \"127.0.0.1:8081/readyz\")"
	require.EqualError(t, bad.Validate(), want)

	c := answers(t, Config{}, func(http.ResponseWriter, *http.Request) { t.Error("received a request") })
	states := make(chan error, 1)
	stop := run(t, func(ctx context.Context) {
		c.Register(ctx, bad, nil, nil, func(err error) { states <- err })
	})
	require.EqualError(t, <-states, "register the node: "+want)
	stop()
	var fault *field.Error
	require.True(t, errors.As(bad.Validate(), &fault))
}
