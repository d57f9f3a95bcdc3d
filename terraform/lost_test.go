package terraform_test

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
)

// With another region's services gone, an instance of each role starts.
func TestAnotherRegionIsLost(t *testing.T) {
	out := regionOutputs(t)
	out["router"] = dnsScratch(t).outputs()["dns"]
	for role, last := range map[string]string{"edge": "weir-edge.service", "consul": "weir-joined.service", "router": "weir-dns.service"} {
		m := boot(t, out[role].(string))
		m.env = append(m.env, "GONE=us-east-1")
		m.object("agent.json", "{}\n")
		m.object("consul-token", "x\n")
		m.secret("here", "token-1\n")
		m.secret("there", "token-2\n")
		m.secret("dns-key", "KEY\n")
		m.ready(out)
		require.Contains(t, m.read("systemctl"), "enable --now "+last, "%s", role)
	}

	// Nor does it start without its own region.
	m := boot(t, out["router"].(string))
	m.env = append(m.env, "GONE=eu-west-1")
	text, err := m.run("/usr/local/lib/weir/boot")
	require.Error(t, err, "%s", text)
	require.NoFileExists(t, m.root+"/systemctl")
}

// Silent regions hold up neither the token of a router's own region nor each other.
func TestSilentRegions(t *testing.T) {
	s, silent := dnsScratch(t), []string{"ap-east-1", "ap-south-1", "ap-south-2", "ca-west-1"}
	consuls := ""
	for _, name := range append(silent, "eu-west") {
		consuls += fmt.Sprintf("  %s = { addr = \"https://%[1]s:8501\", datacenter = %[1]q, server_name = \"server\", token_arn = \"arn:aws:secretsmanager:%[1]s:1:secret:here\" }\n", name)
	}
	s.write("zz.auto.tfvars", "consuls = {\n"+consuls+"}")
	m := boot(t, s.outputs()["dns"].(string))
	m.secret("here", "token-1\n")
	m.secret("dns-key", "KEY\n")
	for name, script := range map[string]string{
		"timeout": `shift; exec "$@"`, // never
		"aws": `case "$* " in
*"--region eu-west"*) ;;
*) echo asked >>"$WEIR_ROOT/asked"; while [ -d "$WEIR_ROOT" ] && [ ! -e "$WEIR_ROOT/over" ]; do sleep 0.05; done; exit 255 ;;
esac
` + tools["aws"],
	} {
		require.NoError(t, os.WriteFile(filepath.Join(m.bin, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755))
	}
	cmd := exec.Command(filepath.Join(m.root, "usr/local/lib/weir/secrets"))
	cmd.Env = m.env
	require.NoError(t, cmd.Start())
	over := func() { m.write("over", "", 0o600) }
	t.Cleanup(over)
	require.Eventually(t, func() bool {
		asked, err := os.ReadFile(filepath.Join(m.root, "asked"))
		return err == nil && strings.Count(string(asked), "asked") == len(silent)
	}, testenv.Patience, 10*time.Millisecond, "all are asked while none answers")
	require.Equal(t, "token-1\n", m.read("/etc/weir/tokens/eu-west"))
	require.Equal(t, "KEY\n", m.read("/etc/weir/dns.key"))
	over()
	var missing *exec.ExitError
	require.ErrorAs(t, cmd.Wait(), &missing)
	require.Equal(t, 4, missing.ExitCode())
}

// A router without another region's token runs, and takes the token when that region is back.
func TestRouterWithoutAToken(t *testing.T) {
	m := boot(t, dnsScratch(t).outputs()["dns"].(string))
	for name, text := range map[string]string{"here": "token-1\n", "there": "token-2\n", "dns-key": "KEY\n"} {
		m.secret(name, text)
	}
	all := m.env
	m.env = append(all, "GONE=us-east-1")
	text, err := m.run("/usr/local/lib/weir/boot")
	require.NoError(t, err, "%s", text)
	require.Empty(t, m.read("/etc/weir/tokens/us-east"))

	ca, _, _ := authority(t, "server.eu-west.consul")
	m.write("/etc/weir/ca.pem", ca, 0o644)
	ports := testenv.FreePorts(t, 2)
	admin := fmt.Sprintf("127.0.0.1:%d", ports[1])
	router := exec.Command(testenv.Program(t, "regionctl"), "dns", "--fleet", m.here("/etc/weir/fleet.yaml"), "--zone", "edge.example.com",
		"--listen", fmt.Sprintf("127.0.0.1:%d", ports[0]), "--metrics", admin)
	var log strings.Builder
	router.Stderr = &log
	require.NoError(t, router.Start())
	t.Cleanup(func() {
		_ = router.Process.Kill()
		_ = router.Wait()
		if t.Failed() {
			t.Log(log.String())
		}
	})
	require.Eventually(t, func() bool {
		answer, err := http.Get("http://" + admin + "/healthz")
		if err != nil {
			return false
		}
		_ = answer.Body.Close()
		return answer.StatusCode == http.StatusOK
	}, testenv.Patience, 50*time.Millisecond)

	text, err = m.run("/usr/local/lib/weir/secrets")
	require.Equal(t, 4, err.(*exec.ExitError).ExitCode(), "the timer says what is missing: %s", text)
	m.env = all
	text, err = m.run("/usr/local/lib/weir/secrets")
	require.NoError(t, err, "%s", text)
	require.Equal(t, "token-2\n", m.read("/etc/weir/tokens/us-east"))
	info, err := os.Stat(m.root + "/etc/weir/tokens/us-east")
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o640), info.Mode().Perm())
}

// A new region replaces neither edges nor Consul servers of the others: their user data stay.
func TestANewRegionReplacesNoServer(t *testing.T) {
	s := regionScratch(t)
	before := s.outputs()
	s.write("zz.auto.tfvars", `peers = { us-east = "us-east-1", us-west = "us-west-2" }`)
	after := s.outputs()
	require.Equal(t, before["edge"], after["edge"])
	require.Equal(t, before["consul"], after["consul"])
	wan := func(out map[string]any) string { return out["secrets"].(map[string]any)["consul-wan"].(string) }
	require.NotContains(t, wan(before), "us-west-2")
	require.Contains(t, wan(after), "tag_value=weir-us-west ")
}
