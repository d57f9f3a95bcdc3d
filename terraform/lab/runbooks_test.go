package lab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
)

// rehearsed is a lab with what the runbooks lose: nodes, replicas, a PoP, a region.
const rehearsed = `
regions = {
  eu-west = { number = 1, edges_per_pop = 2, pops = [{ name = "ams1", location = { lat = 52.37, lon = 4.90 }, clients = ["198.51.100.0/24"] }] }
  us-east = { number = 2, edges_per_pop = 1, pops = [{ name = "iad1", location = { lat = 38.95, lon = -77.45 }, clients = ["203.0.113.0/24"] }] }
}
prometheus = false
`

// runbook is a case of docs/RUNBOOKS.md: what to kill, what causes it, what confirms it, and the
// drain that mitigates it, if one does.
type runbook struct{ kills, rehearse, confirm, drain string }

func runbooks(t *testing.T) (list []runbook) {
	t.Helper()
	text, err := os.ReadFile("../../docs/RUNBOOKS.md")
	require.NoError(t, err)
	for _, section := range strings.Split(string(text), "\n### ")[1:] {
		confirm := regexp.MustCompile("\n- \\*\\*Confirm:\\*\\* `([^`]+)`").FindStringSubmatch(section)
		require.NotNil(t, confirm, section)
		for _, m := range regexp.MustCompile("`(terraform/lab/scripts/signal.sh KILL ([^`]+))`").FindAllStringSubmatch(section, -1) {
			r := runbook{kills: strings.Trim(m[2], "'"), rehearse: m[1], confirm: confirm[1]}
			if drain := regexp.MustCompile("\n- \\*\\*Mitigate:\\*\\* `(regionctl drain [^`]+)`").FindStringSubmatch(section); drain != nil {
				r.drain = drain[1]
			}
			list = append(list, r)
		}
	}
	return list
}

// Each case that a runbook rehearses happens as it says: its command causes what is seen, the
// command that confirms it runs, a drain moves the clients, and make lab repairs it.
func TestRunbooks(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	vars := l.write("rehearsed.tfvars", rehearsed)
	l.up(vars)
	seen := map[string]func(){
		"eu-west/edge-ams1-1": func() {
			l.shows("ams1 +serving, 1 of 2", "eu-west-ams1-1 +failing")
			require.Equal(t, "hello from eu-west: GET /\n", get(t, "http://"+l.address(1, 12)+":8080/"), "the other one serves")
		},
		"eu-west/redis-1": func() {
			eventually(t, func() bool { return l.role(4) == "master" })
			l.shows("eu-west-ams1-1 +passing .* up\\n")
		},
		"eu-west/redis-*": func() {
			l.shows("eu-west-ams1-1 +passing .* down\\n", "us-east-iad1-1 .* up\\n")
			require.Equal(t, "hello from eu-west: GET /\n", get(t, "http://"+l.address(1, 11)+":8080/"), "every request is still answered")
		},
		"eu-west/consul": func() {
			l.shows("eu-west +not known|eu-west.*\\n.*not known|not known.*eu-west")
			eventually(t, func() bool {
				return strings.Contains(l.routerSays("/metrics"), `weir_dns_region_known{region="eu-west"} 0`)
			})
			require.Contains(t, l.dig("198.51.100.7/32"), l.address(1, 11), "its PoP stays")
		},
		"eu-west/edge-ams1-*": func() {
			l.shows("ams1 +down")
			eventually(t, func() bool { return l.dig("198.51.100.7/32") == l.address(2, 11) })
		},
		"eu-west/*": func() {
			l.shows("not known")
			eventually(t, func() bool { return l.dig("198.51.100.7/32") == l.address(2, 11) })
			require.Equal(t, "hello from us-east: GET /\n", get(t, "http://"+l.address(2, 11)+":8080/"), "elsewhere nothing changes")
		},
		"*/edge-*": func() {
			eventually(t, func() bool { return len(strings.Fields(l.dig("198.51.100.7/32"))) == 3 })
			require.Regexp(t, `weir_dns_queries_total\{answer="fail_open"[^}]*\} [1-9]`, l.routerSays("/metrics"))
		},
	}
	for _, r := range runbooks(t) {
		t.Run(r.kills, func(t *testing.T) {
			require.Contains(t, seen, r.kills, "a new runbook needs a rehearsal")
			l := l.of(t)
			// On a busy machine a PoP may spill for a moment, which lasts if its region is no longer known.
			eventually(t, func() bool { return strings.Contains(l.dig("198.51.100.7/32"), l.address(1, 11)) })
			l.shell(r.rehearse)
			seen[r.kills]()
			args := strings.Fields(strings.ReplaceAll(r.confirm, "REGION", "eu-west"))
			require.Equal(t, "regionctl", args[0])
			out, err := l.tryRegionctl(args[1:]...)
			require.Contains(t, out, "eu-west", "%s: %v", r.confirm, err)
			if r.drain != "" {
				l.drains(r.drain)
			}
			l.up(vars)
			if r.drain != "" {
				l.regionctl("undrain", "ams1", "--yes")
			}
			l.inOrder()
			delete(seen, r.kills)
		})
	}
	require.Empty(t, seen, "rehearsals without a runbook")

	t.Run("maintenance of a PoP, and upgrading its edges", func(t *testing.T) {
		l := l.of(t)
		before := l.pids()
		l.regionctl("drain", "ams1", "--message", "kernel update, CHG-77", "--yes", "--ttl", "2s")
		require.Equal(t, l.address(2, 11), l.dig("198.51.100.7/32"))
		l.shell(`terraform/lab/scripts/restart.sh 'eu-west/edge-ams1-*'`)
		l.regionctl("undrain", "ams1", "--yes")
		eventually(t, func() bool { return strings.Contains(l.dig("198.51.100.7/32"), l.address(1, 11)) })
		require.NotEqual(t, before["eu-west/edge-ams1-1"], l.pids()["eu-west/edge-ams1-1"])
		eventually(t, func() bool { return !strings.Contains(l.regionctl("status"), "failing") }) // Consul checks every few seconds
		l.inOrder()
	})
	t.Run("a router does not answer, and does again", func(t *testing.T) {
		l := l.of(t)
		l.shell("terraform/lab/scripts/signal.sh STOP global/dns")
		out, err := exec.Command("dig", "@"+l.address(0, 53), "-p", "5300", "edge.lab.test", "+tries=1", "+time=1").CombinedOutput()
		require.Error(t, err, "%s", out)
		l.shell("terraform/lab/scripts/signal.sh CONT global/dns")
		l.inOrder()
	})
}

// Twelve regions fit on one machine, and all of them work once make lab returns.
func TestTwelveRegions(t *testing.T) {
	l := newLab(t)
	out := l.up("twelve.tfvars")
	t.Log(out[strings.LastIndex(out, "up after "):])
	l.inOrder()
	status := l.regionctl("status")
	require.Contains(t, status, "12 regions, 18 of 18 PoPs serving, 36 of 36 edges passing")
	m := regexp.MustCompile(`133 of 133 run, (\d+) MB`).FindStringSubmatch(l.script("status.sh"))
	require.NotNil(t, m)
	megabytes, err := strconv.Atoi(m[1])
	require.NoError(t, err)
	require.Less(t, megabytes, 16<<10)
}

// of is the same lab for a part of the test.
func (l *lab) of(t *testing.T) *lab {
	part := *l
	part.t = t
	return &part
}

// shell runs a command of a document, from the root.
func (l *lab) shell(command string) {
	l.t.Helper()
	cmd := exec.Command("sh", "-c", command)
	cmd.Dir, cmd.Env = filepath.Join("..", ".."), l.env
	out, err := cmd.CombinedOutput()
	require.NoError(l.t, err, "%s: %s", command, out)
}

// drains runs a runbook's command, which moves the clients of ams1 away. A region that is lost cannot
// be written, which is status 3.
func (l *lab) drains(command string) {
	l.t.Helper()
	regionctl := fmt.Sprintf("%s --fleet %s", filepath.Join(built.dir, "regionctl"), filepath.Join(l.dir, "fleet.yaml"))
	command = strings.NewReplacer("regionctl", regionctl, "POP", "ams1", " --wait 0", "").Replace(command) + " --yes --ttl 2s --wait 10s"
	out, err := exec.Command("sh", "-c", command).CombinedOutput()
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != 3 {
		require.NoError(l.t, err, "%s: %s", command, out)
	}
	l.shows("ams1 is drained by")
	eventually(l.t, func() bool { return l.dig("198.51.100.7/32") == l.address(2, 11) })
}

// shows waits until regionctl status shows all of these.
func (l *lab) shows(patterns ...string) {
	l.t.Helper()
	for _, pattern := range patterns {
		looks := regexp.MustCompile(pattern)
		var out string
		for end := time.Now().Add(testenv.Patience); !looks.MatchString(out) && time.Now().Before(end); {
			out, _ = l.tryRegionctl("status")
		}
		require.Regexp(l.t, looks, out)
	}
}

// tryRegionctl returns what regionctl prints, also if it fails.
func (l *lab) tryRegionctl(args ...string) (string, error) {
	out, err := exec.Command(filepath.Join(built.dir, "regionctl"), append([]string{"--fleet", filepath.Join(l.dir, "fleet.yaml")}, args...)...).CombinedOutput()
	return string(out), err
}

func (l *lab) routerSays(path string) string {
	return get(l.t, fmt.Sprintf("http://%s:9153%s", l.address(0, 53), path))
}

// inOrder requires what make lab promises when it returns: status shows every edge
// passing and every PoP serving, and the router answers what dns explain says, with each
// client's own PoP.
func (l *lab) inOrder() {
	l.t.Helper()
	status := l.regionctl("status")
	require.NotRegexp(l.t, `(?m)failing|down|not known|drained|serving, \d+ of \d+ *$`, status)
	for client, edge := range map[string]string{"198.51.100.7": l.address(1, 11), "203.0.113.7": l.address(2, 11)} {
		var explained string
		// A busy machine may have its PoPs spill for a moment, which explain, who has just looked, sees first.
		eventually(l.t, func() bool {
			answer := strings.Fields(l.dig(client + "/32"))
			explained = l.regionctl("dns", "explain", "--client", client)
			return slices.Contains(answer, edge) && !slices.ContainsFunc(answer, func(address string) bool { return !strings.Contains(explained, address) })
		})
		l.t.Log(explained)
	}
}
