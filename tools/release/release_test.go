package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
)

// TestRelease builds two releases of this tree, installs the first on two machines, and
// upgrades one after the other under load. It needs root, for dpkg and to become another
// user, and changes nothing outside its directories.
func TestRelease(t *testing.T) {
	require.Zero(t, os.Geteuid(), "run as root: dpkg and chroot need it")
	source := checkout(t)
	first := build(t, source, "v0.1.0")
	second := build(t, source, "v0.2.0")

	t.Run("reproducible", func(t *testing.T) {
		before := syscall.Umask(0o077)
		defer syscall.Umask(before)
		elsewhere := filepath.Join(t.TempDir(), "elsewhere")
		git(t, ".", "clone", "-q", source, elsewhere)
		again := build(t, elsewhere, "v0.2.0")
		require.Equal(t, read(t, second+"/SHA256SUMS"), read(t, again+"/SHA256SUMS"))
	})
	t.Run("complete", func(t *testing.T) {
		command(t, second, "sha256sum", "--quiet", "-c", "SHA256SUMS")
		name := "weir_0.2.0_linux_" + runtime.GOARCH
		var bill cdx.BOM
		require.NoError(t, cdx.NewBOMDecoder(bytes.NewReader(read(t, second+"/"+name+".cdx.json")), cdx.BOMFileFormatJSON).Decode(&bill))
		var modules []string
		for _, c := range *bill.Components {
			modules = append(modules, c.Name)
		}
		require.Subset(t, modules, []string{"std", "github.com/valyala/fasthttp", "github.com/hashicorp/consul/api", "github.com/spf13/cobra", "github.com/BurntSushi/toml"})

		command(t, second, "tar", "-xzf", name+".tar.gz")
		require.Contains(t, command(t, second+"/"+name, "./edge", "-version"), "v0.2.0")
		require.Contains(t, command(t, second+"/"+name, "./regionctl", "--version"), "v0.2.0")
		require.Contains(t, command(t, second+"/"+name, "./weir-import", "nginx", "--help"), "limit_req")
		command(t, second+"/"+name, "bash", "-n", "completions/regionctl.bash")
		for _, page := range []string{"edge", "regionctl", "regionctl-rules-apply", "regionctl-dns", "weir-import"} {
			require.Contains(t, string(read(t, second+"/"+name+"/man/"+page+".1")), ".SH NAME\n"+strings.ReplaceAll(page, "-", `\-`)+` \- `)
		}
		require.Contains(t, string(read(t, second+"/"+name+"/THIRD-PARTY-LICENSES")), "Mozilla Public License")
	})
	t.Run("upgraded under load", func(t *testing.T) {
		origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }))
		defer origin.Close()
		deb := "/weir_%s_linux_" + runtime.GOARCH + ".deb"
		machines := []*machine{newMachine(t, origin.URL), newMachine(t, origin.URL)}
		for _, m := range machines {
			m.dpkg("-i", first+fmt.Sprintf(deb, "0.1.0"))
			m.configure()
			m.start()
		}
		require.Contains(t, machines[0].serves(), "v0.1.0")

		var sent, failed atomic.Int64
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { // a balancer that asks the other when one refuses the connection
			defer close(done)
			for i := 0; ctx.Err() == nil; i++ {
				if sent.Add(1); !machines[i%2].ask() && !machines[(i+1)%2].ask() {
					failed.Add(1)
				}
			}
		}()
		for _, m := range machines {
			enough := sent.Load() + 100
			require.Eventually(t, func() bool { return sent.Load() >= enough }, time.Minute, time.Millisecond)
			m.dpkg("-i", second+fmt.Sprintf(deb, "0.2.0"))
			m.stop()
			m.start()
		}
		stop()
		<-done
		require.Zero(t, failed.Load(), "of %d requests", sent.Load())
		t.Logf("%d requests while two machines were upgraded one after the other, none failed", sent.Load())

		m := machines[0]
		require.Contains(t, m.serves(), "v0.2.0")
		require.Contains(t, string(read(t, m.root+"/etc/weir/edge.yaml")), origin.URL, "what the operator wrote stays")
		m.stop()
		m.dpkg("-r", "weir")
		require.NoFileExists(t, m.root+"/usr/bin/edge")
		require.FileExists(t, m.root+"/etc/weir/edge.yaml")
		m.dpkg("-P", "weir")
		require.NoDirExists(t, m.root+"/etc/weir")
		require.NoDirExists(t, m.root+"/var/lib/weir")
	})
}

// checkout is this tree as it is, committed as v0.1.0 and v0.2.0.
func checkout(t *testing.T) string {
	top := strings.TrimSpace(command(t, ".", "git", "rev-parse", "--show-toplevel"))
	source := filepath.Join(t.TempDir(), "weir")
	require.NoError(t, os.Mkdir(source, 0o755))
	command(t, top, "sh", "-c", `git ls-files -z --cached --others --exclude-standard | xargs -0 sh -c 'for f; do [ ! -e "$f" ] || printf "%s\0" "$f"; done' sh | tar --null -T - -cf - | tar -C "$0" -xf -`, source)
	git(t, source, "init", "-q")
	for _, version := range []string{"v0.1.0", "v0.2.0"} {
		git(t, source, "add", "-A")
		git(t, source, "-c", "user.name=weir", "-c", "user.email=weir@localhost", "commit", "-q", "--allow-empty", "-m", version)
		git(t, source, "tag", version)
	}
	return source
}

// build builds the release of a tag for this machine's architecture.
func build(t *testing.T, source, version string) string {
	git(t, source, "checkout", "-q", version)
	r := &release{root: source, out: filepath.Join(t.TempDir(), "dist"), platforms: []string{"linux/" + runtime.GOARCH}}
	require.NoError(t, r.build(t.Context()))
	return r.out
}

// machine is a directory that has a package manager's database, and processes that see
// nothing else.
type machine struct {
	t             *testing.T
	root, origin  string
	public, admin string
	edge          *exec.Cmd
}

func newMachine(t *testing.T, origin string) *machine {
	m := &machine{t: t, root: t.TempDir(), origin: origin, public: freeAddr(t), admin: freeAddr(t)}
	require.NoError(t, os.Chmod(m.root, 0o755))
	for _, dir := range []string{"updates", "info"} {
		require.NoError(t, os.MkdirAll(m.root+"/var/lib/dpkg/"+dir, 0o755))
	}
	require.NoError(t, os.WriteFile(m.root+"/var/lib/dpkg/status", nil, 0o644))
	t.Cleanup(func() {
		if m.edge != nil {
			_ = m.edge.Process.Kill()
			_ = m.edge.Wait()
		}
	})
	return m
}

// dpkg runs dpkg on the machine; its scripts run outside, told of the root.
func (m *machine) dpkg(args ...string) {
	command(m.t, ".", "dpkg", append([]string{"--root=" + m.root, "--force-script-chrootless"}, args...)...)
}

func (m *machine) configure() {
	data := string(read(m.t, m.root+"/etc/weir/edge.yaml"))
	data = strings.NewReplacer("127.0.0.1:8080", m.public, "127.0.0.1:8081", m.admin, "http://127.0.0.1:9000", m.origin).Replace(data)
	require.NoError(m.t, os.WriteFile(m.root+"/etc/weir/edge.yaml", []byte(data+"shutdown: {delay: 100ms}\n"), 0o644))
}

// start does what systemd does with the unit: its directories, its user, its commands.
func (m *machine) start() {
	unit := map[string]string{}
	for line := range strings.Lines(string(read(m.t, m.root+"/lib/systemd/system/weir-edge.service"))) {
		if name, value, found := strings.Cut(strings.TrimSpace(line), "="); found {
			unit[name] = value
		}
	}
	uid, gid := m.user(unit["User"])
	state := m.root + "/var/lib/" + unit["StateDirectory"]
	require.NoError(m.t, os.MkdirAll(state, 0o750))
	require.NoError(m.t, os.Chown(state, uid, gid))
	run := func(line string) *exec.Cmd {
		words := strings.Fields(line)
		c := &exec.Cmd{Path: words[0], Args: words, Dir: unit["WorkingDirectory"], Stderr: m.t.Output()}
		c.SysProcAttr = &syscall.SysProcAttr{Chroot: m.root, Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
		return c
	}
	require.NoError(m.t, run(unit["ExecStartPre"]).Run())
	m.edge = run(unit["ExecStart"])
	require.NoError(m.t, m.edge.Start())
	require.Eventually(m.t, m.ask, time.Minute, 10*time.Millisecond)
}

// user looks a user up as the machine knows it.
func (m *machine) user(name string) (uid, gid int) {
	for line := range strings.Lines(string(read(m.t, m.root+"/etc/passwd"))) {
		if fields := strings.Split(line, ":"); fields[0] == name {
			uid, _ = strconv.Atoi(fields[2])
			gid, _ = strconv.Atoi(fields[3])
		}
	}
	require.NotZero(m.t, uid, "the package makes the user %s", name)
	return uid, gid
}

func (m *machine) stop() {
	require.NoError(m.t, m.edge.Process.Signal(syscall.SIGTERM))
	require.NoError(m.t, m.edge.Wait())
	m.edge = nil
}

// ask reports whether the machine forwards a request.
func (m *machine) ask() bool {
	response, err := http.Get("http://" + m.public)
	if err != nil {
		return false
	}
	defer response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// serves returns the version that the running program reports.
func (m *machine) serves() string {
	response, err := http.Get("http://" + m.admin + "/metrics")
	require.NoError(m.t, err)
	defer response.Body.Close()
	var text bytes.Buffer
	_, err = text.ReadFrom(response.Body)
	require.NoError(m.t, err)
	return text.String()
}

func freeAddr(t *testing.T) string {
	return fmt.Sprintf("127.0.0.1:%d", testenv.FreePorts(t, 1)[0])
}

func read(t *testing.T, path string) []byte {
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	return data
}

func git(t *testing.T, dir string, args ...string) { command(t, dir, "git", args...) }

func command(t *testing.T, dir, name string, args ...string) string {
	c := exec.Command(name, args...)
	c.Dir = dir
	out, err := c.CombinedOutput()
	require.NoError(t, err, "%s: %s", strings.Join(c.Args, " "), out)
	return string(out)
}
