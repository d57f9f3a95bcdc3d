package browser

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
)

// strict refuses all but the first request of a client.
var strict = `rules: [{id: per-client, key: [client_ip], algorithm: fixed_window, limit: 1, window: ` + testenv.LongWindow() + `}]`

// incident is a fleet of three regions in trouble. Its console is held by half-sent requests and by a
// reader who never stops.
type incident struct {
	*lab
	addr string // the console's
	tls  *tls.Config
	half *testenv.HalfSent
}

// The exercise of an incident: a bad rule is everywhere, a region's Consul hangs, and 300 half-sent
// requests and a looping reader keep the console busy. An operator takes the rule back in the regions
// that answer, and switches the shedder off there, first on the page and then in a shell. The audit
// names who did what, in order, and the region that was not reached. The times are in OPERATIONS.
func TestIncident(t *testing.T) {
	l := &incident{lab: startRegions(t, 3)}
	l.close()
	port := testenv.FreePorts(t, 1)[0]
	files := testenv.Certificates(t)
	l.addr, l.tls = fmt.Sprintf("127.0.0.1:%d", port), files.ClientConfig(t)
	l.open("--config", l.write("console.yaml", fmt.Sprintf(`{listen: %q, public: "https://%s:%d", tls: {cert_file: %q, key_file: %q}, proxy: {from: [127.0.0.1/32], header: X-Forwarded-User}, rate: {session: 1000000, address: 1000000},
roles: [{who: {groups: ["*"]}, may: reader}, {who: {users: [ana@example.com]}, may: operator}]}`, l.addr, publicHost, port, files.CertFile, files.KeyFile)))

	l.breaks(1)
	b := launch(t)
	b.dress("light", 1280)
	b.call("Network.setExtraHTTPHeaders", map[string]any{"headers": map[string]string{"X-Forwarded-User": "ana@example.com"}}, nil)
	b.visit(l.url + "/fleet")
	b.has("ams1-1")
	l.half.Drip()
	began := time.Now()
	b.click("Audit")
	b.click("Undo the last change of rules")
	b.click("Undo")
	b.has("They have what they had")
	l.serves(began, "page")
	b.click("Close")
	b.has("Incomplete: no answer from ap-south")
	l.half.Drip()
	b.click("Shedder")
	b.has("ap-south unknown")
	b.click("Kill switch…")
	b.has("This continues with eu-west, us-east")
	b.fill("dialog [name=message]", "INC-1")
	b.click("Switch off in eu-west, us-east")
	b.has("Partly done")
	t.Logf("page: the shedder was off %.1f s after the first click", time.Since(began).Seconds())
	l.recovers()
	l.tells("ana@example.com", "[]") // the page named the regions
	b.visit(l.url + "/audit")
	b.has("not reached: ap-south")

	l.run("undo", "shedder", "--yes")
	l.run("rules", "apply", l.write("rules.yaml", sensible), "--yes", "-m", "as before")
	l.breaks(2)
	began = time.Now()
	status, said := l.shell("undo", "--partial", "--yes")
	require.Equal(t, 3, status, said)
	l.serves(began, "shell")
	status, said = l.shell("shedder", "set", "enabled=false", "--for", "1h", "--partial", "--yes", "-m", "INC-1")
	require.Equal(t, 3, status, said)
	t.Logf("shell: the shedder was off %.1f s after the first command began", time.Since(began).Seconds())
	l.recovers()
	l.tells("bob@desk", "[ap-south]")
}

// breaks applies a bad rule, and then everything else goes wrong.
func (l *incident) breaks(n int) {
	l.run("rules", "apply", l.write("rules.yaml", strict+fmt.Sprintf(" # %d\n", n)), "--yes", "-m", "a bad rule", "--by", "eve")
	for i := range l.edges {
		require.Eventually(l.t, func() bool { return l.answers(i) == http.StatusTooManyRequests }, testenv.Patience, 50*time.Millisecond)
	}
	last := l.consuls[2]
	last.Suspend()
	l.t.Cleanup(last.Resume)
	if l.half != nil {
		l.half.Drip()
		return
	}
	l.half = testenv.SendHalf(l.t, l.addr, l.tls, "POST /api/v1/shedder/off HTTP/1.1\r\nHost: "+strings.TrimPrefix(l.url, "https://")+"\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n{", 300)
	l.loops()
}

// loops reads the changes without end.
func (l *incident) loops() {
	reader := &http.Client{Transport: &http.Transport{TLSClientConfig: l.tls, ForceAttemptHTTP2: true}}
	ctx, cancel := context.WithCancel(context.Background())
	var loops sync.WaitGroup
	l.t.Cleanup(func() { cancel(); loops.Wait() })
	full := make(chan struct{}, 1)
	for range 24 {
		loops.Go(func() {
			for ctx.Err() == nil {
				r, _ := http.NewRequestWithContext(ctx, "GET", "https://"+l.addr+"/api/v1/audit/changes", nil)
				r.Host = strings.TrimPrefix(l.url, "https://")
				r.Header.Set("X-Forwarded-User", "eve@example.com")
				resp, err := reader.Do(r)
				if err != nil {
					continue
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
				if resp.StatusCode >= 400 {
					select {
					case full <- struct{}{}:
					default:
					}
				}
			}
		})
	}
	<-full
}

// answers requests something of an edge as a client would.
func (l *incident) answers(edge int) int {
	resp, err := http.Get("http://" + l.edges[edge].Public + "/")
	require.NoError(l.t, err)
	require.NoError(l.t, resp.Body.Close())
	return resp.StatusCode
}

// serves waits until the regions that can be reached serve clients again.
func (l *incident) serves(began time.Time, how string) {
	for i := range 2 {
		require.Eventually(l.t, func() bool { return l.answers(i) == http.StatusOK }, testenv.Patience, 50*time.Millisecond)
	}
	l.t.Logf("%s: both regions that answer served all clients again %.1f s after the first click or command", how, time.Since(began).Seconds())
	require.Equal(l.t, http.StatusTooManyRequests, l.answers(2), "its edge follows the region that hangs")
}

func (l *incident) recovers() {
	l.consuls[2].Resume()
	l.consuls[2].WaitHealthy()
}

// shell runs regionctl as an operator, and returns its status and all that it printed.
func (l *incident) shell(args ...string) (int, string) {
	cmd := exec.Command(l.regionctl, append(args, "--fleet", l.fleet)...)
	cmd.Env = append(os.Environ(), "WEIR_USER=bob@desk")
	said, _ := cmd.CombinedOutput()
	return cmd.ProcessState.ExitCode(), string(said)
}

// tells checks the latest entries of the audit: the bad rule, its end, and the kill switch.
func (l *incident) tells(who, unreached string) {
	var list []struct {
		Kind      string
		By        string `json:"applied_by"`
		Message   string
		Regions   []string
		Unreached []string
	}
	require.NoError(l.t, json.Unmarshal([]byte(l.run("audit", "list")), &list))
	var got []string
	for _, c := range list[:3] {
		got = append(got, fmt.Sprintf("%s by %s in %v, not in %v", c.Kind, c.By, c.Regions, c.Unreached))
	}
	require.Equal(l.t, []string{
		"shedder by " + who + " in [eu-west us-east], not in [ap-south]",
		"rules by " + who + " in [eu-west us-east], not in " + unreached,
		"rules by eve in [eu-west us-east ap-south], not in []",
	}, got)
	require.Contains(l.t, list[1].Message, "rollback")
	l.run("audit", "verify")
}
