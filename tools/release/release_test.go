package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/mail"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
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

// TestRelease releases this tree twice, from a clone that has no tag, as README and deploy/README.md say, and installs it as
// they say. Then it upgrades one of two machines after the other under load. It needs root, for dpkg and to become other users,
// and changes nothing outside its directories.
//
// Both builds share a cache: what a compiler writes to it depends only on what it reads. So this shows that nothing of a
// folder, a user or a time reaches the files, and costs a second linking instead of minutes for each platform.
func TestRelease(t *testing.T) {
	require.Zero(t, os.Geteuid(), "run as root: dpkg and chroot need it")
	source := checkout(t)
	key := filepath.Join(t.TempDir(), "key")
	command(t, ".", "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", key)
	first := filepath.Join(t.TempDir(), "dist")
	t.Setenv("MAKEFLAGS", "") // of a make that runs this test
	command(t, source, "make", "--no-print-directory", "release", "VERSION=v0.1.0", "KEY="+key, "RELEASE=-out "+first)
	sums := sumsOf(t, first)
	amd64, arm64 := "weir_0.1.0_linux_amd64", "weir_0.1.0_linux_arm64"
	host := "weir_0.1.0_linux_" + runtime.GOARCH

	t.Run("reproducible", func(t *testing.T) {
		before := syscall.Umask(0o077)
		defer syscall.Umask(before)
		elsewhere := filepath.Join(t.TempDir(), "elsewhere")
		git(t, ".", "clone", "-q", source, elsewhere)
		git(t, elsewhere, "tag", "v9.9.9") // another tag of the commit changes nothing
		again := build(t, elsewhere, "v0.1.0", "linux/amd64", "linux/arm64", "darwin/arm64")
		require.Equal(t, sums, sumsOf(t, again))
	})
	t.Run("another version", func(t *testing.T) {
		r := &release{root: source, out: t.TempDir(), version: "v0.3.0"}
		require.ErrorContains(t, r.build(t.Context()), "CHANGELOG.md does not begin with v0.3.0: describe that version there")
	})
	t.Run("verified", func(t *testing.T) {
		signers := "weir namespaces=\"weir\" " + string(read(t, key+".pub"))
		require.NoError(t, os.WriteFile(first+"/allowed_signers", []byte(signers), 0o644))
		defer os.Remove(first + "/allowed_signers")
		verify, folder := documented(t, "../../README.md", "(cd dist && ssh-keygen -Y verify"), filepath.Dir(first)
		command(t, folder, "sh", "-c", verify)
		for name := range sums {
			data := read(t, first+"/"+name)
			data[len(data)/2]++
			require.NoError(t, os.WriteFile(first+"/"+name, data, 0o644))
			c := exec.Command("sh", "-c", verify)
			c.Dir = folder
			out, err := c.CombinedOutput()
			require.Error(t, err, "a changed %s passes: %s", name, out)
			data[len(data)/2]--
			require.NoError(t, os.WriteFile(first+"/"+name, data, 0o644))
		}
		command(t, folder, "sh", "-c", verify)
	})
	t.Run("complete", func(t *testing.T) {
		require.Contains(t, command(t, first, "tar", "-xzOf", "weir-0.1.0.tgz", "weir/Chart.yaml"), "\nversion: 0.1.0\nappVersion: v0.1.0\n")
		darwin := "regionctl_0.1.0_darwin_arm64"
		require.ElementsMatch(t, []string{"weir-0.1.0.tgz", amd64 + ".tar.gz", amd64 + ".deb", amd64 + ".cdx.json", arm64 + ".tar.gz", arm64 + ".deb", arm64 + ".cdx.json",
			darwin + ".tar.gz", darwin + ".cdx.json", "weir_0.1.0_oci.tar", provenanceFile}, slices.Collect(maps.Keys(sums)))

		var bill cdx.BOM
		require.NoError(t, cdx.NewBOMDecoder(bytes.NewReader(read(t, first+"/"+amd64+".cdx.json")), cdx.BOMFileFormatJSON).Decode(&bill))
		require.Equal(t, "v0.1.0", bill.Metadata.Component.Version)
		var modules []string
		for _, c := range *bill.Components {
			modules = append(modules, c.Name)
		}
		require.Subset(t, modules, []string{"std", "github.com/valyala/fasthttp", "github.com/hashicorp/consul/api", "github.com/spf13/cobra", "github.com/BurntSushi/toml",
			"golang.org/x/crypto/x509roots/fallback"})

		dir := t.TempDir()
		for _, name := range []string{amd64, arm64, darwin} {
			command(t, first, "tar", "-xzf", name+".tar.gz", "-C", dir)
			command(t, dir+"/"+name, "bash", "-n", "completions/regionctl.bash")
			require.Contains(t, string(read(t, dir+"/"+name+"/THIRD-PARTY-LICENSES")), "Mozilla Public License")
			require.Contains(t, string(read(t, dir+"/"+name+"/man/regionctl-rules-apply.1")), ".SH NAME\nregionctl\\-rules\\-apply \\- ")
			for _, p := range []string{"edge", "regionctl", "weir-import"} {
				if name == darwin && p != "regionctl" {
					require.NoFileExists(t, dir+"/"+name+"/"+p)
					require.NoFileExists(t, dir+"/"+name+"/man/"+p+".1")
					continue
				}
				info, err := buildinfo.ReadFile(dir + "/" + name + "/" + p)
				require.NoError(t, err)
				settings := map[string]string{}
				for _, s := range info.Settings {
					settings[s.Key] = s.Value
				}
				require.True(t, strings.HasSuffix(name, settings["GOOS"]+"_"+settings["GOARCH"]), "%s of %s", p, name)
				require.Equal(t, "0", settings["CGO_ENABLED"], p)
				require.Contains(t, string(read(t, dir+"/"+name+"/man/"+p+".1")), ".SH NAME\n"+strings.ReplaceAll(p, "-", `\-`)+` \- `)
			}
		}
		require.Contains(t, command(t, dir+"/"+host, "./edge", "-version"), "v0.1.0")
		require.Contains(t, command(t, dir+"/"+host, "./regionctl", "--version"), "v0.1.0")
		require.Contains(t, command(t, dir+"/"+host, "./weir-import", "nginx", "--help"), "limit_req")

		field := func(name string) string {
			return strings.TrimSpace(command(t, first, "dpkg-deb", "--field", host+".deb", name))
		}
		require.Equal(t, "0.1.0", field("Version"))
		require.Equal(t, runtime.GOARCH, field("Architecture"))
		maintainer, err := mail.ParseAddress(field("Maintainer"))
		require.NoError(t, err)
		require.True(t, strings.HasSuffix(maintainer.Address, "@users.noreply.github.com"), "%s: an address that exists", maintainer.Address)
		contents := command(t, first, "sh", "-c", "dpkg-deb --fsys-tarfile "+host+".deb | tar -xO ./usr/share/doc/weir/copyright")
		require.Contains(t, contents, "\nLicense: Apache-2.0\n")
	})
	t.Run("provenance", func(t *testing.T) {
		var statement struct {
			Subject []struct {
				Name   string
				Digest struct{ SHA256 string }
			}
			Predicate struct {
				BuildDefinition struct {
					ExternalParameters   struct{ Command, Version string }
					ResolvedDependencies []struct {
						URI    string
						Digest struct{ GitCommit string }
					}
				}
			}
		}
		require.NoError(t, json.Unmarshal(read(t, first+"/"+provenanceFile), &statement))
		built := map[string]string{provenanceFile: sums[provenanceFile]}
		for _, s := range statement.Subject {
			built[s.Name] = s.Digest.SHA256
		}
		require.Equal(t, sums, built)
		how := statement.Predicate.BuildDefinition
		require.Equal(t, "make release VERSION=v0.1.0", how.ExternalParameters.Command)
		require.Equal(t, strings.TrimSpace(command(t, source, "git", "rev-parse", "HEAD")), how.ResolvedDependencies[0].Digest.GitCommit)
		require.Equal(t, "pkg:golang/std@"+strings.TrimPrefix(runtime.Version(), "go"), how.ResolvedDependencies[1].URI)

		const page = "../../deploy/README.md"
		require.Contains(t, documented(t, page, "git checkout v0.1.0 && make"), "&& "+how.ExternalParameters.Command+" && ")
		require.Contains(t, command(t, first, "sh", "-c", documented(t, page, "jq .predicate")), how.ResolvedDependencies[0].Digest.GitCommit)
		checked := command(t, first, "sh", "-c", documented(t, page, "jq -r '.subject[]"))
		require.Equal(t, len(statement.Subject), strings.Count(checked, ": OK\n"), checked)
	})
	t.Run("image", func(t *testing.T) { testImage(t, first) })
	t.Run("AWS", func(t *testing.T) { testAWS(t, source, first) })
	t.Run("README", func(t *testing.T) { testInstall(t, source, first) })
	t.Run("upgraded under load", func(t *testing.T) {
		origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }))
		defer origin.Close()
		git(t, source, "checkout", "-q", "next")
		second := build(t, source, "v0.2.0", "linux/"+runtime.GOARCH)
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
			require.Eventually(t, func() bool { return sent.Load() >= enough }, testenv.Patience, time.Millisecond)
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

// checkout is this tree as it is, committed as v0.1.0, and as v0.2.0 on the branch next. It has no tags.
func checkout(t *testing.T) string {
	top := strings.TrimSpace(command(t, ".", "git", "rev-parse", "--show-toplevel"))
	source := filepath.Join(t.TempDir(), "weir")
	require.NoError(t, os.Mkdir(source, 0o755))
	command(t, top, "sh", "-c", `git ls-files -z --cached --others --exclude-standard | xargs -0 sh -c 'for f; do [ ! -e "$f" ] || printf "%s\0" "$f"; done' sh | tar --null -T - -cf - | tar -C "$0" -xf -`, source)
	git(t, source, "init", "-q", "-b", "main")
	commit := func(message string) {
		git(t, source, "add", "-A")
		git(t, source, "-c", "user.name=weir", "-c", "user.email=weir@localhost", "commit", "-q", "-m", message)
	}
	commit("v0.1.0")
	git(t, source, "checkout", "-q", "-b", "next")
	changelog := strings.Replace(string(read(t, source+"/CHANGELOG.md")), "\n## v0.1.0\n", "\n## v0.2.0\n", 1)
	require.NoError(t, os.WriteFile(source+"/CHANGELOG.md", []byte(changelog), 0o644))
	commit("v0.2.0")
	git(t, source, "checkout", "-q", "main")
	return source
}

// build builds the release of what is checked out, without make.
func build(t *testing.T, source, version string, platforms ...string) string {
	r := &release{root: source, out: filepath.Join(t.TempDir(), "dist"), version: version, platforms: platforms}
	require.NoError(t, r.build(t.Context()))
	return r.out
}

// sumsOf reads SHA256SUMS.
func sumsOf(t *testing.T, dist string) map[string]string {
	sums := map[string]string{}
	for line := range strings.Lines(string(read(t, dist+"/SHA256SUMS"))) {
		sum, name, found := strings.Cut(strings.TrimSpace(line), "  ")
		require.True(t, found, line)
		sums[name] = sum
	}
	return sums
}

// machine is a directory that has a package manager's database, and processes that see
// nothing else.
type machine struct {
	t             *testing.T
	root, origin  string
	public, admin string
	systemd       *testenv.Systemd
	edge          *exec.Cmd
}

func newMachine(t *testing.T, origin string) *machine {
	m := &machine{t: t, root: t.TempDir(), origin: origin, public: freeAddr(t), admin: freeAddr(t)}
	require.NoError(t, os.Chmod(m.root, 0o755))
	for _, dir := range []string{"updates", "info"} {
		require.NoError(t, os.MkdirAll(m.root+"/var/lib/dpkg/"+dir, 0o755))
	}
	require.NoError(t, os.WriteFile(m.root+"/var/lib/dpkg/status", nil, 0o644))
	require.NoError(t, os.Mkdir(m.root+"/run", 0o755))
	m.systemd = testenv.StartSystemd(t, m.root+"/run")
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

// start does what systemd does with the unit: its directories, its user, its commands. A service of Type=notify is ready when it
// says so.
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
		c := &exec.Cmd{Path: words[0], Args: words, Dir: unit["WorkingDirectory"], Env: []string{"NOTIFY_SOCKET=/run/notify"}, Stderr: m.t.Output()}
		c.SysProcAttr = &syscall.SysProcAttr{Chroot: m.root, Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
		return c
	}
	require.NoError(m.t, run(unit["ExecStartPre"]).Run())
	m.edge = run(unit["ExecStart"])
	require.NoError(m.t, m.edge.Start())
	require.Equal(m.t, "notify", unit["Type"])
	require.Equal(m.t, "READY=1", m.systemd.Next())
	require.True(m.t, m.ask(), "it is ready")
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
	require.Equal(m.t, "STOPPING=1", m.systemd.Next())
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
