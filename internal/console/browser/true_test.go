package browser

import (
	"context"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
	"github.com/weir-edge/weir/pkg/region/consul"
	"github.com/weir-edge/weir/pkg/sign"
)

// told are rules of which one, in shadow mode, would refuse a client's second request.
var told = `rules:
  - {id: per-client, key: [client_ip], algorithm: fixed_window, limit: 100, window: ` + testenv.LongWindow() + `}
  - {id: stricter, key: [client_ip], algorithm: fixed_window, limit: 1, window: ` + testenv.LongWindow() + `, mode: shadow}
`

// near is a topology whose PoPs are close together on a map of the world.
const near = `{zone: e.example, steering: first, regions: [
  {name: eu-west, pops: [{name: ams1, addresses: [203.0.113.1], location: {lat: 52.37, lon: 4.90}}, {name: fra1, addresses: [203.0.113.4], location: {lat: 50.11, lon: 8.68}},
    {name: cdg1, addresses: [203.0.113.5], location: {lat: 48.86, lon: 2.35}}, {name: lhr1, addresses: [203.0.113.6], location: {lat: 51.51, lon: -0.13}}]},
  {name: us-east, pops: [{name: iad1, addresses: [203.0.113.2], location: {lat: 38.95, lon: -77.45}}, {name: nyc1, addresses: [203.0.113.7], location: {lat: 40.71, lon: -74.01}}]},
  {name: ap-south, pops: [{name: bom1, addresses: [203.0.113.3], location: {lat: 19.08, lon: 72.88}}, {name: maa1, addresses: [203.0.113.8], location: {lat: 13.08, lon: 80.27}}]}]}`

// Pages say what is true: of a blocked client, of a rule that only watches, of a canary that failed,
// and of a region that is down, whose errors do not displace the others.
func TestPagesAreTrue(t *testing.T) {
	l := startRegions(t, 3, "trusted_proxies: [127.0.0.0/8]")
	l.run("rules", "apply", l.write("rules.yaml", told), "--yes", "-m", "what the pages tell")
	b := launch(t)
	b.dress("light", 1280)
	l.enter(b)

	b.visit(l.url + "/fleet")
	b.sees("[...document.querySelectorAll('h2 .badge.good')].map((e) => e.textContent).join() === 'serving,serving,serving'")

	const watched, blocked = "203.0.113.8", "203.0.113.9"
	for range 3 {
		require.Equal(t, http.StatusOK, l.ask(0, watched, "/"))
	}
	const allowed = "[...document.querySelectorAll('[aria-label=\"Rules of the next request in eu-west\"] tbody tr')].map((r) => r.cells[0].textContent + ': ' + r.cells[2].querySelector('.badge').textContent).join()"
	b.visit(l.url + "/client?client=" + watched)
	b.sees(allowed + " === 'per-client: yes,stricter: would refuse'")
	require.False(t, b.is("document.querySelector('[aria-label=\"Rules of the next request in eu-west\"] .badge.bad')"), "it refuses nobody")
	b.look("client-shadow")
	l.run("clients", "block", blocked, "-m", "scans", "--yes")
	b.visit(l.url + "/client?client=" + blocked)
	b.has("refuse, 403")
	b.sees(allowed + " === 'per-client: no,stricter: no'")
	b.sees("[...document.querySelectorAll('[aria-label=\"What is decided about this client\"] td')].some((c) => c.textContent === 'further notice')")
	b.sees("[...document.querySelectorAll('[aria-label=\"Rules that count the address in eu-west\"] .badge')].every((e) => e.textContent !== 'yes')")

	// The list begins with who did what. A canary that failed is in it, and does not hide the
	// change before it.
	out, err := exec.Command(l.regionctl, "rules", "apply", l.write("rules.yaml", document(70, "enforce")), "--fleet", l.fleet, "--yes", "-m", "INC-20", "--canary", "ams1", "--bake", "1s", "--min-requests", "100000").CombinedOutput()
	require.Error(t, err, "%s", out)
	b.visit(l.url + "/audit")
	b.has("canary not promoted")
	b.sees("document.querySelector('main section').getAttribute('aria-labelledby') === 'changes'")
	b.sees("[...document.querySelectorAll('[aria-label=Changes] tbody tr')].find((r) => r.querySelector('[aria-label=\"Undo the last change of rules\"]'))?.textContent.includes('what the pages tell')")
	b.look("audit-canary")

	// The names on the map cover neither each other nor a dot.
	l.run("topology", "apply", l.write("topology.yaml", near), "--yes")
	b.visit(l.url + "/dns")
	b.sees("document.querySelectorAll('.pop text').length === 8")
	require.Equal(t, "", b.eval(`(() => {
		const names = [...document.querySelectorAll('.pop text')], dots = [...document.querySelectorAll('.pop circle')], box = (e) => e.getBoundingClientRect();
		const meet = (a, b) => a.left < b.right && b.left < a.right && a.top + 2 < b.bottom - 2 && b.top + 2 < a.bottom - 2;
		return names.flatMap((n, i) => [...names.slice(i + 1), ...dots].filter((o) => meet(box(n), box(o))).map((o) => n.textContent + ' ' + (o.textContent || 'a dot'))).join();
	})()`))
	b.sees("document.querySelectorAll('[aria-label=\"What PoPs receive and give\"] tbody tr').length === 8")
	b.look("dns-near")
	givesClients(l, b)

	// The page says since when it counts.
	b.visit(l.url + "/rules")
	b.has("limited since opening")
	b.has("when this page was opened")

	// A region without an edge, and one whose Consul hangs.
	b.visit(l.url + "/fleet")
	heading := func(region, text string) {
		t.Helper()
		b.sees(fmt.Sprintf("((h) => h.matches('.bad') && h.querySelector('.badge.bad').textContent === %s)(document.querySelector('#region-%s'))", literal(text), region))
	}
	l.edges[1].Kill()
	l.consuls[2].Suspend()
	t.Cleanup(l.consuls[2].Resume)
	heading("us-east", "down")
	heading("ap-south", "unknown")
	require.True(t, b.is("[...document.querySelectorAll('main details')].every((d) => !d.open)"))
	require.True(t, b.is("document.querySelector('section[aria-labelledby=region-us-east]').offsetHeight + document.querySelector('section[aria-labelledby=region-ap-south]').offsetHeight < 500"), "their errors take a line each")
	b.look("fleet-down")
}

// givesClients shows a full PoP, of which a router gives clients to the nearest with room.
func givesClients(l *lab, b *chromium) {
	t := l.t
	file := filepath.Join(t.TempDir(), "ns1.pem")
	l.run("keys", "generate", file)
	key, err := sign.ReadKey(file)
	require.NoError(t, err)
	l.run("topology", "apply", l.write("topology.yaml", strings.Replace(near, "regions:", "routers: [{name: ns1, key: "+key.Public()+"}], regions:", 1)), "--yes")
	router := exec.Command(l.regionctl, "dns", "--fleet", l.fleet, "--key", file, "--listen", fmt.Sprintf("127.0.0.1:%d", testenv.FreePorts(t, 1)[0]), "--metrics", "")
	router.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(t, router.Start())
	client, err := consul.Open(consul.Config{Addr: l.consuls[0].Addr()})
	require.NoError(t, err)
	ctx, leave := context.WithCancel(t.Context())
	var registered sync.WaitGroup
	defer func() {
		leave()
		registered.Wait()
		client.Close()
		_ = router.Process.Kill()
		_ = router.Wait()
	}()
	for pop, load := range map[string]consul.Load{"fra1": {Demand: 1500, Capacity: 1000}, "cdg1": {Demand: 100, Capacity: 1000}} {
		admin, _ := testenv.Readiness(t)
		n := consul.Registration{ID: pop + "-1", Address: "127.0.0.1", Port: testenv.FreePorts(t, 1)[0], Admin: admin, Region: "eu-west", PoP: pop, CheckURL: "http://" + admin + "/readyz"}
		registered.Go(func() {
			client.Register(ctx, n, func() map[string]string {
				meta := map[string]string{}
				load.Put(meta)
				return meta
			}, nil, nil)
		})
	}
	cell := func(pop string, i int) string {
		return fmt.Sprintf("([...document.querySelectorAll('[aria-label=\"What PoPs receive and give\"] tbody tr')].find((r) => r.cells[0].textContent === '%s')?.cells[%d].textContent ?? '')", pop, i)
	}
	b.sees("/[1-9][0-9.]*% to cdg1/.test(" + cell("fra1", 5) + ") && /[1-9][0-9.]*% of fra1/.test(" + cell("cdg1", 6) + ")")
	b.sees("[...document.querySelectorAll('.gift title')].some((e) => /^fra1 gives [1-9][0-9.]*% to cdg1$/.test(e.textContent))")
	b.look("dns-gives")
}
