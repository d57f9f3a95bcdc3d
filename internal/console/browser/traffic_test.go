package browser

import (
	"bufio"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// hostilePath is a path that rules may count by; decoded, it is HTML.
const hostilePath = "/%3Cimg%20src=x%20onerror=window.ran=1%3E"

// stricter is a candidate that limits what sensible allows.
const stricter = `rules:
  - {id: per-client, key: [client_ip], algorithm: sliding_window, limit: 5, window: 1m}
  - {id: per-path, key: [path], limit: 1, window: 1m, mode: shadow}
`

// ask sends a client's request to an edge and returns its status.
func (l *lab) ask(edge int, client, path string) int {
	l.t.Helper()
	r, err := http.NewRequest(http.MethodGet, "http://"+l.edges[edge].Public+path, nil)
	require.NoError(l.t, err)
	r.Header.Set("X-Forwarded-For", client)
	resp, err := http.DefaultClient.Do(r)
	require.NoError(l.t, err)
	require.NoError(l.t, resp.Body.Close())
	return resp.StatusCode
}

// access writes an access log of size bytes: a thousand clients in an hour.
func (l *lab) access(size int) string {
	name := filepath.Join(l.t.TempDir(), "access.log")
	file, err := os.Create(name)
	require.NoError(l.t, err)
	w, at := bufio.NewWriter(file), time.Now().Add(-time.Hour).UTC()
	for n, i := 0, 0; n < size; i++ {
		m, err := fmt.Fprintf(w, "198.51.%d.%d - - [%s] \"GET /products/%d HTTP/1.1\" 200 5120 \"https://shop.example.com/\" \"Mozilla/5.0\"\n",
			i%1000/250, i%250, at.Add(time.Duration(n/(size/3600+1))*time.Second).Format("02/Jan/2006:15:04:05 -0700"), i%97)
		require.NoError(l.t, err)
		n += m
	}
	require.NoError(l.t, w.Flush())
	require.NoError(l.t, file.Close())
	return name
}

// memory returns the console's peak memory in MB.
func (l *lab) memory() int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", l.console.Process.Pid))
	require.NoError(l.t, err)
	kb, err := strconv.Atoi(regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindStringSubmatch(string(text))[1])
	require.NoError(l.t, err)
	return kb >> 10
}

// attach chooses a file in a field.
func (c *chromium) attach(selector, file string) {
	c.t.Helper()
	c.sees("document.querySelector(" + literal(selector) + ")")
	var object struct{ Result struct{ ObjectID string } }
	c.call("Runtime.evaluate", map[string]any{"expression": "document.querySelector(" + literal(selector) + ")"}, &object)
	c.call("DOM.setFileInputFiles", map[string]any{"files": []string{file}, "objectId": object.Result.ObjectID}, nil)
}

// Simulations replay the edges' decisions and a log. A client is blocked and unblocked. A
// region becomes unreachable while its page is open. No client's text runs as a script.
func TestTraffic(t *testing.T) {
	l := start(t, "recent: {keep: 10000}", "trusted_proxies: [127.0.0.0/8]")
	b := launch(t)
	b.dress("light", 1280)
	l.enter(b)
	for i := range 12 {
		require.Equal(t, 200, l.ask(0, "203.0.113.9", "/"))
		require.Equal(t, 200, l.ask(0, "203.0.113."+strconv.Itoa(10+i), hostilePath))
	}
	b.visit(l.url + "/rules")
	b.sees("document.querySelector('#document')?.value.includes('per-client')")
	tryTraffic(t, l, b)
	byHand(t, l, b)
	lost(t, l, b)
	require.False(t, b.is("window.ran"), "a script of a stranger ran")
	b.mu.Lock()
	defer b.mu.Unlock()
	require.Equal(t, map[string]bool{l.url: true}, b.hosts)
	// The browser also logs the console's refusals as network errors.
	require.Empty(t, slices.DeleteFunc(b.faults, func(f string) bool { return strings.Contains(f, "the server responded with a status of") }))
}

func tryTraffic(t *testing.T, l *lab, b *chromium) {
	b.fill("#document", stricter)
	b.has("Good: 2 rules")
	b.look("try-idle")
	b.click("Try")
	b.has("24 requests")
	b.has("Newly limited: 7 requests")
	b.sees("[...document.querySelectorAll('.tried a')].some((a) => a.textContent === '203.0.113.9')")
	b.sees("[...document.querySelectorAll('.tried code')].some((c) => c.title.includes('%3Cimg'))")
	b.has("regionctl rules test --from-nodes rules.yaml --region eu-west")
	b.look("try-nodes")
	require.Equal(t, "1200 1200", l.limits(), "nothing was changed")

	// A changed document discards the old result.
	b.fill("#document", strings.Replace(stricter, "limit: 5", "limit: 50", 1))
	b.has("The document was edited since")
	b.click("Try")
	b.has("No request would be decided differently")
	b.eval(`document.querySelector('#try ~ form select, form select').value = 'us-east'; document.querySelector('form select').dispatchEvent(new Event('change', {bubbles: true}))`)
	b.click("Try")
	b.has("have decided no request since")
	b.look("try-nothing")

	// A slow log, canceled.
	log := l.access(100 << 20)
	b.eval(`document.querySelector('input[value=log]').click()`)
	b.attach("input[type=file]", log)
	b.call("Network.emulateNetworkConditions", map[string]any{"offline": false, "latency": 0, "downloadThroughput": -1, "uploadThroughput": 2 << 20}, nil)
	b.click("Try")
	b.sees("document.querySelector('progress')?.value > 0")
	b.look("try-progress")
	b.click("Cancel")
	b.has("Cancelled")
	b.look("try-cancelled")
	// The same log to its end.
	b.call("Network.emulateNetworkConditions", map[string]any{"offline": false, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}, nil)
	b.fill("#document", stricter)
	b.has("Good: 2 rules")
	b.click("Try")
	b.has("Newly limited")
	b.sees("[...document.querySelectorAll('.tried a')].some((a) => a.textContent.startsWith('198.51.'))")
	b.has("regionctl rules test rules.yaml access.log --region us-east")
	b.sees("document.querySelector('.tried th:nth-child(4)').textContent.endsWith(document.querySelector('#verdict code').textContent)")
	b.look("try-log")
	most := l.memory()
	t.Logf("the console used at most %d MB", most)
	require.Less(t, most, 200, "MB: the console keeps nothing of a log of 100 MB")

	// A file that is not a log.
	b.attach("input[type=file]", l.write("rules.txt", "<img src=x onerror=window.ran=1>\n"))
	b.click("Try")
	b.has("none of the 1 lines can be read")
	b.look("try-unreadable")
}

func byHand(t *testing.T, l *lab, b *chromium) {
	b.visit(l.url + "/client")
	b.has("Nobody is blocked or allowed by hand")
	b.fill("[name=client]", "203.0.113.9")
	b.click("Explain")
	b.has("Nothing: rules, the shedder and the behavior policy decide.")
	b.click("Block…")
	b.fill("dialog [name=reason]", "scans "+hostile)
	b.look("client-block")
	b.click("Block")
	b.has("203.0.113.9 is blocked on every edge")
	b.click("Close")
	for edge := range l.edges {
		require.Equal(t, http.StatusForbidden, l.ask(edge, "203.0.113.9", hostilePath))
		require.Equal(t, 200, l.ask(edge, "203.0.113.8", "/"))
	}
	require.Contains(t, l.run("clients", "show", "203.0.113.9"), `"by": "ana@desk"`)
	require.Contains(t, l.run("audit", "verify"), `"clients"`)
	b.click("Explain")
	b.has("refuse, 403")
	b.has("scans " + hostile)
	b.sees("[...document.querySelectorAll('#lately ~ *, section[aria-labelledby=lately] td')].some((c) => c.textContent === 'blocked')")
	b.look("client-blocked")
	b.click("Remove 203.0.113.9")
	b.click("Remove")
	b.has("203.0.113.9 is no longer listed")
	b.click("Close")
	require.Equal(t, 200, l.ask(0, "203.0.113.9", "/"))
	b.click("Allow…")
	b.fill("dialog [name=network]", "203.0.113.0/24")
	b.fill("dialog [name=reason]", "our offices")
	b.click("Allow")
	b.has("on every edge")
	b.click("Close")
	b.has("our offices")
	require.Contains(t, l.run("clients", "show", "203.0.113.9"), `"allow"`)
}

// lost stops one region's Consul while pages are open, and restarts it.
func lost(t *testing.T, l *lab, b *chromium) {
	b.visit(l.url + "/fleet")
	b.has("2 / 2")
	b.sees("document.querySelector('.fresh.good')")
	l.consuls[1].Kill()
	b.has("Its Consul does not answer; its edges keep deciding by the rules they have")
	b.has("1 unknown")
	b.sees("document.querySelector('.fresh.good')") // the other regions are live
	b.look("lost-fleet")
	b.click("Rules")
	b.has("us-east: its rules are unknown")
	b.look("lost-rules")
	b.click("Client")
	b.fill("[name=client]", "203.0.113.9")
	b.click("Explain")
	b.has("us-east could not be asked")
	b.look("lost-client")
	// An action takes effect where it can, and the page names the rest.
	b.click("Block…")
	b.fill("dialog [name=reason]", "scans")
	b.click("Block")
	b.has("Partly done")
	b.look("lost-block")
	b.click("Close")
	require.Equal(t, http.StatusForbidden, l.ask(0, "203.0.113.9", "/"))
	require.Equal(t, 200, l.ask(1, "203.0.113.9", "/"), "its edges keep what they have")
	b.click("Shedder")
	b.has("us-east")
	b.look("lost-shedder")
	b.click("Fleet")
	l.consuls[1].Start()
	b.sees("!document.body.innerText.includes('1 unknown') && document.body.innerText.includes('2 / 2')")
}
