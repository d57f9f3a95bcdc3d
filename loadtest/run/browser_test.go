package main

import (
	"context"
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// browse returns the document at url after Chromium has loaded it.
func browse(t *testing.T, url string, dark bool) string {
	t.Helper()
	program, err := exec.LookPath("chromium")
	require.NoError(t, err, "the test opens the report in Chromium; run make deps")
	home, err := os.MkdirTemp("", "weir-chromium-")
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	scheme := 1
	if dark {
		scheme = 0
	}
	cmd := exec.CommandContext(ctx, program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-breakpad", "--no-proxy-server",
		"--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", // it may reach nothing else
		"--user-data-dir="+filepath.Join(home, "profile"), fmt.Sprintf("--blink-settings=preferredColorScheme=%d", scheme),
		"--virtual-time-budget=10000", "--dump-dom", url)
	cmd.Env = append(os.Environ(), "HOME="+home, "XDG_CONFIG_HOME="+home, "XDG_CACHE_HOME="+home, "DBUS_SESSION_BUS_ADDRESS=disabled:")
	// Files, because processes that it starts may keep pipes open after it ends.
	out, err := os.Create(filepath.Join(home, "out"))
	require.NoError(t, err)
	defer out.Close()
	log, err := os.Create(filepath.Join(home, "log"))
	require.NoError(t, err)
	defer log.Close()
	cmd.Stdout, cmd.Stderr = out, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	kill := func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.Cancel = kill
	ended := make(chan error)
	go func() {
		// Pdeathsig is sent when the thread that forked ends.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		ended <- cmd.Run()
	}()
	err = <-ended
	if cmd.Process != nil {
		_ = kill() // helpers that outlive it write to its profile
	}
	text, _ := os.ReadFile(out.Name())
	said, _ := os.ReadFile(log.Name())
	require.Eventually(t, func() bool { return os.RemoveAll(home) == nil }, time.Minute, 10*time.Millisecond)
	require.NoError(t, err, "%s", tail(string(said), 2000))
	return string(text)
}

// seen is what testdata/probe.html found in a page at one width.
type seen struct {
	Width    int      `json:"width"`
	Dark     bool     `json:"dark"`
	Sections int      `json:"sections"`
	Charts   int      `json:"charts"`
	Lines    int      `json:"lines"`
	Details  int      `json:"details"`
	Cells    int      `json:"cells"`
	Verdict  float64  `json:"verdict"`  // its lower edge, in pixels from the top
	Contrast float64  `json:"contrast"` // the lowest of any text
	Paper    float64  `json:"paper"`    // its brightness, 0 to 1
	Loaded   []string `json:"loaded"`
	Problems []string `json:"problems"`
}

// probe checks a page at three widths. asked are the paths requested from the server.
func probe(t *testing.T, page []byte, dark bool) (views []seen, asked []string) {
	t.Helper()
	script, err := os.ReadFile("testdata/probe.html")
	require.NoError(t, err)
	var mu sync.Mutex
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		if r.URL.Path != "/favicon.ico" && !slices.Contains(asked, r.URL.Path) {
			asked = append(asked, r.URL.Path)
		}
		mu.Unlock()
		text, known := map[string][]byte{"/probe": script, "/report.html": page}[r.URL.Path]
		if !known {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write(text)
	}))
	defer server.Close()
	document := browse(t, server.URL+"/probe?page=report.html&widths=1280,390,320", dark)
	_, rest, _ := strings.Cut(document, `<pre id="found">`)
	text, _, found := strings.Cut(rest, "</pre>")
	require.True(t, found, "%s", document)
	var all struct {
		Views []seen `json:"views"`
		Error string `json:"error"`
	}
	require.NoError(t, json.Unmarshal([]byte(html.UnescapeString(text)), &all), "%s", text)
	require.Empty(t, all.Error)
	require.Len(t, all.Views, 3)
	mu.Lock()
	defer mu.Unlock()
	return all.Views, asked
}

// The page is readable on a desktop and on a phone, in light and dark mode, and loads
// nothing.
func TestPageInABrowser(t *testing.T) {
	for name, r := range map[string]*report{"realistic": realistic(), "awkward": awkward()} {
		folder := t.TempDir()
		require.NoError(t, r.write(folder))
		page, err := os.ReadFile(filepath.Join(folder, "report.html"))
		require.NoError(t, err)
		for _, dark := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, dark %v", name, dark), func(t *testing.T) {
				views, asked := probe(t, page, dark)
				require.Equal(t, []string{"/probe", "/report.html"}, asked)
				for i, v := range views {
					require.Empty(t, v.Problems, "%d px wide", v.Width)
					require.Equal(t, []int{1280, 390, 320}[i], v.Width)
					require.Equal(t, dark, v.Dark)
					require.Equal(t, dark, v.Paper < .1)
					require.Empty(t, v.Loaded)
					require.Equal(t, len(r.Scenarios), v.Sections)
					require.Equal(t, len(r.Scenarios), v.Details)
					require.Equal(t, len(r.Scenarios)*len(r.Lab.Regions), v.Charts)
					require.NotZero(t, v.Lines)
					require.Greater(t, v.Cells, 10*v.Charts)
					require.GreaterOrEqual(t, v.Contrast, 4.5)
					require.NotZero(t, v.Verdict)
					if name == "realistic" {
						require.Less(t, v.Verdict, 800., "the verdict is on the first screen")
					}
				}
			})
		}
	}
}

// The test above is only worth what the probe can detect.
func TestProbeSeesFaults(t *testing.T) {
	views, asked := probe(t, []byte(`<!doctype html><meta name="viewport" content="width=device-width"><body style="color:#999">
<table style="width:1400px"><tr><td>wide</td></tr></table>
<table style="table-layout:fixed;width:60px"><tr><td style="overflow:hidden;white-space:nowrap">this is cut off</td></tr></table>
<div class="scroll" style="overflow:auto"><table style="margin-left:-30px"><tr><td>far</td></tr></table></div>
<div class="scroll"><table><tr><td>a</td><td style="position:sticky;left:0">b</td></tr></table></div>
<details><summary>more</summary></details>
<svg width="0" height="0"></svg>
<svg viewBox="0 0 100 100" width="100"><text x="5" y="50">one</text><text x="9" y="52">two</text><text x="5" y="90" font-size="4">tiny</text><text x="90" y="20">outside</text>
<polyline points="1,1 150,9" stroke="#eee"/></svg>
<img src="http://elsewhere.test/picture.png"><img src="own.png">`), false)
	require.Equal(t, []string{"/probe", "/report.html", "/own.png"}, asked)
	for _, v := range views {
		text := strings.Join(v.Problems, "\n")
		for _, want := range []string{
			"page: 1", `"this is cut off" does not hold its text`, `td "far" is out of reach`, `td "b" stays in the way`,
			`details: details "more" does not open`, "svg: 0 by 0 px",
			`text "one" overlaps text "two"`, `text: text "outside" outside of its svg`, `text: text "tiny" is `, "polyline: outside", "of a line", "contrast: 2.8 of td",
		} {
			require.Contains(t, text, want)
		}
		require.Len(t, v.Loaded, 2)
		require.Contains(t, v.Loaded, "http://elsewhere.test/picture.png")
	}
}
