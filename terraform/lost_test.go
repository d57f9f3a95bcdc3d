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
		m.object("admin.pem", adminPEM(t))
		if role == "router" {
			m.knows("us-east")
		}
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
	silent := []string{"ap-east", "ap-south", "ca-west", "me-south"}
	m := boot(t, dnsScratch(t).outputs()["dns"].(string))
	m.knows(silent...)
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
	m.knows("us-east")
	all := m.env
	m.env = append(all, "GONE=us-east-1")
	text, err := m.run("/usr/local/lib/weir/boot")
	require.NoError(t, err, "%s", text)
	require.Empty(t, m.read("/etc/weir/tokens/us-east"))

	ca, _ := authority(t)
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
