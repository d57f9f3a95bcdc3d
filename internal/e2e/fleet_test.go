package e2e

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
)

// fleet is several regions and their fleet file.
type fleet struct {
	t       *testing.T
	file    string
	regions []*site
}

// site is a region: a Consul datacenter, a Redis, and a PoP for each node.
type site struct {
	name   string
	consul *testenv.Consul
	redis  *testenv.Server
	nodes  []*testenv.EdgeNode
	budget time.Duration // of the store; 0: generous
}

func (f *fleet) nodes() (all []*testenv.EdgeNode) {
	for _, s := range f.regions {
		all = append(all, s.nodes...)
	}
	return all
}

// startFleet starts this many nodes in each region, without rules.
func startFleet(t *testing.T, o testenv.ConsulOptions, nodes int, regions ...string) *fleet {
	t.Helper()
	return startFleetBefore(t, origin(t, nil), "", o, nodes, regions...)
}

// startFleetBefore is startFleet with an origin. more goes into the nodes' configuration.
func startFleetBefore(t *testing.T, backend, more string, o testenv.ConsulOptions, nodes int, regions ...string) *fleet {
	t.Helper()
	f := &fleet{t: t}
	for i, consul := range testenv.StartConsuls(t, o, regions...) {
		s := &site{name: regions[i], consul: consul, redis: testenv.Redis(t, testenv.Options{})}
		for n := range nodes {
			s.nodes = append(s.nodes, testenv.StartEdge(t, s.config(backend, n, filepath.Join(t.TempDir(), "rules.json"), "")+more))
		}
		f.regions = append(f.regions, s)
	}
	f.write("")
	f.registers()
	return f
}

// registers waits until Consul lists every node: regionctl waits for no others. That is asynchronous, also for a node that is ready.
func (f *fleet) registers() {
	f.t.Helper()
	for _, s := range f.regions {
		eventually(f.t, testenv.Patience, "the nodes of "+s.name+" are registered", func() bool {
			list, _, err := s.consul.Client().Health().Service("weir-edge", "", false, nil)
			return err == nil && len(list) == len(s.nodes)
		})
	}
}

// config returns node n's configuration. more goes into its consul section.
func (s *site) config(backend string, n int, cache, more string) string {
	return fmt.Sprintf("node: {id: %[1]s-%[2]d, region: %[1]s, pop: %[1]s-pop%[2]d}\n"+
		"rules: {source: consul, cache: %[3]q}\nconsul: {addr: %[4]q%[5]s}\n", s.name, n, cache, s.consul.Addr(), more) +
		redisConfig(backend, "single", []string{s.redis.Addr}, cmp.Or(s.budget, generous), 2, "")
}

// write names the regions and writes the fleet file. more goes into each consul section.
func (f *fleet) write(more string) {
	f.t.Helper()
	var b bytes.Buffer
	b.WriteString("regions:\n")
	for _, s := range f.regions {
		s.consul.Set(f.t, "weir/region", []byte(s.name))
		fmt.Fprintf(&b, "  - {name: %s, admin_networks: [127.0.0.0/8], consul: {addr: %q, datacenter: %[1]s%[3]s}}\n", s.name, s.consul.Addr(), more)
	}
	f.file = filepath.Join(f.t.TempDir(), "fleet.yaml")
	require.NoError(f.t, os.WriteFile(f.file, b.Bytes(), 0o600))
}

// regionctl runs a command and returns its output and its exit status.
func (f *fleet) regionctl(args ...string) (stdout, stderr string, status int) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), 2*time.Minute)
	defer cancel()
	var out, errOut bytes.Buffer
	cmd := exec.CommandContext(ctx, testenv.Program(f.t, "regionctl"), args...)
	cmd.Env = append(os.Environ(), "WEIR_FLEET="+f.file)
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return out.String(), errOut.String(), exit.ExitCode()
	}
	require.NoError(f.t, err)
	return out.String(), errOut.String(), 0
}

// apply activates a document everywhere; a failure fails the test.
func (f *fleet) apply(document string, more ...string) {
	f.t.Helper()
	file := filepath.Join(f.t.TempDir(), "rules.yaml")
	require.NoError(f.t, os.WriteFile(file, []byte(document), 0o600))
	stdout, stderr, status := f.regionctl(append([]string{"rules", "apply", file, "--yes"}, more...)...)
	require.Zero(f.t, status, "%s\n%s", stdout, stderr)
}

// running is a node's answer about its rules.
type running struct {
	Version string    `json:"version"`
	Since   time.Time `json:"since"`
	Source  string    `json:"source"`
	Pointer struct {
		AppliedAt time.Time `json:"applied_at"`
	} `json:"pointer"`
	Refused *struct {
		Version string   `json:"version"`
		Errors  []string `json:"errors"`
	} `json:"refused"`
	Consul struct {
		OK    bool   `json:"ok"`
		Error string `json:"error"`
	} `json:"consul"`
}

func rulesOf(n *testenv.EdgeNode) (running, error) {
	return adminGet[running](n, "/v1/rules")
}

// adminGet returns an answer of a node's admin listener.
func adminGet[T any](n *testenv.EdgeNode, path string) (v T, err error) {
	resp, err := http.Get("http://" + n.Admin + path)
	if err != nil {
		return v, err
	}
	defer resp.Body.Close()
	return v, json.NewDecoder(resp.Body).Decode(&v)
}

// readyz returns the status and text of a node's readiness.
func readyz(t *testing.T, n *testenv.EdgeNode) (int, string) {
	t.Helper()
	resp, err := http.Get("http://" + n.Admin + "/readyz")
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(body)
}

// policies returns the limits that a node's answer states, in rule order.
func policies(n *testenv.EdgeNode, path, who string) (string, error) {
	req, err := http.NewRequest(http.MethodGet, "http://"+n.Public+path, nil)
	if err != nil {
		return "", err
	}
	req.Header.Set("X-Forwarded-For", who)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("status %d", resp.StatusCode)
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.Header.Get("RateLimit-Policy"), err
}

// docWindow is read once, so that all documents have it whenever they are written.
var docWindow = testenv.LongWindow()

// doc returns a document of two rules that always have the same limit, so an answer that mixes
// two documents is evident.
func doc(limit int) string {
	return fmt.Sprintf(`
rules:
  - {id: one, key: [client_ip], algorithm: fixed_window, limit: %d, window: %[2]s}
  - {id: two, key: [client_ip], algorithm: sliding_window, limit: %[1]d, window: %[2]s}
`, limit, docWindow)
}

func policyOf(limit int) string {
	window, _ := time.ParseDuration(docWindow)
	return fmt.Sprintf(`"one";q=%d;w=%d, "two";q=%[1]d;w=%[2]d`, limit, int(window.Seconds()))
}
