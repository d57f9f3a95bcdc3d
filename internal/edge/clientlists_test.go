package edge

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/edge/config"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/clientlist"
	"github.com/weir-edge/weir/internal/testenv"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// lister changes client lists as regionctl does.
type lister struct {
	*publisher
	client *consul.Client
}

func followLists(t *testing.T, c *testenv.Consul) *lister {
	t.Helper()
	p := publish(t, c)
	p.apply(`rules: [{id: a, key: [client_ip], limit: 10000, window: 1h}]`)
	client, err := consul.Open(p.config())
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return &lister{p, client}
}

func (l *lister) decide(action clientlist.Action, lasts time.Duration, list ...string) {
	l.t.Helper()
	d := clientlist.Decision{Action: action, By: "ana", Reason: "scans /login", Since: time.Now().UTC().Truncate(time.Second)}
	if lasts > 0 {
		d.Until = time.Now().UTC().Add(lasts)
	}
	e := clientlist.Edits{By: "ana", Now: time.Now()}
	for _, n := range list {
		one := clientlist.Edit{Network: netip.MustParsePrefix(n), Decision: &d}
		if action == "" {
			one.Decision = nil
		}
		e.List = append(e.List, one)
	}
	_, err := e.Apply(l.t.Context(), l.client)
	require.NoError(l.t, err)
}

func (l *lister) listing() setup {
	s := l.setup(func(c *config.Config) { c.TrustedProxies = []string{"127.0.0.0/8"} })
	return s
}

// gets waits until a client is answered so.
func (n *node) gets(client string, status int) (a answer) {
	n.t.Helper()
	eventually(n.t, fmt.Sprintf("%s gets %d", client, status), func() bool {
		a = n.get("/", "X-Forwarded-For: "+client)
		return a.status == status
	})
	return a
}

func (n *node) clientsView() (v adminapi.Clients) {
	n.t.Helper()
	a := n.operate("GET", "/v1/clients")
	require.Equal(n.t, 200, a.status, a.body)
	require.NoError(n.t, json.Unmarshal([]byte(a.body), &v))
	return v
}

func (n *node) explains(client string) (v adminapi.Explanation) {
	n.t.Helper()
	a := n.operate("GET", "/v1/explain?client="+client)
	require.Equal(n.t, 200, a.status, a.body)
	require.NoError(n.t, json.Unmarshal([]byte(a.body), &v))
	return v
}

func TestNetworksOfClients(t *testing.T) {
	server := testenv.StartConsul(t, testenv.ConsulOptions{})
	for name, f := range map[string]func(*testing.T, *lister){
		"decide": networksDecide, "end": networksEnd, "kept": networksAreKept, "damaged": networksAreDamaged, "policy": networksAndPolicy,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, followLists(t, server))
		})
	}
}

func networksDecide(t *testing.T, l *lister) {
	n := start(t, l.listing())
	n.gets("203.0.113.7", 200)
	require.Nil(t, n.explains("203.0.113.7").ListEntry)
	eventually(t, "Consul answers", func() bool { return n.clientsView().Consul.OK })
	require.Empty(t, n.clientsView().Version)
	require.Equal(t, "1", n.meta()["clients_schema"])

	l.decide(clientlist.Block, 0, "203.0.113.0/24", "2001:db8::/32")
	a := n.gets("203.0.113.7", 403)
	require.Equal(t, "application/problem+json", a.header.Get("Content-Type"))
	require.JSONEq(t, `{"type":"about:blank","title":"Forbidden","status":403,"detail":"the operators of this site block this address"}`, a.body)
	require.Empty(t, a.header.Get("RateLimit"), "no rule was asked")
	n.gets("2001:db8:1::1", 403)
	n.gets("::ffff:203.0.113.7", 403)
	n.gets("203.0.114.7", 200)
	e := n.explains("203.0.113.7")
	require.Equal(t, "refuse, 403", e.Verdict)
	require.Empty(t, e.Upstream+e.Class, "a blocked request goes to none")
	require.NotEmpty(t, e.Rules)
	for _, r := range e.Rules {
		require.False(t, r.Allowed, "a rule with requests left does not let a blocked client pass")
		require.Equal(t, adminapi.SourceBlocked, r.Source)
	}
	require.Equal(t, "203.0.113.0/24", e.ListEntry.Network.String())
	require.Equal(t, "ana", e.ListEntry.By)
	require.Equal(t, "scans /login", e.ListEntry.Reason)
	require.GreaterOrEqual(t, n.metric("weir_client_blocks_total"), 3.0)
	require.EqualValues(t, 2, n.metric(`weir_client_networks{action="block"}`))
	line := n.logs.lines(t, "request blocked")[0]
	require.Equal(t, "203.0.113.0/24", line["network"])
	require.Equal(t, "scans /login", line["reason"])
	eventually(t, "Consul knows", func() bool { return n.meta()["clients_version"] == n.clientsView().Version })

	// An allowed network inside a blocked one, which rules limit as others.
	l.decide(clientlist.Allow, 0, "203.0.113.64/26")
	a = n.gets("203.0.113.65", 200)
	require.NotEmpty(t, a.header.Get("RateLimit"))
	n.gets("203.0.113.7", 403)
	require.Equal(t, clientlist.Allow, n.explains("203.0.113.65").ListEntry.Action)

	l.decide("", 0, "203.0.113.0/24")
	n.gets("203.0.113.7", 200)
}

func networksEnd(t *testing.T, l *lister) {
	n := start(t, l.listing())
	l.decide(clientlist.Block, 0, "203.0.113.0/24")
	l.decide(clientlist.Allow, time.Hour, "203.0.113.7/32")
	n.gets("203.0.113.8", 403)
	n.gets("203.0.113.7", 200)
	l.decide(clientlist.Allow, time.Second, "203.0.113.7/32") // once it is seen: a slow machine could miss it
	n.gets("203.0.113.7", 403)                                // once the allow is over, the wider block decides
	require.Zero(t, n.clientsView().Allows)
	l.decide(clientlist.Block, time.Second, "198.51.100.0/24")
	eventually(t, "it ends", func() bool { v := n.clientsView(); return v.Blocks == 1 && v.Next.IsZero() })
	n.gets("198.51.100.1", 200)
}

// Blocks outlast a restart while Consul is unreachable.
func networksAreKept(t *testing.T, l *lister) {
	l.decide(clientlist.Block, 0, "203.0.113.0/24")
	n := start(t, l.listing())
	n.gets("203.0.113.7", 403)
	eventually(t, "it is on disk", func() bool {
		data, err := os.ReadFile(n.config.Clients.Cache)
		var kept struct{ Networks *clientlist.List }
		return err == nil && json.Unmarshal(data, &kept) == nil && kept.Networks.Version() == n.clientsView().Version
	})
	file := n.config.Clients.Cache
	again := func(change func(*config.Config)) *node {
		s := l.listing()
		before := s.config
		s.config = func(c *config.Config) {
			before(c)
			c.Clients.Cache, c.Consul.Addr = file, "127.0.0.1:1"
			c.Rules.Cache = n.config.Rules.Cache
			if change != nil {
				change(c)
			}
		}
		return start(t, s)
	}
	eventually(t, "the rules are on disk", func() bool { _, err := n.kept(); return err == nil })
	n.stop()
	alone := again(nil)
	alone.gets("203.0.113.7", 403)
	v := alone.clientsView()
	require.Equal(t, "cache", v.Source)
	require.Equal(t, 1, v.Blocks)
	require.False(t, v.Consul.OK)
	require.Zero(t, alone.metric("weir_client_networks_source_up"))
	alone.stop()

	require.NoError(t, os.WriteFile(file, []byte(`{"networks":{}}`), 0o600))
	damaged := again(nil)
	damaged.gets("203.0.113.7", 200)
	require.EqualValues(t, 1, damaged.metric("weir_client_networks_cache_errors_total"))
	require.Len(t, damaged.logs.lines(t, "cached client lists not used"), 1)
}

// What a hand breaks in Consul changes nothing on a node.
func networksAreDamaged(t *testing.T, l *lister) {
	l.decide(clientlist.Block, 0, "203.0.113.0/24")
	n := start(t, l.listing())
	n.gets("203.0.113.7", 403)
	key := clientlist.CurrentKey(l.client)
	good, err := l.client.Get(t.Context(), key)
	require.NoError(t, err)
	l.remove(key)
	eventually(t, "the loss is noticed", func() bool { return !n.clientsView().Consul.OK })
	require.Contains(t, n.clientsView().Consul.Error, key)
	l.write(key, "{}")
	eventually(t, "it is reported", func() bool { v := n.clientsView(); return !v.Consul.OK && len(v.Consul.Error) > 0 })
	n.gets("203.0.113.7", 403)
	l.write(key, string(good.Value))
	l.decide(clientlist.Block, 0, "198.51.100.0/24")
	n.gets("198.51.100.1", 403)
	eventually(t, "it is well again", func() bool { return n.clientsView().Consul.OK })
}

// An allowed client's behavior does not matter.
func networksAndPolicy(t *testing.T, l *lister) {
	s := l.listing()
	before := s.config
	s.config = func(c *config.Config) {
		before(c)
		c.Policy.File = policyFile(t, "mode: enforce")
	}
	n := start(t, s)
	n.gets("203.0.113.7", 200)
	require.NotNil(t, n.explains("203.0.113.7").Behavior)
	l.decide(clientlist.Allow, 0, "203.0.113.0/24")
	eventually(t, "it is allowed", func() bool { return n.explains("203.0.113.7").ListEntry != nil })
	require.Nil(t, n.explains("203.0.113.7").Behavior)
}
