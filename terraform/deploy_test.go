package terraform_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/weir-edge/weir/internal/testenv"
	"github.com/weir-edge/weir/pkg/region"
)

// units are the systemd units of the repository.
func units(t *testing.T) []string {
	t.Helper()
	var names []string
	for _, pattern := range []string{"../deploy/systemd/*.service", "modules/*/files/*.service", "modules/*/files/*.timer"} {
		found, err := filepath.Glob(filepath.FromSlash(pattern))
		require.NoError(t, err)
		require.NotEmpty(t, found, "%s", pattern)
		names = append(names, found...)
	}
	return names
}

// directives lists what the units may use, by section: systemd ignores unknown words,
// with only a log line.
var directives = map[string]string{
	"Unit": "Description Documentation Wants After Requires StartLimitIntervalSec",
	"Service": "Type User Group ExecStartPre ExecStart ExecReload Restart RestartSec KillSignal KillMode TimeoutStopSec TimeoutStartSec LimitNOFILE " +
		"StateDirectory StateDirectoryMode WorkingDirectory UMask Environment EnvironmentFile RemainAfterExit AmbientCapabilities CapabilityBoundingSet " +
		"NoNewPrivileges ProtectSystem ReadWritePaths ProtectHome PrivateTmp PrivateDevices ProtectClock ProtectControlGroups ProtectHostname ProtectKernelLogs " +
		"ProtectKernelModules ProtectKernelTunables ProtectProc LockPersonality MemoryDenyWriteExecute RemoveIPC RestrictAddressFamilies RestrictNamespaces " +
		"RestrictRealtime RestrictSUIDSGID SystemCallArchitectures SystemCallFilter SystemCallErrorNumber",
	"Timer":   "OnActiveSec OnUnitActiveSec RandomizedDelaySec AccuracySec",
	"Install": "WantedBy",
}

func TestUnits(t *testing.T) {
	section := regexp.MustCompile(`^\[([A-Za-z]+)\]$`)
	for _, name := range units(t) {
		in, values := "", map[string]string{}
		for _, line := range strings.Split(read(t, name), "\n") {
			if line == "" || strings.HasPrefix(line, "#") {
				continue
			}
			if m := section.FindStringSubmatch(line); m != nil {
				in = m[1]
				continue
			}
			key, value, ok := strings.Cut(line, "=")
			require.True(t, ok, "%s: %s", name, line)
			require.Contains(t, strings.Fields(directives[in]), key, "%s: [%s]", name, in)
			values[key] = value
		}
		if in == "Install" && strings.HasSuffix(name, ".service") {
			require.Contains(t, []string{"always", "on-failure"}, values["Restart"], "%s", name)
			require.Equal(t, "yes", values["NoNewPrivileges"], "%s", name)
			require.Equal(t, "strict", values["ProtectSystem"], "%s", name)
		}
		switch filepath.Base(name) {
		case "weir-edge.service":
			require.Contains(t, values["ExecReload"], "-HUP $MAINPID")
			fallthrough
		case "weir-dns.service":
			require.Equal(t, "always", values["Restart"])
			require.Equal(t, "weir", values["User"])
			require.NotEmpty(t, values["LimitNOFILE"])
			require.Equal(t, "SIGTERM", values["KillSignal"])
		}
	}
}

// If systemd is installed, it checks the units too; otherwise TestUnits must do.
func TestUnitsAsSystemdSeesThem(t *testing.T) {
	verify, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Log("no systemd-analyze here")
		return
	}
	dir := t.TempDir()
	program := regexp.MustCompile(`/usr/local/(bin|lib/weir)/[a-z-]+`)
	// The timer's service has the same name, so all units must be in one folder.
	var files []string
	for _, name := range units(t) {
		text := program.ReplaceAllString(read(t, name), "/bin/true")
		file := filepath.Join(dir, filepath.Base(name))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		files = append(files, file)
	}
	out, err := exec.Command(verify, append([]string{"verify", "--man=no"}, files...)...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, file := range files {
		require.NotContains(t, string(out), filepath.Base(file), "%s", out)
	}
}

func TestScripts(t *testing.T) {
	for _, pattern := range []string{"modules/*/files/*.sh", "aws/*.sh", "../tools/tofu/*.sh"} {
		names, err := filepath.Glob(filepath.FromSlash(pattern))
		require.NoError(t, err)
		require.NotEmpty(t, names)
		for _, name := range names {
			out, err := exec.Command("sh", "-n", name).CombinedOutput()
			require.NoError(t, err, "%s: %s", name, out)
			require.True(t, strings.HasPrefix(read(t, name), "#!/bin/sh\n"), "%s", name)
			require.Contains(t, read(t, name), "\nset -eu\n", "%s", name)
		}
	}
}

// composed is what the tests check of a compose file.
type composed struct {
	Services map[string]struct {
		Image     string
		Command   any
		Configs   []struct{ Source, Target string }
		Networks  any
		DependsOn any `yaml:"depends_on"`
		Ports     []string
		Volumes   []string
		Deploy    struct{ Replicas int }
	}
	Configs map[string]struct{ Content string }
	Volumes map[string]any
}

func TestCompose(t *testing.T) {
	var c composed
	require.NoError(t, yaml.Unmarshal([]byte(read(t, "../deploy/compose.yaml")), &c))
	dir := t.TempDir()
	used, ports, addresses, edges := map[string]bool{}, map[string]bool{}, map[string]bool{}, 0
	for name, s := range c.Services {
		require.Regexp(t, `^[a-z/.-]+:[v\d.]+$`, s.Image, "%s: pinned", name)
		for _, config := range s.Configs {
			require.Contains(t, c.Configs, config.Source, "%s", name)
			used[config.Source] = true
		}
		for _, port := range s.Ports {
			require.True(t, strings.HasPrefix(port, "127.0.0.1:"), "%s: %s: must not be public", name, port)
			require.False(t, ports[port], "%s: %s is taken", name, port)
			ports[port] = true
		}
		switch after := s.DependsOn.(type) {
		case map[string]any:
			for other := range after {
				require.Contains(t, c.Services, other, "%s", name)
			}
		case []any:
			for _, other := range after {
				require.Contains(t, c.Services, other, "%s", name)
			}
		}
		if nets, ok := s.Networks.(map[string]any); ok {
			address := nets["fleet"].(map[string]any)["ipv4_address"].(string)
			require.False(t, addresses[address], "%s: %s is taken", name, address)
			addresses[address] = true
			if strings.HasPrefix(name, "redis-") {
				require.Fail(t, "six nodes cannot have one address", "%s", name)
			}
			if config, ok := c.Configs[name]; ok {
				edges++
				checkEdge(t, dir, name, address, config.Content)
				require.Equal(t, []string{name + ":/var/lib/weir"}, s.Volumes)
				require.Contains(t, c.Volumes, name)
			}
		}
		if strings.HasPrefix(name, "redis-") {
			require.Equal(t, 6, s.Deploy.Replicas)
		}
	}
	require.Equal(t, 12, edges, "3 regions, 2 PoPs, 2 edges")
	for name := range c.Configs {
		require.True(t, used[name], "%s is not used", name)
	}

	fleet := filepath.Join(dir, "fleet.yaml")
	text := strings.ReplaceAll(c.Configs["fleet"].Content, "/etc/weir", dir)
	require.NoError(t, os.WriteFile(fleet, []byte(text), 0o600))
	loaded, err := region.LoadFleet(fleet)
	require.NoError(t, err)
	require.Len(t, loaded.Regions, 3)

	rules := filepath.Join(dir, "rules.yaml")
	require.NoError(t, os.WriteFile(rules, []byte(c.Configs["rules"].Content), 0o600))
	out, err := exec.Command(testenv.Program(t, "regionctl"), "rules", "validate", rules).CombinedOutput()
	require.NoError(t, err, "%s", out)

	topology, err := region.ParseTopology([]byte(c.Configs["topology"].Content))
	require.NoError(t, err)
	require.Len(t, topology.Regions, 3)
	for _, r := range topology.Regions {
		require.True(t, slices.ContainsFunc(loaded.Regions, func(l region.FleetRegion) bool { return l.Name == r.Name }), "%s", r.Name)
		for _, pop := range r.PoPs {
			for _, address := range pop.Addresses {
				require.True(t, addresses[address.String()], "%s belongs to no service", address)
			}
		}
	}
}

// checkEdge makes edge check a configuration, with the files that it names in dir.
func checkEdge(t *testing.T, dir, name, address, config string) {
	t.Helper()
	require.Contains(t, config, "id: "+name)
	require.Contains(t, config, address+":8080")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "admin-token"), []byte("lab\n"), 0o600))
	file := filepath.Join(dir, name+".yaml")
	require.NoError(t, os.WriteFile(file, []byte(strings.ReplaceAll(config, "/etc/weir", dir)), 0o600))
	out, err := exec.Command(testenv.Program(t, "edge"), "-check", "-config", file).CombinedOutput()
	require.NoError(t, err, "%s: %s", name, out)
}
