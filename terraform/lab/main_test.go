// Package lab tests the lab that Terraform runs on this machine.
package lab

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/dashboards"
	"github.com/weir-edge/weir/internal/testenv"
)

// lab is one lab, with its own addresses.
type lab struct {
	t       *testing.T
	dir     string
	network string
	files   string // files that the test writes
	env     []string
}

// newLab prepares a lab, and its removal even if the test binary is killed.
func newLab(t *testing.T) *lab {
	t.Helper()
	consul, err := filepath.Abs("../../.bin/consul")
	require.NoError(t, err)
	require.FileExists(t, consul, "run make tools")
	home := t.TempDir()
	l := &lab{t: t, dir: filepath.Join(home, "lab"), network: freeNetwork(t), files: home}
	l.env = append(os.Environ(), "LAB="+l.dir, "LAB_BIN="+programs(t), "CONSUL="+consul,
		"TERRAFORM="+terraform(t), "TF_VAR_network="+l.network)

	watch := exec.Command("sh", "-c", `cat; exec scripts/down.sh`)
	var said bytes.Buffer
	watch.Env, watch.SysProcAttr = l.env, &syscall.SysProcAttr{Setsid: true}
	watch.Stdout, watch.Stderr = &said, &said
	alive, err := watch.StdinPipe() // the kernel closes it with the test
	require.NoError(t, err)
	require.NoError(t, watch.Start())
	t.Cleanup(func() {
		if log, err := os.ReadFile(filepath.Join(l.dir, "terraform.log")); err == nil && t.Failed() {
			t.Logf("terraform:\n%s", log)
		}
		_ = alive.Close()
		err := watch.Wait()
		require.NoError(t, err, said.String())
	})
	return l
}

// terraform finds the program that the Makefile would use.
func terraform(t *testing.T) string {
	t.Helper()
	if name := os.Getenv("TERRAFORM"); name != "" {
		return name
	}
	if name, err := exec.LookPath("terraform"); err == nil {
		return name
	}
	tofu, err := filepath.Abs("../../.bin/tofu")
	require.NoError(t, err)
	require.FileExists(t, tofu, "install terraform, or run make tools")
	return tofu
}

// built are the module's programs, in a folder that TestMain removes.
var built struct {
	sync.Once
	dir string
	err error
}

func programs(t *testing.T) string {
	t.Helper()
	built.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "weir-lab-"); built.err != nil {
			return
		}
		for folder, names := range map[string][]string{"../..": {"./cmd/edge", "./cmd/regionctl"}, ".": {"./origin", "./distance"}} { // of two modules
			cmd := exec.Command("go", append([]string{"build", "-o", built.dir + "/"}, names...)...)
			cmd.Dir, cmd.Env = folder, append(os.Environ(), "CGO_ENABLED=0")
			if out, err := cmd.CombinedOutput(); err != nil {
				built.err = fmt.Errorf("go build: %w: %s", err, out)
			}
		}
	})
	require.NoError(t, built.err)
	return built.dir
}

func TestMain(m *testing.M) {
	status := m.Run()
	if built.dir != "" {
		_ = os.RemoveAll(built.dir)
	}
	os.Exit(status)
}

// freeNetwork returns the first two parts of addresses that no other lab uses,
// including that of make lab. An abstract socket claims them: the kernel releases it.
func freeNetwork(t *testing.T) string {
	t.Helper()
	for range 1000 {
		network := fmt.Sprintf("127.%d", 2+rand.IntN(253))
		claim, err := net.Listen("unix", "@weir-lab-"+network)
		if err == nil {
			t.Cleanup(func() { _ = claim.Close() })
			return network
		}
	}
	t.Fatal("no network is free")
	return ""
}

func (l *lab) address(region, host int) string {
	return fmt.Sprintf("%s.%d.%d", l.network, region, host)
}

// write creates a file next to the lab, or in it if the name has a folder.
func (l *lab) write(name, text string) string {
	l.t.Helper()
	folder := l.files
	if filepath.Dir(name) != "." {
		folder = l.dir
	}
	require.NoError(l.t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600))
	return filepath.Join(folder, name)
}

func (l *lab) read(name string) string {
	l.t.Helper()
	text, err := os.ReadFile(filepath.Join(l.dir, name))
	require.NoError(l.t, err)
	return string(text)
}

// file returns a file that the test wrote, or one in this folder.
func (l *lab) file(name string) string {
	if own := filepath.Join(l.files, name); !filepath.IsAbs(name) {
		if _, err := os.Stat(own); err == nil {
			return own
		}
	}
	return name
}

// hide runs the test with a PATH that lacks these programs.
func (l *lab) hide(programs ...string) {
	l.t.Helper()
	path := l.t.TempDir()
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		files, _ := os.ReadDir(dir) // a missing folder has none
		for _, f := range files {
			if !slices.Contains(programs, f.Name()) {
				_ = os.Symlink(filepath.Join(dir, f.Name()), filepath.Join(path, f.Name())) // the first one of a name wins
			}
		}
	}
	l.env = append(l.env, "PATH="+path)
}

// start runs a script in its own process group.
func (l *lab) start(script string, args ...string) *exec.Cmd {
	l.t.Helper()
	cmd := exec.Command("scripts/"+script, args...)
	cmd.Env, cmd.SysProcAttr = l.env, &syscall.SysProcAttr{Setpgid: true}
	require.NoError(l.t, cmd.Start())
	return cmd
}

func (l *lab) try(script string, args ...string) (string, error) {
	cmd := exec.Command("scripts/"+script, args...)
	cmd.Env = l.env
	// A process of the lab that kept the pipe open would be a fault; it ends here.
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (l *lab) script(name string, args ...string) string {
	l.t.Helper()
	out, err := l.try(name, args...)
	require.NoError(l.t, err, "%s %v: %s", name, args, out)
	return out
}

func (l *lab) up(vars string) string {
	l.t.Helper()
	return l.script("up.sh", l.file(vars))
}

func (l *lab) regionctl(args ...string) string {
	l.t.Helper()
	cmd := exec.Command(filepath.Join(built.dir, "regionctl"), append([]string{"--fleet", filepath.Join(l.dir, "fleet.yaml")}, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(l.t, err, "regionctl %v: %s%s", args, out, &stderr)
	return string(out)
}

// plan only asks Terraform for its plan.
func (l *lab) plan(vars string) (string, error) {
	run := func(args ...string) (string, error) {
		cmd := exec.Command(terraform(l.t), args...)
		cmd.Env = append(l.env, "TF_DATA_DIR="+filepath.Join(l.files, "data"), "CHECKPOINT_DISABLE=1")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	out, err := run("init", "-no-color", "-input=false", "-backend-config=path="+filepath.Join(l.files, "plan.tfstate"))
	require.NoError(l.t, err, out)
	return run("plan", "-no-color", "-input=false", "-var-file="+vars)
}

// pids returns the running processes, by name.
func (l *lab) pids() map[string]string {
	out, _ := l.try("status.sh") // fails if some are dead
	pids := map[string]string{}
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) == 4 && f[3] == "MB" && strings.Contains(f[0], "/") {
			pids[f[0]] = f[1]
		}
	}
	return pids
}

// role returns the role that a Redis node of region 1 reports, "" if it does not
// answer.
func (l *lab) role(node int) string {
	out, _ := exec.Command("redis-cli", "-h", l.address(1, 100+node), "role").Output()
	role, _, _ := strings.Cut(string(out), "\n")
	return strings.TrimSpace(role)
}

// roles returns those of all nodes of region 1, in the order of their numbers.
func (l *lab) roles() string {
	var roles []string
	for name := range l.pids() {
		if strings.HasPrefix(name, "eu-west/redis-") {
			roles = append(roles, l.role(len(roles)+1))
		}
	}
	return strings.Join(roles, " ")
}

// owned returns all processes that belong to the lab, according to the kernel.
func (l *lab) owned() map[string]string {
	owned := map[string]string{}
	folders, err := filepath.Glob("/proc/[0-9]*")
	require.NoError(l.t, err)
	for _, folder := range folders {
		line, _ := os.ReadFile(folder + "/cmdline") // empty if the process is ending
		environ, _ := os.ReadFile(folder + "/environ")
		if len(line) > 0 && (bytes.Contains(line, []byte(l.dir)) || bytes.Contains(environ, []byte("WEIR_LAB_MARK="+l.dir+"\x00"))) {
			owned[filepath.Base(folder)] = string(bytes.ReplaceAll(line, []byte{0}, []byte(" ")))
		}
	}
	return owned
}

func (l *lab) requireGone() {
	l.t.Helper()
	for pid, line := range l.owned() {
		require.True(l.t, strings.HasPrefix(line, "tail "), "%s runs: %s", pid, line)
	}
	_, err := os.Stat(l.dir)
	require.ErrorIs(l.t, err, fs.ErrNotExist)
}

func (l *lab) killTerraform() {
	l.t.Helper()
	n := 0
	for pid, line := range l.owned() {
		if strings.HasPrefix(line, terraform(l.t)+" ") {
			number, err := strconv.Atoi(pid)
			require.NoError(l.t, err)
			require.NoError(l.t, syscall.Kill(number, syscall.SIGKILL))
			n++
		}
	}
	require.Positive(l.t, n, "terraform runs")
}

// listen occupies an address until release is called.
func (l *lab) listen(addr string) (release func()) {
	l.t.Helper()
	ln, err := net.Listen("tcp", addr)
	require.NoError(l.t, err)
	l.t.Cleanup(func() { _ = ln.Close() })
	return func() { _ = ln.Close() }
}

// occupy does the same with a server that answers.
func (l *lab) occupy(addr string) (release func()) {
	l.t.Helper()
	ln, err := net.Listen("tcp", addr)
	require.NoError(l.t, err)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "mine") })}
	go func() { _ = server.Serve(ln) }()
	l.t.Cleanup(func() { _ = server.Close() })
	return func() { _ = server.Close() }
}

// stranger is a process that does not belong to the lab.
type stranger struct {
	cmd   *exec.Cmd
	ended chan struct{}
}

func (l *lab) foreign(name string, args ...string) *stranger {
	l.t.Helper()
	s := &stranger{exec.Command(name, args...), make(chan struct{})}
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	require.NoError(l.t, s.cmd.Start())
	go func() { _ = s.cmd.Wait(); close(s.ended) }()
	l.t.Cleanup(func() { _ = s.cmd.Process.Kill(); <-s.ended })
	return s
}

func (s *stranger) pid() string { return strconv.Itoa(s.cmd.Process.Pid) }

func (s *stranger) lives() bool {
	select {
	case <-s.ended:
		return false
	default:
		return true
	}
}

func get(t *testing.T, url string) string {
	t.Helper()
	client := &http.Client{Timeout: testenv.Patience}
	defer client.CloseIdleConnections()
	resp, err := client.Get(url)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, resp.StatusCode, string(body))
	return string(body)
}

func eventually(t *testing.T, done func() bool) {
	t.Helper()
	require.Eventually(t, done, testenv.Patience, 20*time.Millisecond)
}

func (l *lab) prometheus() string { return fmt.Sprintf("http://%s:9090", l.address(0, 90)) }

// await waits until Prometheus returns a result from after since.
func (l *lab) await(since time.Time, what, query string) {
	l.t.Helper()
	dashboards.Await(l.t, l.prometheus(), since, what, query)
}

func contains(list []string, s string) bool { return slices.Contains(list, s) }
