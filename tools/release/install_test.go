package main

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/strvals"

	"github.com/weir-edge/weir/internal/testenv"
)

// testImage unpacks the image's layout and runs it without a daemon, in namespaces of a user that is not root.
func testImage(t *testing.T, dist string) {
	dir := t.TempDir()
	command(t, dist, "tar", "-xf", "weir_0.1.0_oci.tar", "-C", dir)
	require.JSONEq(t, `{"imageLayoutVersion":"1.0.0"}`, string(read(t, dir+"/oci-layout")))
	blob := func(d descriptor) []byte {
		data := read(t, dir+"/blobs/"+strings.ReplaceAll(d.Digest, ":", "/"))
		require.Len(t, data, d.Size)
		require.Equal(t, d.Digest, fmt.Sprintf("sha256:%x", sha256.Sum256(data)))
		return data
	}
	var top, all struct{ Manifests []descriptor }
	require.NoError(t, json.Unmarshal(read(t, dir+"/index.json"), &top))
	require.Len(t, top.Manifests, 1)
	require.Equal(t, "v0.1.0", top.Manifests[0].Annotations["org.opencontainers.image.ref.name"])
	require.NoError(t, json.Unmarshal(blob(top.Manifests[0]), &all))
	require.Len(t, all.Manifests, 2)
	for _, image := range all.Manifests {
		var manifest struct {
			Config descriptor
			Layers []descriptor
		}
		require.NoError(t, json.Unmarshal(blob(image), &manifest))
		var config struct {
			OS, Architecture string
			Config           struct {
				User, StopSignal string
				Env, Cmd         []string
			}
			RootFS struct {
				DiffIDs []string `json:"diff_ids"`
			}
		}
		require.NoError(t, json.Unmarshal(blob(manifest.Config), &config))
		require.Equal(t, image.Platform, map[string]string{"os": config.OS, "architecture": config.Architecture})
		require.Equal(t, "65532:65532", config.Config.User)
		root := t.TempDir()
		require.NoError(t, os.Chmod(root, 0o755))
		for i, layer := range manifest.Layers {
			packed := filepath.Join(t.TempDir(), "layer.tar.gz")
			require.NoError(t, os.WriteFile(packed, blob(layer), 0o644))
			require.Equal(t, strings.TrimPrefix(config.RootFS.DiffIDs[i], "sha256:")+"  -\n", command(t, ".", "sh", "-c", `gzip -dc "$0" | sha256sum`, packed))
			command(t, ".", "tar", "-xzf", packed, "-C", root)
		}
		programs, err := filepath.Glob(root + "/*/*/bin/*")
		require.NoError(t, err)
		require.Equal(t, []string{root + "/usr/local/bin/edge", root + "/usr/local/bin/regionctl"}, programs, "no shell")
		require.True(t, x509.NewCertPool().AppendCertsFromPEM(read(t, root+"/etc/ssl/certs/ca-certificates.crt")))
		require.Contains(t, string(read(t, root+"/usr/share/doc/weir/THIRD-PARTY-LICENSES")), "x509roots/fallback: LICENSE")
		if config.Architecture != runtime.GOARCH {
			continue
		}
		origin := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		defer origin.Close()
		public := freeAddr(t)
		text := fmt.Sprintf("listen: {public: %q, admin: %q}\nupstreams: [{url: %q}]\nstore: {kind: memory}\nrules: {source: file, file: /etc/weir/rules.yaml}\n", public, freeAddr(t), origin.URL)
		require.NoError(t, os.WriteFile(root+"/etc/weir/edge.yaml", []byte(text), 0o644))
		require.NoError(t, os.WriteFile(root+"/etc/weir/rules.yaml", []byte("rules: [{id: a, key: [client_ip], limit: 1, window: 1h}]\n"), 0o644))
		mapping := []syscall.SysProcIDMap{{ContainerID: imageUser, HostID: imageUser, Size: 1}}
		c := &exec.Cmd{Path: config.Config.Cmd[0], Args: config.Config.Cmd, Env: config.Config.Env, Dir: "/", Stderr: t.Output(), SysProcAttr: &syscall.SysProcAttr{
			Chroot: root, Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID, UidMappings: mapping, GidMappings: mapping,
			Credential: &syscall.Credential{Uid: imageUser, Gid: imageUser, NoSetGroups: true},
		}}
		require.NoError(t, c.Start())
		ended := make(chan error, 1)
		go func() { ended <- c.Wait() }()
		defer func() { _ = c.Process.Kill() }()
		var statuses []int
		require.Eventually(t, func() bool {
			response, err := http.Get("http://" + public)
			if err == nil {
				response.Body.Close()
				statuses = append(statuses, response.StatusCode)
			}
			return len(statuses) == 2
		}, testenv.Patience, 10*time.Millisecond)
		require.Equal(t, []int{http.StatusOK, http.StatusTooManyRequests}, statuses)
		require.Contains(t, string(read(t, fmt.Sprintf("/proc/%d/status", c.Process.Pid))), "\nUid:\t65532\t65532\t65532\t65532\n")
		require.NoError(t, c.Process.Signal(syscall.SIGTERM))
		require.NoError(t, <-ended)
	}
}

// testAWS packs what instances in AWS run: the release's programs, and Consul, here the one that tests run.
func testAWS(t *testing.T, source, dist string) {
	require.NoError(t, os.Symlink(dist, source+"/dist"))
	defer os.Remove(source + "/dist")
	packs := source + "/bin/aws-" + runtime.GOARCH
	require.NoError(t, os.MkdirAll(packs, 0o755))
	for _, name := range []string{"consul", "consul.sum"} {
		require.NoError(t, os.WriteFile(packs+"/"+name, read(t, "../../.bin/"+name), 0o755))
	}
	command(t, source, "make", "--no-print-directory", "release-aws", "ARCH="+runtime.GOARCH)
	defer os.Remove(dist + "/aws-linux-" + runtime.GOARCH + ".tar.gz")
	dir := t.TempDir()
	command(t, dir, "tar", "-xzf", dist+"/aws-linux-"+runtime.GOARCH+".tar.gz", "edge", "regionctl", "consul") // as an instance does
	command(t, dir, "tar", "-xzf", dist+"/weir_0.1.0_linux_"+runtime.GOARCH+".tar.gz", "--strip-components=1", "--one-top-level=release")
	for _, name := range []string{"edge", "regionctl"} {
		require.Equal(t, sha256.Sum256(read(t, dir+"/release/"+name)), sha256.Sum256(read(t, dir+"/"+name)), name)
	}

	// It lacks only credentials to find its servers, not the provider.
	ports := testenv.FreePorts(t, 2)
	agent := exec.Command(dir+"/consul", "agent", "-data-dir", t.TempDir(), "-bind", "127.0.0.1", "-dns-port", "-1", "-grpc-port", "-1", "-http-port", fmt.Sprint(ports[0]),
		"-serf-lan-port", fmt.Sprint(ports[1]), "-retry-join", "provider=aws region=eu-west-1 tag_key=weir:consul tag_value=weir", "-retry-max", "1", "-retry-interval", "1s")
	agent.Env = []string{"AWS_EC2_METADATA_DISABLED=true", "AWS_CONFIG_FILE=/dev/null", "AWS_SHARED_CREDENTIALS_FILE=/dev/null", "HOME=" + t.TempDir()}
	out, err := agent.CombinedOutput()
	require.Error(t, err, "it joins nobody and ends")
	require.Contains(t, string(out), "get credentials")
}

// bareDebian packs a Debian as debootstrap makes it, with only the curl that README uses. That downloads packages, so .bin keeps it.
func bareDebian(t *testing.T) string {
	file, err := filepath.Abs("../../.bin/debian.tar")
	require.NoError(t, err)
	if _, err := os.Stat(file); err == nil {
		return file
	}
	// Not in /tmp, where device files may be barred.
	root, err := os.MkdirTemp(filepath.Dir(file), "debian-")
	require.NoError(t, err)
	defer os.RemoveAll(root)
	command(t, ".", "/usr/sbin/debootstrap", "--variant=minbase", "--include=curl", "stable", root, "http://deb.debian.org/debian")
	command(t, root, "tar", "--exclude=./var/cache/apt/archives/*.deb", "-cf", root+".tar", ".")
	require.NoError(t, os.Rename(root+".tar", file))
	return file
}

// fresh runs its input on a Debian system as it was installed: what the input changes, and the processes that it starts, are
// gone when it ends.
const fresh = `
mount -t tmpfs none "$1"
cd "$1"
mkdir root
tar -xf "$3" -C root
mount -t proc none root/proc
mount --rbind /dev root/dev
mkdir root/download root/download/dist
mount --bind "$2" root/download/dist
printf '#!/bin/sh\nexec "$@"\n' >root/usr/local/bin/sudo # root needs none
chmod +x root/usr/local/bin/sudo
exec chroot root bash -euc 'cd /download; . /dev/stdin'
`

// testInstall pastes what README says of installing weir: each way in a network of its own, and the last line gets a 429.
func testInstall(t *testing.T, source, dist string) {
	_, section, found := strings.Cut(string(read(t, source+"/README.md")), "\n## Install\n")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n## ")
	var ways [][]string
	for _, block := range regexp.MustCompile(`(?m)(?:^    .*\n)+`).FindAllString(section, -1) {
		ways = append(ways, strings.Split(strings.TrimSpace(block), "\n"))
	}
	require.Len(t, ways, 5, "verification, the package, the image, go install, the chart")
	ways = ways[1:] // TestRelease verifies
	for _, lines := range ways {
		require.LessOrEqual(t, len(lines), 3)
		for _, name := range regexp.MustCompile(`dist/\S+`).FindAllString(strings.Join(lines, "\n"), -1) {
			name = strings.Replace(filepath.Base(name), "$(dpkg", runtime.GOARCH+".deb", 1) // …_$(dpkg --print-architecture).deb
			require.FileExists(t, dist+"/"+name)
		}
	}
	require.Contains(t, strings.Join(ways[1], "\n"), "weir:v0.1.0", "the name that the image has, as testImage sees")
	ends := func(printed string) {
		t.Helper()
		require.Len(t, regexp.MustCompile(`(?m)^200$`).FindAllString(printed, -1), 10, printed)
		require.Len(t, regexp.MustCompile(`(?m)^429$`).FindAllString(printed, -1), 1, printed)
	}
	t.Run("package", func(t *testing.T) {
		ends(paste(t, ways[0], nil, "unshare", "--mount", "--pid", "--fork", "--kill-child", "bash", "-euc", fresh, "bash", t.TempDir(), dist, bareDebian(t)))
	})
	t.Run("chart", func(t *testing.T) { testChart(t, ways[3][1], dist) })
	t.Run("go install", func(t *testing.T) {
		for _, tag := range []string{"v0.1.0", "middleware/v0.1.0"} { // which the maintainer makes
			git(t, source, "tag", tag, "main")
		}
		bin, cache := t.TempDir(), strings.TrimSpace(command(t, ".", "go", "env", "GOMODCACHE"))
		env := []string{
			"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=url." + source + ".insteadOf", "GIT_CONFIG_VALUE_0=https://github.com/weir-edge/weir",
			"GOPROXY=file://" + cache + "/cache/download", "GONOPROXY=github.com/weir-edge/*", "GOSUMDB=off", "GOWORK=off", "GOMODCACHE=" + t.TempDir(),
			"GOFLAGS=-modcacherw -trimpath", "CGO_ENABLED=0", "GOBIN=" + bin, "PATH=" + bin + ":" + os.Getenv("PATH"),
		}
		ends(paste(t, ways[2], env, "unshare", "--pid", "--fork", "--kill-child", "bash", "-euc", ". /dev/stdin"))
		require.Contains(t, command(t, bin, "./edge", "-version"), "v0.1.0")
		require.FileExists(t, bin+"/regionctl")

		program := t.TempDir() // one that limits by the middleware, whose go.mod requires the same version of weir
		require.NoError(t, os.WriteFile(program+"/main.go", []byte("package main\n\nimport _ \"github.com/weir-edge/weir/middleware\"\n\nfunc main() {}\n"), 0o644))
		for _, args := range [][]string{{"mod", "init", "example.com/program"}, {"get", "github.com/weir-edge/weir/middleware@v0.1.0"}, {"list", "-deps", "."}} {
			c := exec.Command("go", args...)
			c.Dir, c.Env = program, append(os.Environ(), env...)
			out, err := c.CombinedOutput()
			require.NoError(t, err, "go %v: %s", args, out)
		}
		require.Contains(t, string(read(t, program+"/go.mod")), "github.com/weir-edge/weir v0.1.0")
	})
}

// testChart renders the chart with the values that README sets. It runs the image of the same version.
func testChart(t *testing.T, line, dist string) {
	c, err := loader.Load(filepath.Join(dist, regexp.MustCompile(`weir-\S+\.tgz`).FindString(line)))
	require.NoError(t, err)
	v := map[string]any{}
	for _, set := range regexp.MustCompile(`--set '?([^' ]+)`).FindAllStringSubmatch(line, -1) {
		require.NoError(t, strvals.ParseInto(set[1], v))
	}
	all, err := chartutil.ToRenderValues(c, v, chartutil.ReleaseOptions{Name: "weir"}, chartutil.DefaultCapabilities)
	require.NoError(t, err)
	files, err := engine.Render(c, all)
	require.NoError(t, err)
	require.Contains(t, files["weir/templates/edge.yaml"], "image: registry.example.com/weir:v0.1.0\n")
}

// paste runs lines in a shell, and waits after those that start a node until it is ready. It returns what is printed.
func paste(t *testing.T, lines, env []string, shell ...string) string {
	var input strings.Builder
	for _, line := range lines {
		input.WriteString(line + "\n")
		if strings.HasSuffix(line, "&") {
			input.WriteString("until curl -s -o /dev/null http://127.0.0.1:8081/readyz; do kill -0 $!; sleep 0.05; done\n")
		}
	}
	c := exec.Command(shell[0], shell[1:]...)
	var out bytes.Buffer
	c.Stdin, c.Stdout, c.Stderr, c.Env = strings.NewReader(input.String()), &out, &out, append(os.Environ(), env...)
	require.NoError(t, testenv.NewIsland(t).Start(c))
	require.NoError(t, c.Wait(), "%s\nprinted\n%s", input.String(), &out)
	return out.String()
}

// documented returns the command of a page that begins so.
func documented(t *testing.T, page, begins string) string {
	lines := strings.Split(string(read(t, page)), "\n")
	at := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, "    "+begins) })
	require.GreaterOrEqual(t, at, 0, "%s has no command %s", page, begins)
	return strings.TrimSpace(lines[at])
}
