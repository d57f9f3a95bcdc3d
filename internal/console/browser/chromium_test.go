package browser

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
)

// chromium is a browser with one page, driven by the DevTools protocol.
type chromium struct {
	t    *testing.T
	at   string // the browser's DevTools address
	conn *websocket.Conn

	mu      sync.Mutex
	last    int
	waiting map[int]chan answer
	faults  []string // script errors, refused resources, dialogs
	hosts   map[string]bool
	sent    []string // addresses and bodies of requests
	offline bool     // requests may fail
}

type answer struct {
	Result json.RawMessage
	Error  *struct{ Message string }
}

func launch(t *testing.T) *chromium {
	t.Helper()
	program, err := exec.LookPath("chromium")
	require.NoError(t, err, "the test opens the console in Chromium; run make deps")
	home, err := os.MkdirTemp("", "weir-chromium-")
	require.NoError(t, err)
	cmd := exec.Command(program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-breakpad", "--no-proxy-server", "--force-prefers-reduced-motion",
		// The browser can reach no other host. Certificates are not checked: they are for other
		// names.
		"--host-resolver-rules=MAP "+publicHost+" 127.0.0.1, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "--ignore-certificate-errors",
		"--user-data-dir="+filepath.Join(home, "profile"), "--remote-debugging-port=0", "about:blank")
	cmd.Env = append(os.Environ(), "HOME="+home, "XDG_CONFIG_HOME="+home, "XDG_CACHE_HOME="+home, "DBUS_SESSION_BUS_ADDRESS=disabled:")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	said, err := cmd.StderrPipe()
	require.NoError(t, err)
	started, ended := make(chan error), make(chan struct{})
	go func() {
		// Pdeathsig is sent when the forking thread ends.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		started <- cmd.Start()
		<-ended
	}()
	require.NoError(t, <-started)
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
		close(ended)
		require.Eventually(t, func() bool { return os.RemoveAll(home) == nil }, testenv.Patience, 20*time.Millisecond)
	})
	lines := bufio.NewScanner(said)
	at := ""
	for at == "" && lines.Scan() {
		_, at, _ = strings.Cut(lines.Text(), "DevTools listening on ws://")
	}
	at, _, _ = strings.Cut(at, "/")
	require.NotEmpty(t, at, "Chromium does not start")
	go func() {
		for lines.Scan() { // an unread pipe would fill and block it
		}
	}()
	return tab(t, at)
}

// tab opens another tab in a browser.
func tab(t *testing.T, at string) *chromium {
	t.Helper()
	r, err := http.NewRequest(http.MethodPut, "http://"+at+"/json/new?about:blank", nil)
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	var page struct{ WebSocketDebuggerURL string }
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&page))
	require.NoError(t, resp.Body.Close())
	c := &chromium{t: t, at: at, waiting: map[int]chan answer{}, hosts: map[string]bool{}}
	c.conn, _, err = websocket.DefaultDialer.Dial(page.WebSocketDebuggerURL, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.conn.Close() })
	go c.read()
	for _, domain := range []string{"Page", "Runtime", "Network", "Log"} {
		c.call(domain+".enable", nil, nil)
	}
	return c
}

// read delivers answers and records events of the page.
func (c *chromium) read() {
	for {
		var m struct {
			ID     int
			Method string
			Params struct {
				ExceptionDetails struct {
					Text      string
					Exception struct{ Description string }
				}
				Entry   struct{ Level, Text, URL string }
				Message string
				Request struct{ URL, PostData string }
			}
			answer
		}
		if c.conn.ReadJSON(&m) != nil {
			return
		}
		c.mu.Lock()
		p := m.Params
		switch {
		case m.ID != 0:
			c.waiting[m.ID] <- m.answer
			delete(c.waiting, m.ID)
		case m.Method == "Runtime.exceptionThrown":
			c.faults = append(c.faults, p.ExceptionDetails.Text+" "+p.ExceptionDetails.Exception.Description)
		case m.Method == "Log.entryAdded" && p.Entry.Level == "error" && !c.offline:
			c.faults = append(c.faults, p.Entry.Text+" "+p.Entry.URL)
		case m.Method == "Page.javascriptDialogOpening":
			c.faults = append(c.faults, "a dialog: "+p.Message)
		case m.Method == "Network.requestWillBeSent" && strings.HasPrefix(p.Request.URL, "http"):
			c.sent = append(c.sent, p.Request.URL+" "+p.Request.PostData)
			c.hosts[strings.Join(strings.SplitN(p.Request.URL, "/", 4)[:3], "/")] = true
		}
		c.mu.Unlock()
	}
}

// call sends a DevTools command, which must succeed.
func (c *chromium) call(method string, params map[string]any, result any) {
	c.t.Helper()
	require.NoError(c.t, c.try(method, params, result))
}

func (c *chromium) try(method string, params map[string]any, result any) error {
	if params == nil {
		params = map[string]any{}
	}
	come := make(chan answer, 1)
	c.mu.Lock()
	c.last++
	id := c.last
	c.waiting[id] = come
	err := c.conn.WriteJSON(map[string]any{"id": id, "method": method, "params": params})
	c.mu.Unlock()
	if err != nil {
		return err
	}
	select {
	case a := <-come:
		if a.Error != nil {
			return fmt.Errorf("%s: %s", method, a.Error.Message)
		}
		if result == nil {
			return nil
		}
		return json.Unmarshal(a.Result, result)
	case <-time.After(testenv.Patience):
		return fmt.Errorf("%s: no answer", method)
	}
}

// run evaluates a script and awaits a promise.
func (c *chromium) run(script string) (any, error) {
	var r struct {
		Result           struct{ Value any }
		ExceptionDetails *struct{ Exception struct{ Description string } }
	}
	if err := c.try("Runtime.evaluate", map[string]any{"expression": script, "awaitPromise": true, "returnByValue": true, "userGesture": true}, &r); err != nil {
		return nil, err
	}
	if r.ExceptionDetails != nil {
		return nil, fmt.Errorf("%.300s: %s", script, r.ExceptionDetails.Exception.Description)
	}
	return r.Result.Value, nil
}

func (c *chromium) eval(script string) any {
	c.t.Helper()
	v, err := c.run(script)
	require.NoError(c.t, err)
	return v
}

func (c *chromium) is(script string) bool { c.t.Helper(); return c.eval("Boolean("+script+")") == true }

// sees waits until a script returns true.
func (c *chromium) sees(script string) {
	c.t.Helper()
	require.Eventually(c.t, func() bool {
		v, err := c.run("Boolean(" + script + ")") // a page that is loading has no body
		return err == nil && v == true
	}, testenv.Patience, 50*time.Millisecond, "%s in:\n%s", script, lately{c})
}

// lately prints the page's text and faults as they are when it is formatted.
type lately struct{ c *chromium }

func (l lately) String() string {
	l.c.mu.Lock()
	faults := fmt.Sprint(l.c.faults)
	l.c.mu.Unlock()
	text, err := l.c.run("document.body.innerText")
	return fmt.Sprint(text, err, faults)
}

func literal(text string) string {
	quoted, _ := json.Marshal(text)
	return string(quoted)
}

// has waits for text on the page.
func (c *chromium) has(text string) {
	c.t.Helper()
	c.sees("document.body.innerText.includes(" + literal(text) + ")")
}

// click clicks the button with this text or label, in the open dialog if there is one.
func (c *chromium) click(name string) {
	c.t.Helper()
	find := "[...(document.querySelector('dialog[open]') ?? document).querySelectorAll('button, a')].find((e) => (e.getAttribute('aria-label') ?? e.textContent.trim()) === " + literal(name) + " && !e.disabled)"
	c.sees(find)
	c.eval("void " + find + ".click()")
}

// fill sets a field's value as typing does.
func (c *chromium) fill(selector, text string) {
	c.t.Helper()
	c.sees("document.querySelector(" + literal(selector) + ")")
	c.eval(fmt.Sprintf("(() => { const e = document.querySelector(%s); e.value = %s; e.dispatchEvent(new Event('input', {bubbles: true})); })()", literal(selector), literal(text)))
}

func (c *chromium) press(key string) {
	c.t.Helper()
	for _, kind := range []string{"keyDown", "keyUp"} {
		c.call("Input.dispatchKeyEvent", map[string]any{"type": kind, "key": key, "text": key}, nil)
	}
}

func (c *chromium) visit(url string) {
	c.t.Helper()
	c.call("Page.navigate", map[string]any{"url": url}, nil)
}

// dress sets the color scheme and the window's width.
func (c *chromium) dress(scheme string, width int) {
	c.t.Helper()
	c.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}}, nil)
	c.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false}, nil)
}

// picture saves a picture of the page to the folder WEIR_SCREENSHOTS, if that is set.
func (c *chromium) picture(name string) {
	c.t.Helper()
	folder := os.Getenv("WEIR_SCREENSHOTS")
	if folder == "" {
		return
	}
	var shot struct{ Data string }
	c.call("Page.captureScreenshot", map[string]any{"format": "png", "captureBeyondViewport": true}, &shot)
	picture, err := base64.StdEncoding.DecodeString(shot.Data)
	require.NoError(c.t, err)
	require.NoError(c.t, os.MkdirAll(folder, 0o755))
	require.NoError(c.t, os.WriteFile(filepath.Join(folder, name+".png"), picture, 0o644))
}

// look checks the page in both color schemes and at two widths: axe-core finds no fault, and
// nothing is wider than the window. Each width has one scheme; WEIR_SOAK and WEIR_SCREENSHOTS, which
// saves pictures, try all four.
func (c *chromium) look(name string) {
	c.t.Helper()
	all := os.Getenv("WEIR_SOAK") != "" || os.Getenv("WEIR_SCREENSHOTS") != ""
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int{1440, 390} {
			if !all && (scheme == "dark") != (width == 390) {
				continue
			}
			c.dress(scheme, width)
			what := fmt.Sprintf("%s-%s-%d", name, scheme, width)
			c.picture(what)
			require.False(c.t, c.is("document.documentElement.scrollWidth > innerWidth"), "%s is wider than the window", what)
			if !c.is("window.axe") {
				c.eval(axe + "; 0")
			}
			require.Equal(c.t, "[]", c.eval(`axe.run().then((r) => JSON.stringify(r.violations.map((v) => [v.id, ...v.nodes.map((n) => n.html + " " + n.failureSummary)]), null, 1))`), what)
		}
	}
	c.dress("light", 1440)
}
