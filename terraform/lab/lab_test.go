package lab

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// grown is small.tfvars and a region that sorts first alphabetically but last by
// number.
const grown = `
regions = {
  asia    = { number = 3, edges_per_pop = 1, pops = [{ name = "bom1" }] }
  eu-west = { number = 1, edges_per_pop = 1, pops = [{ name = "ams1", location = { lat = 52.37, lon = 4.90 }, clients = ["198.51.100.0/24"] }] }
  us-east = { number = 2, edges_per_pop = 1, pops = [{ name = "iad1", location = { lat = 38.95, lon = -77.45 }, clients = ["203.0.113.0/24"] }] }
}
redis       = { masters = 3, replicas = 0 }
round_trips = []
`

// router is the process that answers DNS.
const router = "global/dns"

// dig queries the router as a client of this network.
func (l *lab) dig(subnet string) string {
	l.t.Helper()
	out, err := exec.Command("dig", "@"+l.address(0, 53), "-p", "5300", "edge.lab.test", "+subnet="+subnet, "+short").CombinedOutput()
	require.NoError(l.t, err, "%s", out)
	return strings.TrimSpace(string(out))
}

// sends waits until the router sends this client to that edge alone: on a busy machine a PoP may spill for a moment.
func (l *lab) sends(client, edge string) {
	l.t.Helper()
	eventually(l.t, func() bool { return l.dig(client+"/32") == edge })
}

// One lab goes through its whole life: each step begins with what the previous one
// left.
func TestLife(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	out := l.up("small.tfvars")
	require.Contains(t, out, "eu-west redis 3: up")
	require.Contains(t, out, "curl -i http://"+l.address(1, 11)+":8080/hello")
	first := l.pids()
	require.Len(t, first, 15)

	t.Run("every edge answers from its own region", func(t *testing.T) {
		require.Equal(t, "hello from eu-west: GET /a?b=c\n", get(t, "http://"+l.address(1, 11)+":8080/a?b=c"))
		require.Equal(t, "hello from us-east: GET /\n", get(t, "http://"+l.address(2, 11)+":8080/"))
	})
	t.Run("rules and settings are published, and counted in the region's redis", func(t *testing.T) {
		l.regionctl("rules", "status")
		require.Contains(t, l.regionctl("shedder", "show", "--live"), "us-east-iad1-1")
		require.Contains(t, l.regionctl("limits", "explain", "--client", "203.0.113.7", "--path", "/"), "redis")
		require.Contains(t, l.regionctl("limits", "global"), "cart-everywhere", "the page Global limits has an example")
		require.Contains(t, l.regionctl("clients", "recent", "203.0.113.8"), "nothing since", "edges keep requests")
	})
	t.Run("edges, router and Consul run as their systemd units say", func(t *testing.T) {
		for name, unit := range map[string]string{
			"eu-west/edge-ams1-1": "../../deploy/systemd/weir-edge.service",
			router:                "../../deploy/systemd/weir-dns.service",
			"us-east/consul":      "../modules/region/files/weir-consul.service",
		} {
			l.requireUnit(name, unit, first[name])
		}
	})
	t.Run("the router sends clients to their region", func(t *testing.T) {
		l.sends("198.51.100.7", l.address(1, 11))
		l.sends("203.0.113.7", l.address(2, 11))
	})
	t.Run("twice changes nothing", func(t *testing.T) {
		require.NotContains(t, l.up("small.tfvars"), "[")
		require.Equal(t, first, l.pids())
	})
	t.Run("what was killed starts again where it was, and nothing else", func(t *testing.T) {
		killed := []string{"eu-west/redis-2", "eu-west/edge-ams1-1", "us-east/consul"}
		l.script("signal.sh", append([]string{"KILL"}, killed...)...)
		eventually(t, func() bool { return len(l.pids()) == len(first)-len(killed) })
		_, err := l.try("status.sh")
		require.Error(t, err)

		out := l.up("small.tfvars")
		now := l.pids()
		require.Len(t, now, len(first))
		for name, pid := range first {
			if !contains(killed, name) {
				require.Equal(t, pid, now[name], name)
				continue
			}
			require.NotEqual(t, pid, now[name], name)
			require.Contains(t, out, "starting "+name+" again\n")
		}
		l.regionctl("rules", "status")
		require.Equal(t, "hello from eu-west: GET /\n", get(t, "http://"+l.address(1, 11)+":8080/"))
		first = now
	})
	t.Run("a region comes with what the others have, and goes without a trace", func(t *testing.T) {
		l.regionctl("rules", "apply", l.write("rules.yaml", "rules: []\n"), "--yes")
		before := l.regionctl("rules", "history", "--region", "eu-west")

		l.up(l.write("grown.tfvars", grown))
		now := l.pids()
		require.Len(t, now, 21)
		for name, pid := range first {
			if name != router { // it reads the fleet once
				require.Equal(t, pid, now[name], name)
			}
		}
		require.Equal(t, "rules: []\n", l.regionctl("rules", "show"), "of all regions")
		require.Contains(t, l.regionctl("rules", "status"), "asia-bom1-1")
		require.Equal(t, before, l.regionctl("rules", "history", "--region", "eu-west"), "nothing was published where something was")
		require.Equal(t, "hello from asia: GET /\n", get(t, "http://"+l.address(3, 11)+":8080/"))
		require.Less(t, strings.Index(l.read("fleet.yaml"), "us-east"), strings.Index(l.read("fleet.yaml"), "asia"), "by number")
		require.Contains(t, l.read("topology.yaml"), l.address(3, 11))
		l.await(time.Now(), "all of it is scraped", `count(up{region="asia"} == 1) == 1 + 1 + 3`)

		l.up("small.tfvars")
		now = l.pids()
		require.Contains(t, now, router)
		first[router] = now[router]
		require.Equal(t, first, now)
		l.await(time.Now(), "none of it is scraped", `count(up) == 2 + 2 + 6 + 1`)
		require.NoDirExists(t, filepath.Join(l.dir, "asia"))
		require.NotContains(t, l.read("fleet.yaml")+l.read("topology.yaml"), "asia")
		l.regionctl("rules", "status")
	})
	t.Run("a process restarts for a new program", func(t *testing.T) {
		l.script("restart.sh", "us-east/edge-*")
		now := l.pids()
		require.NotEqual(t, first["us-east/edge-iad1-1"], now["us-east/edge-iad1-1"])
		require.Equal(t, first["eu-west/edge-ams1-1"], now["eu-west/edge-ams1-1"])
	})
	t.Run("down leaves nothing, also of what has lost its pid file", func(t *testing.T) {
		require.NoError(t, os.Remove(filepath.Join(l.dir, "eu-west/redis-1/pid")))
		require.NoError(t, os.RemoveAll(filepath.Join(l.dir, "us-east")))
		l.script("down.sh")
		l.requireGone()
		l.script("down.sh") // of a missing lab
	})
}

// Whatever is interrupted at whatever moment, down finds all of it, and up continues.
func TestKilledApply(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	for _, until := range []string{"eu-west/origin/pid", "eu-west/edge-ams1-1/command"} {
		up := l.start("up.sh", l.file("small.tfvars"))
		eventually(t, func() bool {
			_, err := os.Stat(filepath.Join(l.dir, until))
			return err == nil
		})
		l.killTerraform()
		require.Error(t, up.Wait())
		l.script("down.sh")
		l.requireGone()
	}

	// Not only Terraform: all of make lab, and then again without down.
	up := l.start("up.sh", l.file("small.tfvars"))
	eventually(t, func() bool { return len(l.pids()) > 3 })
	require.NoError(t, syscall.Kill(-up.Process.Pid, syscall.SIGKILL))
	require.Error(t, up.Wait())
	l.up("small.tfvars")
	require.Len(t, l.pids(), 15)

	// While one is running.
	up = l.start("up.sh", l.write("grown.tfvars", grown))
	eventually(t, func() bool { return len(l.pids()) > 15 })
	l.script("down.sh")
	require.Error(t, up.Wait())
	l.requireGone()
}

func TestFailedApply(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	release := l.occupy(l.address(2, 2) + ":9000")
	out, err := l.try("up.sh", l.file("small.tfvars"))
	require.Error(t, err)
	require.Contains(t, out, "us-east/origin not started: something that is not of this lab answers in its place already")
	require.Contains(t, out, "or make lab-down")

	release()
	l.up("small.tfvars")
	require.Len(t, l.pids(), 15)

	// A program that fails to start, in a region that is then removed.
	release = l.listen(l.address(3, 1) + ":8300")
	out, err = l.try("up.sh", l.write("grown.tfvars", grown))
	require.Error(t, err)
	require.Contains(t, out, "asia/consul has ended")
	require.Contains(t, out, "address already in use")
	release()
	l.up("small.tfvars")
	require.Len(t, l.pids(), 15)
	require.NoDirExists(t, filepath.Join(l.dir, "asia"))

	l.script("down.sh")
	l.requireGone()
}

// A cluster that lost or gained a node is repaired, not recreated. This needs no
// Prometheus.
func TestRedis(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.hide("prometheus", "prometheus-redis-exporter")
	size := func(redis string) string {
		return l.write("redis.tfvars", `
			prometheus = false
			regions = { eu-west = { number = 1, edges_per_pop = 1, pops = [{ name = "ams1" }] } }
			redis   = `+redis)
	}
	l.up(size(`{ replicas = 0 }`))
	require.Equal(t, "master master master", l.roles())
	l.up(size(`{ replicas = 1 }`))
	require.Equal(t, "master master master slave slave slave", l.roles())

	l.script("signal.sh", "KILL", "eu-west/redis-1")
	eventually(t, func() bool { return l.role(4) == "master" })
	l.up(size(`{ replicas = 1 }`))
	require.Equal(t, "slave master master master slave slave", l.roles())

	// A node that lost its disk comes back under another name.
	l.script("signal.sh", "KILL", "eu-west/redis-2")
	eventually(t, func() bool { return l.role(5) == "master" })
	require.NoError(t, os.Remove(filepath.Join(l.dir, "eu-west/redis-2/nodes.conf")))
	l.up(size(`{ replicas = 1 }`))
	require.Equal(t, "slave slave master master master slave", l.roles())

	// Removed masters leave their slots to their replicas.
	l.up(size(`{ replicas = 0 }`))
	require.Equal(t, "master master master", l.roles())
	require.NoDirExists(t, filepath.Join(l.dir, "eu-west/redis-4"))
	require.Equal(t, "hello from eu-west: GET /\n", get(t, "http://"+l.address(1, 11)+":8080/"))

	out, err := l.try("up.sh", size(`{ masters = 4, replicas = 0 }`))
	require.Error(t, err)
	require.Contains(t, out, "redis.masters cannot change from 3 to 4")
}

// A pid file proves nothing: by now the number may belong to another process.
func TestForeignProcessesAreSpared(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	folder := filepath.Join(l.dir, "eu-west", "origin")
	require.NoError(t, os.MkdirAll(folder, 0o700))
	require.NoError(t, os.MkdirAll(filepath.Join(l.dir, "scripts"), 0o700))
	l.write("eu-west/origin/log", "")
	l.write("eu-west/origin/command", "origin\n-listen\n127.0.0.1:9000\n")
	l.write("eu-west/origin/ready", "true\n")
	reader := l.foreign("tail", "-f", filepath.Join(folder, "log"))
	l.write("eu-west/origin/pid", reader.pid())
	l.write("scripts/"+reader.pid(), reader.pid())

	_, err := l.try("status.sh")
	require.Error(t, err, "it is dead")
	l.script("signal.sh", "KILL", "*")
	l.script("stop.sh", "eu-west/origin")
	l.script("remove.sh", "eu-west")
	l.script("down.sh")
	require.True(t, reader.lives())
	l.requireGone()
}

func TestVariablesAreChecked(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	f := func(vars, want string) {
		t.Helper()
		out, err := l.plan(l.write("bad.tfvars", vars))
		require.Error(t, err)
		require.Contains(t, strings.Join(strings.Fields(out), " "), want)
	}
	pops := `pops = [{ name = "ams1" }]`
	f(`regions = {}`, "Name at least one region")
	f(`regions = { Eu = { number = 1, `+pops+` } }`, "lower-case letters, digits and hyphens")
	f(`regions = { global = { number = 1, `+pops+` } }`, "is not global")
	f(`regions = { eu = { number = 251, `+pops+` } }`, "from 1 to 250")
	f(`regions = { eu = { number = 1.5, `+pops+` } }`, "from 1 to 250")
	f(`regions = { eu = { number = 1, `+pops+` }, us = { number = 1, pops = [{ name = "iad1" }] } }`, "Two regions have the same number")
	f(`regions = { eu = { number = 1, `+pops+` }, us = { number = 2, `+pops+` } }`, "Two PoPs have the same name")
	f(`regions = { eu = { number = 1, edges_per_pop = 10, `+pops+` } }`, "from 1 to 9")
	f(`regions = { eu = { number = 1, pops = [] } }`, "1 to 8 PoPs")
	f(`regions = { eu = { number = 1, pops = [{ name = "a b" }] } }`, "The name of a PoP")
	f(`redis = { masters = 2 }`, "needs 3 masters")
	f(`redis = { replicas = 4 }`, "0 to 3 replicas")
	f(`network = "10.0"`, "loopback")
	f(`round_trips = [{ between = ["eu", "eu"], ms = 1 }]`, "between two regions")
	f(`round_trips = [{ between = ["eu", "us"], ms = 1 }, { between = ["us", "eu"], ms = 2 }]`, "between the same regions")
	f(`zone = "Edge."`, "in lower case")
}
