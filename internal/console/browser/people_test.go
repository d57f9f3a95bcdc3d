package browser

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
)

// publicHost is the name of a team's console.
const publicHost = "weir.example.com"

// enter logs a person in at the issuer.
func (c *chromium) enter(name string) {
	c.t.Helper()
	c.fill("#username", name)
	c.fill("#password", "password")
	c.click("Login")
}

// people tests a console with a login. A page disables the actions that its person's role does
// not permit, and says why. The end of a session loses no text.
func people(t *testing.T, l *lab) {
	port := testenv.FreePorts(t, 1)[0]
	at := fmt.Sprintf("https://%s:%d", publicHost, port)
	issuer, files := testenv.Issuer(t, at+"/auth/callback"), testenv.Certificates(t)
	config := fmt.Sprintf(`{listen: "127.0.0.1:%d", public: %q, tls: {cert_file: %q, key_file: %q}, session: {key_files: [%q]}, tokens: {file: %q},
oidc: {issuer: %q, client_id: weir, client_secret_file: %q}, roles: [{who: {groups: ["*"]}, may: reader}, {who: {users: [carol@example.com]}, may: operator, regions: [eu-west], kinds: [shedder]}, {who: {groups: [sre]}, may: operator}, {who: {groups: [leads]}, may: admin}]}`,
		port, at, files.CertFile, files.KeyFile, l.write("console.key", strings.Repeat("k", 64)), filepath.Join(t.TempDir(), "tokens.json"), issuer, l.write("secret", "secret"))
	l.open("--config", l.write("console.yaml", config))
	require.Equal(t, at, l.url)
	b := launch(t)
	b.dress("light", 1280)

	b.visit(at + "/fleet")
	b.has("You are not logged in")
	require.Equal(t, "h2", b.eval("performance.getEntriesByType('navigation')[0].nextHopProtocol"))
	b.look("people-login")
	b.click("Log in")
	b.enter("carol")
	b.has("carol@example.com")
	b.has("You are an operator for shedder in eu-west. Drain, undrain: only for operators and above without these bounds.")
	b.sees("document.querySelector('button[aria-label=\"Drain ams1\"]').disabled")
	b.look("people-bounded")
	b.click("Shedder")
	for _, change := range [][3]string{{"Kill switch…", "Switch off", "The shedder is off"}, {"End temporary settings…", "End them", "They have ended"}} {
		b.click(change[0])
		if change[1] == "Switch off" {
			b.fill("dialog [name=message]", "INC-2")
		}
		b.click(change[1])
		b.has("this needs the role operator for shedder in all regions, and carol@example.com is operator for shedder in eu-west")
		b.click(change[1] + " in eu-west")
		b.has(change[2])
		b.click("Close")
	}
	b.click("Log out")
	b.has("You are not logged in")

	b.click("Log in")
	b.enter("bob")
	b.has("ams1-1")
	b.click("Drain ams1")
	b.fill("dialog [name=reason]", "new disks")
	b.click("Drain")
	b.has("ams1 is drained")
	b.click("Close")
	require.Contains(t, l.run("status"), `"who": "bob@example.com"`)
	b.click("Undrain ams1")
	b.click("Undrain")
	b.has("ams1 is back")
	b.click("Close")
	b.click("Rules")
	b.has("You are an operator. Apply, roll out: only for admins.")
	b.sees("document.querySelector('button.primary').disabled")
	b.click("Log out")
	b.has("You are not logged in")

	b.click("Log in")
	b.enter("ana")
	b.has("ana@example.com")
	b.click("Rules")
	b.sees("document.querySelector('#document')?.value.includes('per-client')")
	b.fill("#document", document(60, "enforce"))
	b.has("Good: 3 rules")
	// Her session ends while she writes.
	b.eval(`fetch('/api/v1/session').then((r) => r.json()).then((s) => fetch('/api/v1/logout', {method: 'POST', headers: {'Weir-Console-Token': s.token}})).then((r) => r.status)`)
	b.fill("#document", document(65, "enforce"))
	b.has("What you wrote here stays.")
	b.look("people-ended")
	other := tab(t, b.at)
	other.dress("light", 1280)
	other.visit(at + "/auth/login?to=/done")
	other.enter("ana")
	other.has("Close this tab")
	other.look("people-done")
	b.call("Page.bringToFront", nil, nil)
	b.sees("!document.body.innerText.includes('You are not logged in')")
	require.True(t, b.is("document.querySelector('#document').value.includes('limit: 65')"))
	b.fill("#document", document(66, "enforce"))
	b.has("Good: 3 rules")
	b.click("Apply…")
	b.fill("dialog [name=message]", "less, INC-3")
	b.click("Apply")
	b.has("Every edge runs it")
	require.Equal(t, "66 66", l.limits())
	require.Contains(t, l.run("rules", "history"), `"applied_by": "ana@example.com"`)
	require.False(t, b.is("document.cookie"), "no script sees a cookie")
	machine(t, l, b, port)
	b.mu.Lock()
	defer b.mu.Unlock()
	require.Equal(t, map[string]bool{at: true, issuer: true}, b.hosts)
}

// machine tests a token for a program: ana creates it, and histories name both.
func machine(t *testing.T, l *lab, b *chromium, port int) {
	b.click("Close")
	b.click("Tokens")
	b.has("No program has a token")
	b.fill("[name=name]", "ci")
	b.eval(`(() => { const may = document.querySelector('[name=may]'); may.value = 'operator'; may.dispatchEvent(new Event('change', {bubbles: true})); })()`)
	b.fill("[name=regions]", "us-east")
	b.click("Create")
	b.has("Its text is shown only now")
	b.has("operator in us-east")
	b.look("people-token")
	token := b.eval("document.querySelector('pre.token').textContent").(string)
	program := &http.Client{Timeout: testenv.Patience, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, fmt.Sprintf("127.0.0.1:%d", port))
		}}}
	send := func(body string) (int, string) {
		r, err := http.NewRequestWithContext(t.Context(), "POST", l.url+"/api/v1/clients/block", strings.NewReader(body))
		require.NoError(t, err)
		r.Header.Set("Weir-Console-Token", token)
		r.Header.Set("Content-Type", "application/json")
		resp, err := program.Do(r)
		require.NoError(t, err)
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, errors.Join(err, resp.Body.Close()))
		return resp.StatusCode, string(text)
	}
	status, text := send(`{"network": "192.0.2.77", "reason": "scans", "region": ["us-east"]}`)
	require.Equal(t, 200, status, text)
	const who = `"token:ci (by ana@example.com)"`
	require.Contains(t, l.run("clients", "list"), `"by": `+who)
	require.Contains(t, l.run("audit", "list"), `"applied_by": `+who)
	status, text = send(`{"network": "192.0.2.78", "reason": "scans"}`)
	require.Equal(t, 403, status, text)
	b.click("Revoke ci")
	b.click("Revoke")
	b.has("ci is revoked")
	b.click("Close")
	status, text = send(`{"network": "192.0.2.79", "reason": "scans", "region": ["us-east"]}`)
	require.Equal(t, 401, status, text)
	l.run("clients", "unblock", "192.0.2.77")
}
