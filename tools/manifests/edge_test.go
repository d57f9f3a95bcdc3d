package manifests

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/weir-edge/weir/internal/testenv"
)

// cluster is what a cluster has besides the chart's objects, and files for its pods.
type cluster struct {
	dir     string
	secrets map[string]map[string]string
	maps    map[string]map[string]string
}

func newCluster(t *testing.T, list objects) *cluster {
	t.Helper()
	pem := func(f testenv.TLSFiles) map[string]string {
		return map[string]string{"tls.crt": text(t, f.CertFile), "tls.key": text(t, f.KeyFile), "ca.crt": text(t, f.CAFile)}
	}
	pair := pem(testenv.Certificates(t))
	c := &cluster{dir: t.TempDir(), maps: map[string]map[string]string{
		"shop-rules": {"rules.yaml": "rules: []\n", "policy.yaml": "mode: shadow\n"},
		"edge-rules": {"rules.yaml": "rules: []\n"},
	}, secrets: map[string]map[string]string{
		"weir-admin": {"token": "secret\n", "shedder": "the secret of the shedder\n"},
		"weir-peer":  pem(testenv.NewAuthority(t).Issue(time.Hour, "spiffe://weir/eu-west")),
		"weir-tls":   pair, "weir-admin-tls": pair, "weir-rls": pair, "weir-spoe": pair, "redis-ca": pair, "consul-ca": pair,
		"redis":       {"password": "secret", "redis-password": "secret", "sentinel-password": "secret"},
		"weir-consul": {"token": "secret"},
		"log-key":     {"key": "0123456789abcdef"},
	}}
	c.secrets["1e3"], c.maps["1e3"] = map[string]string{"1": "secret"}, c.maps["edge-rules"]
	maps.Copy(c.secrets["1e3"], pair)
	maps.Copy(c.secrets["1e3"], c.secrets["weir-admin"])
	for _, o := range list {
		if m, is := o.(*core.ConfigMap); is {
			c.maps[m.Name] = m.Data
		}
	}
	return c
}

func text(t testing.TB, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	return string(data)
}

// inside replaces the folders of a container by those below c.dir.
func (c *cluster) inside(s string) string {
	return strings.NewReplacer("/etc/weir", c.dir+"/etc/weir", "/var/lib/weir", c.dir+"/var/lib/weir").Replace(s)
}

// mount writes what a container's volumes hold.
func (c *cluster) mount(t *testing.T, pod *core.PodSpec, container *core.Container) {
	t.Helper()
	volumes := map[string]core.Volume{}
	for _, v := range pod.Volumes {
		volumes[v.Name] = v
	}
	for _, m := range container.VolumeMounts {
		files := map[string]string{}
		switch v := volumes[m.Name]; {
		case v.ConfigMap != nil:
			require.Contains(t, c.maps, v.ConfigMap.Name)
			for name, data := range c.maps[v.ConfigMap.Name] {
				files[name] = c.inside(data)
			}
		case v.Projected != nil:
			for _, source := range v.Projected.Sources {
				secret := c.secrets[source.Secret.Name]
				for _, item := range source.Secret.Items {
					require.Contains(t, secret, item.Key, source.Secret.Name)
					require.NotContains(t, files, item.Path)
					files[item.Path] = secret[item.Key]
				}
			}
		}
		folder := c.inside(m.MountPath)
		require.NoError(t, os.MkdirAll(folder, 0o700))
		for name, data := range files {
			file := filepath.Join(folder, name)
			require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
			require.NoError(t, os.WriteFile(file, []byte(data), 0o600))
		}
	}
}

// checkEdge runs edge -check on the configuration that the pods of the PoP see, in clusters of IPv4 and of IPv6.
func checkEdge(t *testing.T, list objects) {
	checkEdgeAt(t, list, "127.0.0.1", "127.0.0.2")
	if find[apps.Deployment](list, "weir-edge").Spec.Template.Spec.InitContainers != nil { // otherwise it has no address
		checkEdgeAt(t, list, "::1", "fd00::2")
	}
}

func checkEdgeAt(t *testing.T, list objects, pod, node string) {
	d := find[apps.Deployment](list, "weir-edge")
	require.NotNil(t, d)
	spec := &d.Spec.Template.Spec
	c := newCluster(t, list)
	for _, init := range spec.InitContainers {
		c.mount(t, spec, &init)
		words := slices.Concat(init.Command, init.Args)
		for i := range words {
			words[i] = c.inside(words[i])
		}
		cmd := exec.Command(words[0], words[1:]...)
		cmd.Env = append(os.Environ(), "POD_IP="+pod, "NODE_IP="+node)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	edge := &spec.Containers[0]
	c.mount(t, spec, edge)
	file := c.inside("/etc/weir/edge.yaml")
	written := text(t, file)
	require.NotContains(t, written, "_IP")
	require.NotContains(t, written, "0.0.0.0:", "every address, also of IPv6")
	out, err := exec.Command(testenv.Program(t, "edge"), "-check", "-config", file).CombinedOutput()
	require.NoError(t, err, "%s%s", written, out)
	require.NotContains(t, string(out), "store.nodes")

	var config struct {
		Shutdown struct{ Delay, Timeout string }
	}
	require.NoError(t, yaml.Unmarshal([]byte(written), &config))
	delay, err := time.ParseDuration(config.Shutdown.Delay)
	require.NoError(t, err)
	timeout, err := time.ParseDuration(config.Shutdown.Timeout)
	require.NoError(t, err)
	var pause time.Duration
	if edge.Lifecycle != nil {
		pause = time.Duration(edge.Lifecycle.PreStop.Sleep.Seconds) * time.Second
	}
	require.Greater(t, time.Duration(*spec.TerminationGracePeriodSeconds)*time.Second, pause+delay+timeout)
}

// regionctl knows the flags of the router's command. A Service hides the router's address from it, so
// the command states it; and the metrics are at the port that the pages name, the default one.
func TestRouterCommand(t *testing.T) {
	router := find[apps.Deployment](render(t, values(t, "routers.yaml")), "weir-dns").Spec.Template.Spec.Containers[0]
	words := slices.Concat(router.Command, router.Args)
	require.Equal(t, "/usr/local/bin/regionctl", words[0])
	require.Contains(t, words, "--ns=ns1=192.0.2.53")
	help, err := exec.Command(testenv.Program(t, "regionctl"), append(words[1:], "--help")...).CombinedOutput()
	require.NoError(t, err, "%s", help)
	metrics := regexp.MustCompile(`(?m)^ +--metrics .*default "127\.0\.0\.1:(\d+)"`).FindSubmatch(help)
	require.NotNil(t, metrics, "%s", help)
	require.Contains(t, words, ":"+string(metrics[1]))
	require.Contains(t, words, "[$(POD_IP)]:5353", "as regionctl reads addresses of both families")
}

// helm test gets its 429 from a node with the chart's rules, and fails where no rule refuses.
func TestHelmTest(t *testing.T) {
	origin := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(origin.Close)
	redis := testenv.Redis(t, testenv.Options{})

	run := func(set map[string]any) (string, error) {
		v := values(t, "minimal.yaml")
		v["upstreams"] = []any{map[string]any{"url": origin.URL}}
		v["redis"] = map[string]any{"mode": "single", "addrs": []any{redis.Addr}}
		maps.Copy(v, set)
		list := render(t, v)
		pod := &find[apps.Deployment](list, "weir-edge").Spec.Template.Spec
		c := newCluster(t, list)
		c.mount(t, pod, &pod.Containers[0])
		var config map[string]any
		require.NoError(t, yaml.Unmarshal([]byte(text(t, c.inside("/etc/weir/edge.yaml"))), &config))
		delete(config, "listen")                           // the node gets free ports
		config["store"].(map[string]any)["timeout"] = "5s" // a late decision would count apart from the others
		rest, err := yaml.Marshal(config)
		require.NoError(t, err)
		node := testenv.StartEdge(t, string(rest))
		node.WaitReady()

		client := find[core.Pod](list, "weir-limited").Spec.Containers[0]
		require.Equal(t, "http://weir-edge/", client.Env[0].Value)
		bin := t.TempDir()
		busybox, err := exec.LookPath("busybox")
		require.NoError(t, err, "make deps")
		out, err := exec.Command(busybox, "--install", "-s", bin).CombinedOutput()
		require.NoError(t, err, "%s", out)
		words := slices.Concat(client.Command, client.Args)
		cmd := exec.Command(filepath.Join(bin, words[0]), words[1:]...)
		cmd.Env = []string{"PATH=" + bin, "URL=http://" + node.Public + "/"}
		out, err = cmd.CombinedOutput()
		return string(out), err
	}
	out, err := run(nil)
	require.NoError(t, err, out)
	require.Equal(t, "request 101 got 429\n", out)

	out, err = run(map[string]any{"rules": map[string]any{"document": "rules: []"}, "test": map[string]any{"requests": 3}})
	require.Error(t, err)
	require.Contains(t, out, "none of 3 requests got 429, the last one: ")
	require.Contains(t, out, "set test.requests above the limit of a rule")
}
