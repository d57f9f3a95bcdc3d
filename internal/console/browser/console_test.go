// Package browser drives regionctl's console in Chromium, against a fleet of real edges.
package browser

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
)

//go:embed testdata/axe.min.js
var axe string

// hostile is text that would run if a page inserted it as HTML.
const hostile = `<img src=x onerror="window.ran=1"> & 'quotes'`

// lab is a fleet of regions, each with Consul, Redis and an edge, and a console for it.
type lab struct {
	t                     *testing.T
	regionctl, fleet, url string
	page                  string // the file that opens the console
	edges                 []*testenv.EdgeNode
	consuls               []*testenv.Consul
	redis                 []*testenv.Server
	join                  func(region int, id, peer string) // starts another edge there, whose peer address is peer; "": none
	console               *exec.Cmd
}

func document(limit int, mode string) string {
	description, _ := json.Marshal(hostile)
	return fmt.Sprintf("rules:\n  - id: per-client\n    description: %s\n    key: [client_ip]\n    algorithm: sliding_window\n    limit: %d\n    window: 1m\n    mode: %s\n", description, limit, mode) +
		"  - {id: login, match: {paths: [/login], methods: [POST]}, key: [client_ip], limit: 5, window: 1m}\n" +
		"  - {id: stricter, description: \"a try\", key: [client_ip], limit: 50, window: 1m, mode: shadow}\n"
}

// shared are rules whose counts the regions share, and one whose key is secret.
const shared = `rules:
  - {id: moving, key: [client_ip], algorithm: fixed_window, limit: 6000, window: 1m, scope: global}
  - {id: quota, match: {paths: [/quota]}, key: [client_ip], algorithm: fixed_window, limit: 6000, window: 1m, on_store_failure: closed, scope: global, global: {mode: escrow}}
  - {id: per-key, key: ["header:X-Api-Key"], limit: 10, window: 1h}
`

// sensible are rules for pictures.
const sensible = `rules:
  - id: per-client
    description: a client's fair share of the whole site
    key: [client_ip]
    algorithm: sliding_window
    limit: 1200
    window: 1m
  - id: login
    description: slows down those who guess passwords
    match: {paths: [/login], methods: [POST]}
    key: [client_ip]
    limit: 5
    window: 1m
  - {id: stricter, description: "half as much, to see whom it would hit", key: [client_ip], limit: 600, window: 1m, mode: shadow}
`

// start starts a lab of two regions. more is appended to its edges' configuration.
func start(t *testing.T, more ...string) *lab { t.Helper(); return startRegions(t, 2, more...) }

func startRegions(t *testing.T, n int, more ...string) *lab {
	t.Helper()
	l := &lab{t: t, regionctl: testenv.Program(t, "regionctl")}
	workers := make(chan struct{}, 5) // each answers ten requests of /orders per second
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/orders" {
			workers <- struct{}{}
			<-time.After(100 * time.Millisecond)
			<-workers
		}
		_, _ = io.WriteString(w, "ok")
	}))
	t.Cleanup(origin.Close)
	var fleet strings.Builder
	fleet.WriteString("regions:\n")
	names, pops := []string{"eu-west", "us-east", "ap-south"}[:n], []string{"ams1", "iad1", "bom1"}
	topology := "{zone: e.example, steering: first, regions: ["
	var peers strings.Builder
	peer := make([]string, len(names))
	for i, port := range testenv.FreePorts(t, len(names)) {
		peer[i] = fmt.Sprintf("127.0.0.1:%d", port)
		fmt.Fprintf(&peers, "    - {name: %s, nodes: [{id: %s-1, address: %q}]}\n", names[i], pops[i], peer[i])
	}
	l.join = func(i int, id, address string) {
		own, others := "", ""
		if address != "" {
			own, others = fmt.Sprintf("  peer: {address: %q, insecure: true}\n", address), "peer:\n  regions:\n"+peers.String()
		}
		l.edges = append(l.edges, testenv.StartEdge(t, fmt.Sprintf("%snode: {id: %s, region: %s, pop: %s}\n%srules: {source: consul, cache: %q}\npolicy: {source: consul}\nconsul: {addr: %q}\nstore: {kind: redis, timeout: 2s, redis: {mode: single, addrs: [%q]}}\nupstreams: [{url: %q}]\n",
			own, id, names[i], pops[i], others, filepath.Join(t.TempDir(), "rules.json"), l.consuls[i].Addr(), l.redis[i].Addr, origin.URL)+strings.Join(more, "\n")))
	}
	for i, consul := range testenv.StartConsuls(t, testenv.ConsulOptions{}, names...) {
		fmt.Fprintf(&fleet, "  - {name: %s, consul: {addr: %q}}\n", names[i], consul.Addr())
		topology += fmt.Sprintf("{name: %s, pops: [{name: %s, addresses: [203.0.113.%d], location: %s}]}, ", names[i], pops[i], i+1, []string{"{lat: 52.4, lon: 4.9}", "{lat: 38.9, lon: -77.5}", "{lat: 19.1, lon: 72.9}"}[i])
		l.consuls = append(l.consuls, consul)
		l.redis = append(l.redis, testenv.Redis(t, testenv.Options{}))
		l.join(i, pops[i]+"-1", peer[i])
	}
	l.registers()
	l.fleet = l.write("fleet.yaml", fleet.String())
	l.run("init", "--yes")
	l.run("topology", "apply", l.write("topology.yaml", topology+"]}"), "--yes")
	l.run("rules", "apply", l.write("rules.yaml", sensible), "--yes", "-m", "halve what a client may, CHG-77")
	for _, e := range l.edges {
		e.WaitReady()
	}
	l.open("--listen", "127.0.0.1:0")
	return l
}

// registers waits until every edge is registered: regionctl waits for no others.
func (l *lab) registers() {
	l.t.Helper()
	require.Eventually(l.t, func() bool {
		known := 0
		for _, consul := range l.consuls {
			list, _, err := consul.Client().Catalog().Service("weir-edge", "", nil)
			require.NoError(l.t, err)
			known += len(list)
		}
		return known == len(l.edges)
	}, testenv.Patience, 20*time.Millisecond)
}

func (l *lab) write(name, text string) string {
	file := filepath.Join(l.t.TempDir(), name)
	require.NoError(l.t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

// run runs regionctl in a shell's place.
func (l *lab) run(args ...string) string {
	l.t.Helper()
	out, err := exec.Command(l.regionctl, append(args, "--fleet", l.fleet, "-o", "json", "--timeout", "5s")...).Output()
	var failed *exec.ExitError
	if err != nil {
		failed, _ = err.(*exec.ExitError)
		require.NoError(l.t, err, "%v: %s", args, failed.Stderr)
	}
	return string(out)
}

// open starts a console.
func (l *lab) open(how ...string) {
	l.t.Helper()
	l.console = exec.Command(l.regionctl, append([]string{"console", "--fleet", l.fleet, "-o", "json"}, how...)...)
	l.console.Env = append(os.Environ(), "WEIR_USER=ana@desk")
	l.console.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := l.console.StdoutPipe()
	require.NoError(l.t, err)
	require.NoError(l.t, l.console.Start())
	l.t.Cleanup(l.close)
	var at struct{ URL, Page string }
	require.NoError(l.t, json.NewDecoder(bufio.NewReader(out)).Decode(&at))
	l.url, l.page = at.URL, at.Page
}

// enter opens the console as the user who started it does.
func (l *lab) enter(b *chromium) {
	l.t.Helper()
	b.visit("file://" + l.page)
	b.has("as ana@desk")
}

func (l *lab) close() { l.end(syscall.SIGTERM) }

// end sends the console a signal and waits until it has exited.
func (l *lab) end(how syscall.Signal) {
	if l.console.ProcessState == nil {
		_ = l.console.Process.Signal(how)
		_ = l.console.Wait()
	}
}

// traffic sends requests to the edges, above the rules' limits, until ctx is done.
func (l *lab) traffic(ctx context.Context) {
	var all sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	l.t.Cleanup(func() { cancel(); all.Wait() })
	for _, e := range l.edges {
		all.Go(func() {
			tick := time.NewTicker(40 * time.Millisecond)
			defer tick.Stop()
			for ctx.Err() == nil {
				if resp, err := http.Get("http://" + e.Public + "/"); err == nil {
					_ = resp.Body.Close()
				}
				<-tick.C
			}
		})
	}
}

// limits returns the limit of each edge's first rule.
func (l *lab) limits() string {
	var all []string
	for _, e := range l.edges {
		resp, err := http.Get("http://" + e.Admin + "/v1/rules")
		require.NoError(l.t, err)
		var v struct{ Rules []struct{ Limit int } }
		require.NoError(l.t, json.NewDecoder(resp.Body).Decode(&v))
		require.NoError(l.t, resp.Body.Close())
		all = append(all, fmt.Sprint(v.Rules[0].Limit))
	}
	return strings.Join(all, " ")
}

// The main action of each page takes effect on the edges. Each page, in both color schemes and
// at phone width, has no fault that axe-core finds, runs no foreign script, and sends no
// request to another host.
func TestConsole(t *testing.T) {
	l := start(t)
	l.traffic(t.Context())
	b := launch(t)
	b.dress("light", 1280)
	l.enter(b)

	// This page is docs/console.png. When that is saved, wait until its series are longer.
	b.visit(l.url + "/rules")
	b.has("CHG-77")
	looks := 2
	if os.Getenv("WEIR_SCREENSHOTS") != "" {
		looks = 20
	}
	b.sees(fmt.Sprintf("document.querySelector('.spark polyline')?.getAttribute('points').split(' ').length >= %d", looks))
	b.picture("console")
	l.run("rules", "apply", l.write("rules.yaml", document(100, "enforce")), "--yes", "-m", "the first rules")

	b.visit(l.url + "/")
	b.has("2 / 2")
	b.has("ams1-1")
	b.sees("document.querySelector('.fresh.good')")
	b.look("fleet")
	b.click("Drain ams1")
	b.fill("dialog [name=reason]", "kernel "+hostile)
	b.look("fleet-drain")
	b.click("Drain")
	b.has("ams1 is drained")
	b.click("Close")
	require.Contains(t, l.run("status"), "kernel ")
	b.has("kernel " + hostile)
	b.look("fleet-drained")
	b.click("Undrain ams1")
	b.click("Undrain")
	b.has("ams1 is back")
	b.click("Close")
	require.NotContains(t, l.run("status"), "kernel ")

	b.click("Rules")
	b.has("per-client")
	b.sees("document.querySelector('#document')?.value.includes('per-client')")
	b.sees("[...document.querySelectorAll('td.n.bad')].length > 0") // now limited
	b.has("the first rules")
	b.look("rules")
	b.fill("#document", strings.Replace(document(100, "enforce"), "limit: 100", "limit: no", 1))
	b.has("line 6")
	b.look("rules-faults")
	b.fill("#document", document(5000, "enforce"))
	b.has("Good: 3 rules")
	b.click("Compare")
	b.has("→ 5000")
	b.look("rules-difference")
	b.click("Apply…")
	b.fill("dialog [name=message]", "more for all, INC-1")
	b.click("Apply")
	b.has("Every edge runs it")
	b.look("rules-applied")
	b.click("Close")
	require.Equal(t, "5000 5000", l.limits())
	b.has("more for all, INC-1")
	b.eval("document.querySelector('[aria-label^=\"Changes of\"]').click()")
	b.sees("document.querySelector('section[aria-labelledby=history] .changes ins')?.innerText === '5000'")
	b.look("rules-history")

	// Another operator applies while this page is edited: the page says so and keeps its text.
	l.run("rules", "apply", l.write("other.yaml", document(70, "enforce")), "--yes", "-m", "another")
	b.fill("#document", document(80, "enforce"))
	b.has("Good: 3 rules")
	b.click("Apply…")
	b.fill("dialog [name=message]", "mine")
	b.click("Apply")
	b.has("Somebody else was faster")
	b.look("rules-conflict")
	b.click("Close")
	require.True(t, b.is("document.querySelector('#document').value.includes('limit: 80')"))
	require.Equal(t, "70 70", l.limits())

	rollOut(l, b)

	b.click("Client")
	b.has("Whose requests?")
	b.look("client-empty")
	b.fill("[name=client]", "127.0.0.1")
	b.click("Explain")
	b.has("refuse, 429")
	b.sees("location.search === '?client=127.0.0.1'")
	b.look("client")
	b.click("Reset per-client")
	b.click("Reset")
	b.has("The counter is reset")
	b.click("Close")

	b.click("Shedder")
	b.has("inflight")
	b.look("shedder")
	b.fill("input[name='inflight.high']", "80")
	b.has("candidates.trial.signals.inflight.high=80")
	b.click("Run as a candidate…")
	b.fill("dialog [name=message]", "sheds too late")
	b.click("Run them")
	b.has("Every edge runs the candidate")
	b.click("Close")
	b.sees("document.querySelector('[aria-label=\"The candidate and the live settings\"]')?.innerText.includes('default')")
	b.look("shedder-knees")
	require.Contains(t, l.run("shedder", "show", "--live"), "trial")
	b.click("Shed by them…")
	b.fill("dialog [name=message]", "as the candidate, CHG-8")
	b.click("Shed by them")
	b.has("Every edge sheds by them")
	b.click("Close")
	require.Contains(t, l.run("shedder", "show"), "high: 80")
	b.click("Kill switch…")
	b.fill("dialog [name=message]", "INC-2")
	b.click("Switch off")
	b.has("The shedder is off")
	b.click("Close")
	b.has("Shedding is off in eu-west, us-east")
	b.look("shedder-off")
	b.click("End temporary settings…")
	b.click("End them")
	b.has("They have ended")
	b.click("Close")
	require.NotContains(t, l.run("shedder", "show", "--live"), `"off": true`)

	b.click("Behavior")
	b.has("No policy is published")
	b.look("behavior-empty")
	for _, mode := range []string{"shadow", "enforce"} {
		l.run("policy", "apply", l.write("policy.yaml", "mode: "+mode+" # "+hostile), "--yes", "-m", "to "+mode)
	}
	b.visit(l.url + "/behavior")
	b.has("to enforce")
	b.has("all use it")
	b.eval("document.querySelector('[aria-label^=\"Changes of\"]').click()")
	b.sees("document.querySelector('.changes .changed')?.innerText === 'mode: shadow → enforce'")
	b.look("behavior")
	b.eval("document.querySelector('[aria-label^=\"Restore version\"]').click()")
	b.click("Restore")
	b.has("is active again")
	b.click("Close")
	b.has("mode: shadow")
	b.visit(l.url + "/client?client=127.0.0.1")
	b.sees("/Tier \\w+, score \\d+/.test(document.body.innerText)")
	b.look("client-judged")

	b.click("Global limits")
	b.has("No rule is global")
	b.look("global-empty")
	l.run("rules", "apply", l.write("global.yaml", shared), "--yes", "-m", "count together")
	b.has("counts with others")
	b.sees("[...document.querySelectorAll('[aria-label=\"Global rules in eu-west\"] tbody tr')].map((r) => r.cells[0].textContent + ' ' + r.cells[2].textContent).join() === 'moving eventual,quota escrow'")
	b.sees("document.querySelector('[aria-label=\"What us-east hears\"] th[scope=row]')?.textContent === 'eu-west'")
	b.look("global")
	secrets(l, b)
	l.run("undo", "rules", "--yes")

	b.click("DNS")
	b.has("ams1")
	b.fill("[name=client]", "203.0.113.7")
	b.click("Explain")
	b.has("→ ams1")
	b.sees("location.search === '?client=203.0.113.7' && document.querySelector('.pop.first text')?.textContent === 'ams1'")
	b.look("dns")

	b.click("Audit")
	b.has("INC-2")
	b.has("undrain ams1")
	b.has("reset rule per-client for 127.0.0.1")
	b.has("whole")
	b.look("audit")
	for _, drained := range []bool{true, false} { // the undrain is taken back, and then that
		b.click("Undo the last change of drain")
		b.click("Undo")
		b.has("They have what they had")
		b.click("Close")
		require.Equal(t, drained, strings.Contains(l.run("status"), "kernel "))
	}
	b.eval("window.saved = ''; URL.createObjectURL = (blob) => { blob.text().then((text) => { window.saved = text; }); return '#'; }; HTMLAnchorElement.prototype.click = () => {}")
	b.fill("[aria-label='Filter changes']", "INC-1")
	const rows = "[...document.querySelectorAll('[aria-label=Changes] tbody tr')]"
	b.sees(rows + ".length > 0 && " + rows + ".every((r) => r.textContent.includes('INC-1'))")
	b.click("Export")
	b.sees("window.saved && JSON.parse(window.saved).every((c) => c.message.includes('INC-1'))")

	// Links open each page directly; keys switch between pages.
	b.visit(l.url + "/client?client=127.0.0.1&path=/login&method=POST")
	b.has("login")
	b.eval("document.activeElement.blur()")
	b.press("/")
	b.sees("document.activeElement.name === 'client'")
	b.eval("document.activeElement.blur()")
	for i, title := range []string{"Fleet", "Rules", "Client", "Shedder", "Behavior", "Global limits", "DNS", "Audit"} {
		b.press(fmt.Sprint(i + 1))
		b.sees("document.querySelector('h1')?.textContent === " + literal(title))
	}
	b.press("1")
	b.has("requests per second")
	b.has("in step") // the edges' clocks

	require.False(t, b.is("window.ran"), "a script of a stranger ran")
	b.mu.Lock()
	require.Equal(t, map[string]bool{l.url: true}, b.hosts)
	// Chromium also logs refused changes as network errors, and requests for documents that do
	// not exist or on which the regions disagree.
	b.faults = slices.DeleteFunc(b.faults, func(f string) bool {
		return strings.Contains(f, "status of 409") || strings.HasSuffix(f, "/rules/document") || strings.HasSuffix(f, "/policy/document")
	})
	require.Empty(t, b.faults)
	// The console stops while a page is open: the page keeps its data and shows their age.
	b.offline = true
	b.mu.Unlock()
	l.close()
	b.has("What you see is out of date")
	b.has("ams1-1")
	b.look("fleet-stale")
	people(t, l)
}
