package terraform_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
)

// database puts a GeoIP database into the region's bucket.
func (m *instance) database(text string) {
	m.t.Helper()
	dir := filepath.Join(m.objects, "geo")
	require.NoError(m.t, os.MkdirAll(dir, 0o755))
	require.NoError(m.t, os.WriteFile(filepath.Join(dir, "city.mmdb"), []byte(text), 0o600))
}

// With steering geoip a router gets a database and steers by it, and a new one without a restart.
func TestRouterSteersByDistance(t *testing.T) {
	s := dnsScratch(t)
	s.write("zz.auto.tfvars", `geoip_key = "geo/city.mmdb"`)
	m := boot(t, s.outputs()["dns"].(string))
	require.NoError(t, os.MkdirAll(filepath.Join(m.root, "var/lib/weir-geoip"), 0o755))
	m.knows("us-east")
	text, err := m.run("/usr/local/lib/weir/boot")
	require.NoError(t, err, "%s", text)
	restarts := func() int { return strings.Count(m.read("systemctl"), "try-restart weir-dns.service") }
	booted := restarts()
	require.Contains(t, m.read("systemctl"), "enable --now weir-geoip.service\nenable --now weir-geoip.timer\nenable --now weir-dns.service\n")
	for line := range strings.Lines(m.read("/etc/weir/geoip.env")) {
		m.env = append(m.env, strings.ReplaceAll(strings.TrimSpace(line), "'", ""))
	}
	latitude := func(n string) string { return read(t, "../internal/router/testdata/latitude-"+n+".mmdb") }
	fetch := func(want string) {
		t.Helper()
		text, err := m.run("/usr/local/lib/weir/geoip")
		require.NoError(t, err, "%s", text)
		require.Equal(t, want, text)
	}

	// Without a database the router starts, and the timer keeps looking for one.
	const flags = "/var/lib/weir-geoip/dns.env"
	for _, script := range []string{tools["aws"], "exit 254"} {
		require.NoError(t, os.WriteFile(filepath.Join(m.bin, "aws"), []byte("#!/bin/sh\n"+script+"\n"), 0o755))
		text, err = m.run("/usr/local/lib/weir/geoip")
		require.Error(t, err, "%s", text)
		require.NoFileExists(t, filepath.Join(m.root, flags))
	}
	require.NoError(t, os.WriteFile(filepath.Join(m.bin, "aws"), []byte("#!/bin/sh\n"+tools["aws"]+"\n"), 0o755))
	require.Contains(t, m.read("/etc/systemd/system/weir-geoip.service"), "\nExecStart=-/usr/local/lib/weir/geoip\n")
	require.Contains(t, m.read("/etc/systemd/system/weir-geoip.timer"), "\nOnUnitActiveSec=10min\n")
	require.Contains(t, m.read("/etc/systemd/system/weir-dns.service.d/geoip.conf"), "\nEnvironmentFile=-"+flags+"\n")
	require.NotContains(t, m.read("/etc/weir/dns.env"), "--geoip")

	const renewed = "weir: the GeoIP database is new\n"
	m.database(latitude("1"))
	fetch(renewed)
	require.Equal(t, strings.TrimSuffix(m.read("/etc/weir/dns.env"), "\"\n")+" --geoip /var/lib/weir-geoip/city.mmdb\"\n", m.read(flags))
	require.True(t, strings.HasSuffix(m.read("systemctl"), "\n--no-block try-restart weir-dns.service\n"))
	fetch("")
	file := filepath.Join(m.root, "var/lib/weir-geoip/city.mmdb")
	before, err := os.Stat(file)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o644), before.Mode().Perm(), "for the user weir")

	fleet := published(t, `{zone: edge.example.com, steering: geoip, regions: [
  {name: eu-west, pops: [{name: dub1, addresses: [192.0.2.1], location: {lat: 53, lon: -6}}]},
  {name: us-east, pops: [{name: iad1, addresses: [192.0.2.2], location: {lat: 39, lon: -77}}]}]}`)
	require.Contains(t, steers(t, fleet, "--geoip", file), "\nweir_dns_steers 1\n")
	require.Contains(t, steers(t, fleet), "\nweir_dns_steers 0\n")

	// A new database is renamed over the previous one, which the router reads (internal/router).
	m.database(latitude("2"))
	fetch(renewed)
	after, err := os.Stat(file)
	require.NoError(t, err)
	require.False(t, os.SameFile(before, after))
	require.Equal(t, latitude("2"), read(t, file))
	require.Equal(t, booted+1, restarts(), "only for the first database")

	m.database(latitude("3")[:1000])
	text, err = m.run("/usr/local/lib/weir/geoip")
	require.Error(t, err)
	require.Contains(t, text, "is no complete database")
	require.Equal(t, latitude("2"), read(t, file))
}

// published returns the fleet file of two regions that have a topology.
func published(t *testing.T, topology string) (fleet string) {
	t.Helper()
	dir := t.TempDir()
	text := "regions:\n"
	names := []string{"eu-west", "us-east"}
	for i, consul := range testenv.StartConsuls(t, testenv.ConsulOptions{}, names...) {
		text += fmt.Sprintf("  - {name: %s, consul: {addr: %q, datacenter: %[1]s}}\n", names[i], consul.Addr())
	}
	fleet = filepath.Join(dir, "fleet.yaml")
	require.NoError(t, os.WriteFile(fleet, []byte(text), 0o600))
	file := filepath.Join(dir, "topology.yaml")
	require.NoError(t, os.WriteFile(file, []byte(topology), 0o600))
	for _, args := range [][]string{{"init", "--yes"}, {"topology", "apply", "--yes", file}} {
		out, err := exec.Command(testenv.Program(t, "regionctl"), append(args, "--fleet", fleet)...).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	return fleet
}

// steers returns the metrics of a router.
func steers(t *testing.T, fleet string, flags ...string) (metrics string) {
	t.Helper()
	ports := testenv.FreePorts(t, 2)
	admin := "127.0.0.1:" + strconv.Itoa(ports[1])
	args := append([]string{"dns", "--fleet", fleet, "--listen", "127.0.0.1:" + strconv.Itoa(ports[0]), "--metrics", admin}, flags...)
	router := exec.Command(testenv.Program(t, "regionctl"), args...)
	require.NoError(t, router.Start())
	defer func() {
		_ = router.Process.Kill()
		_ = router.Wait()
	}()
	require.Eventually(t, func() bool {
		answer, err := http.Get("http://" + admin + "/metrics")
		if err != nil {
			return false
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		metrics = string(text)
		return err == nil && strings.Contains(metrics, "\nweir_dns_steers ")
	}, testenv.Patience, 50*time.Millisecond)
	return metrics
}
