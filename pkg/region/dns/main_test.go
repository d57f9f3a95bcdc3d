package dns

import (
	"context"
	"net/netip"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-edge/weir/internal/testenv"
	"github.com/weir-edge/weir/pkg/region"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = testenv.Patience

const fleet = `
zone: edge.example.com
regions:
  - name: eu-west
    pops:
      - {name: ams1, addresses: [192.0.2.1, "2001:db8::1"], clients: [127.0.0.0/8]}
      - {name: fra1, addresses: [192.0.2.2], weight: 0, clients: [198.51.100.0/24]}
  - name: us-east
    pops: [{name: nyc1, addresses: [192.0.2.3, 192.0.2.33, "2001:db8::3"], clients: ["2001:db8:a::/48", 203.0.113.0/24]}]
`

// records are static records of every type.
const records = `
records:
  - {name: www, type: CNAME, values: [edge.example.com]}
  - {name: far, type: CNAME, values: [other.example.net]}
  - {name: far-too, type: CNAME, values: [far.edge.example.com], ttl: 60}
  - {name: lost, type: CNAME, values: [nothing.edge.example.com]}
  - {name: direct, type: CNAME, values: [fra1.pop.edge.example.com]}
  - {name: _acme-challenge, type: TXT, values: ["first", 'a\032b "c"']}
  - {name: long, type: TXT, values: [LONG]}
  - {name: "@", type: CAA, values: ['0 issue "letsencrypt.org"', "128 iodef mailto:a@example.com"]}
  - {name: "@", type: MX, values: [10 mail.example.com]}
  - {name: silent, type: MX, values: [0 .]}
  - {name: status, type: A, values: [198.51.100.1, 198.51.100.2]}
  - {name: status, type: AAAA, values: ["2001:db8::7"]}
  - {name: deep.down.dev, type: A, values: [198.51.100.3]}
  - {name: "*.dev", type: TXT, values: [wild]}
  - {name: "*.to", type: CNAME, values: [www.edge.example.com]}
  - {name: ns1, type: A, values: [198.51.100.9]}
  - {name: ns1, type: TXT, values: [kept]}
`

func parsed(t testing.TB, text string) *region.Topology {
	t.Helper()
	topology, err := region.ParseTopology([]byte(strings.Replace(text, "LONG", `"`+strings.Repeat("0123456789", 60)+`"`, 1)))
	require.NoError(t, err)
	return topology
}

// view returns a view of a topology whose PoPs all have that state.
func view(t testing.TB, text string, state region.PoPState) *region.View {
	t.Helper()
	topology := parsed(t, text)
	states := map[string]region.PoPState{}
	for _, r := range topology.Regions {
		for _, p := range r.PoPs {
			states[p.Name] = state
		}
	}
	return region.NewView(topology, states, nil)
}

var healthy = region.PoPState{Healthy: true, Known: true, Nodes: 1, Passing: 1}

func config(v *region.View) Config {
	return Config{
		View: func() *region.View { return v },
		NS:   []NameServer{{Host: "ns1.edge.example.com", Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.53"), netip.MustParseAddr("2001:db8::53")}}, {Host: "ns2.example.net"}},
	}
}

// counts is an Observer.
type counts struct {
	mu    sync.Mutex
	kinds map[string]int
}

func (c *counts) Query(answer string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.kinds == nil {
		c.kinds = map[string]int{}
	}
	c.kinds[answer]++
}

func (c *counts) Moved() { c.Query("moved") }

func (c *counts) of(kind string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.kinds[kind]
}

// server is a server that runs until the end of the test.
type server struct {
	*Server
	port string
	stop func()
}

func serve(t testing.TB, c Config, addrs ...string) *server {
	t.Helper()
	return serveWithin(t, c, usualTimeouts, addrs...)
}

func serveWithin(t testing.TB, c Config, limits timeouts, addrs ...string) *server {
	t.Helper()
	s, err := New(c)
	require.NoError(t, err)
	s.timeouts = limits
	if addrs == nil {
		addrs = []string{"127.0.0.1:0"}
	}
	for _, addr := range addrs {
		require.NoError(t, s.Listen(addr))
	}
	port := strconv.Itoa(int(s.Addrs()[0].Port()))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			require.NoError(t, err)
		case <-time.After(patience):
			require.Fail(t, "did not end")
		}
	})
	t.Cleanup(stop)
	return &server{s, port, stop}
}

// dig runs the machine's dig and returns its output.
func dig(t testing.TB, s *server, args ...string) string {
	t.Helper()
	out, _ := digs(t, s, args...)
	return out
}

func digs(t testing.TB, s *server, args ...string) (string, error) {
	t.Helper()
	program, err := exec.LookPath("dig")
	require.NoError(t, err, "dig is missing: make deps")
	at := "@127.0.0.1"
	if strings.HasPrefix(args[0], "@") {
		at, args = args[0], args[1:]
	}
	out, err := exec.Command(program, append([]string{"-r", at, "-p", s.port, "+norecurse", "+tries=1", "+time=120", "+nocookie"}, args...)...).CombinedOutput()
	return strings.Join(strings.Fields(string(out)), " "), err
}
