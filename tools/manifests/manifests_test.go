// Package manifests checks the Kubernetes manifests in deploy against the API's own types.
package manifests

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"github.com/weir-edge/weir/internal/testenv"
)

const folder = "../../deploy/kubernetes"

// manifest is what one file declares.
type manifest struct {
	config     *core.ConfigMap
	deployment *apps.Deployment
	service    *core.Service
	budget     *policy.PodDisruptionBudget
}

// load decodes a file. Unknown and duplicate fields are faults.
func load(t *testing.T, name string) *manifest {
	data, err := os.ReadFile(filepath.Join(folder, name))
	require.NoError(t, err)
	m := &manifest{}
	for _, document := range strings.Split(string(data), "\n---\n") {
		var kind meta.TypeMeta
		require.NoError(t, yaml.Unmarshal([]byte(document), &kind))
		var into any
		switch kind.APIVersion + " " + kind.Kind {
		case "v1 ConfigMap":
			m.config = &core.ConfigMap{}
			into = m.config
		case "apps/v1 Deployment":
			m.deployment = &apps.Deployment{}
			into = m.deployment
		case "v1 Service":
			m.service = &core.Service{}
			into = m.service
		case "policy/v1 PodDisruptionBudget":
			m.budget = &policy.PodDisruptionBudget{}
			into = m.budget
		default:
			require.Fail(t, "unexpected kind", "%s: %+v", name, kind)
		}
		require.NoError(t, yaml.UnmarshalStrict([]byte(document), into), name)
	}
	return m
}

func TestManifests(t *testing.T) {
	for _, name := range []string{"edge.yaml", "dns.yaml"} {
		t.Run(name, func(t *testing.T) {
			m := load(t, name)
			pod := m.deployment.Spec.Template
			selects := func(s *meta.LabelSelector) {
				selector, err := meta.LabelSelectorAsSelector(s)
				require.NoError(t, err)
				require.True(t, selector.Matches(labels.Set(pod.Labels)), "%s selects the pods", selector)
			}
			selects(m.deployment.Spec.Selector)
			selects(m.budget.Spec.Selector)
			require.True(t, labels.SelectorFromSet(m.service.Spec.Selector).Matches(labels.Set(pod.Labels)))
			require.Less(t, m.budget.Spec.MaxUnavailable.IntValue(), int(*m.deployment.Spec.Replicas))

			ports, volumes := map[string]int32{}, map[string]bool{}
			for _, v := range pod.Spec.Volumes {
				volumes[v.Name] = true
			}
			for _, c := range append(pod.Spec.InitContainers, pod.Spec.Containers...) {
				require.Regexp(t, `:v?\d+\.\d+\.\d+$`, c.Image, "pinned")
				require.True(t, *c.SecurityContext.ReadOnlyRootFilesystem)
				require.False(t, *c.SecurityContext.AllowPrivilegeEscalation)
				require.NotZero(t, c.Resources.Limits.Memory().Value(), c.Name)
				for _, v := range c.VolumeMounts {
					require.True(t, volumes[v.Name], "%s mounts %s", c.Name, v.Name)
				}
				for _, p := range c.Ports {
					ports[p.Name] = p.ContainerPort
				}
			}
			// A rolling update adds a pod first, also where each machine already has one.
			require.Nil(t, pod.Spec.Affinity)
			for _, c := range pod.Spec.TopologySpreadConstraints {
				if c.WhenUnsatisfiable == core.DoNotSchedule {
					require.Contains(t, c.MatchLabelKeys, "pod-template-hash")
				}
			}
			main := pod.Spec.Containers[0]
			for _, probe := range []*core.Probe{main.LivenessProbe, main.ReadinessProbe} {
				require.Contains(t, ports, probe.HTTPGet.Port.StrVal)
				require.Contains(t, []string{"/healthz", "/readyz"}, probe.HTTPGet.Path)
			}
			for _, p := range m.service.Spec.Ports {
				require.Contains(t, ports, p.TargetPort.StrVal)
			}
			if m.config != nil && strings.Contains(m.config.Data["edge.yaml"], "admin_token_file:") {
				require.Empty(t, pod.Annotations, "a scrape by annotation has no token, and gets 401")
				return
			}
			scraped, err := strconv.Atoi(pod.Annotations["prometheus.io/port"])
			require.NoError(t, err)
			require.Contains(t, slices.Collect(maps.Values(ports)), int32(scraped))
		})
	}
}

// The first container's command writes a configuration that edge accepts.
func TestEdgeConfiguration(t *testing.T) {
	m := load(t, "edge.yaml")
	dir := t.TempDir()
	template := filepath.Join(dir, "template.yaml")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "token"), []byte("secret\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "shedder"), []byte("the secret of the shedder\n"), 0o600))
	text := strings.NewReplacer("/etc/weir-admin", dir, "/var/lib/weir", dir).Replace(m.config.Data["edge.yaml"])
	require.NoError(t, os.WriteFile(template, []byte(text), 0o600))

	words := m.deployment.Spec.Template.Spec.InitContainers[0].Command
	for i := range words {
		words[i] = strings.NewReplacer("$(POD_IP)", "127.0.0.1", "$(NODE_IP)", "127.0.0.2", "/etc/weir-template/edge.yaml", template, "/etc/weir/", dir+"/").Replace(words[i])
	}
	out, err := exec.Command(words[0], words[1:]...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	written, err := os.ReadFile(filepath.Join(dir, "edge.yaml"))
	require.NoError(t, err)
	require.NotContains(t, string(written), "_IP")
	out, err = exec.Command(testenv.Program(t, "edge"), "-check", "-config", filepath.Join(dir, "edge.yaml")).CombinedOutput()
	require.NoError(t, err, "%s", out)

	shutdown := regexp.MustCompile(`shutdown: \{delay: (\d+)s, timeout: (\d+)s\}`).FindStringSubmatch(text)
	require.NotNil(t, shutdown)
	require.GreaterOrEqual(t, *m.deployment.Spec.Template.Spec.TerminationGracePeriodSeconds, int64(60), "longer than %s and %s", shutdown[1], shutdown[2])
}

// regionctl knows the flags of the router's command. A Service hides the router's address from it, so
// the command states it; and the metrics are at the port that the pages name, the default one.
func TestRouterCommand(t *testing.T) {
	router := load(t, "dns.yaml").deployment.Spec.Template.Spec.Containers[0]
	words := append(slices.Clone(router.Command), router.Args...)
	require.Equal(t, "/usr/local/bin/regionctl", words[0])
	require.Contains(t, words, "--ns")
	help, err := exec.Command(testenv.Program(t, "regionctl"), append(words[1:], "--help")...).CombinedOutput()
	require.NoError(t, err, "%s", help)
	metrics := regexp.MustCompile(`(?m)^ +--metrics .*default "127\.0\.0\.1:(\d+)"`).FindSubmatch(help)
	require.NotNil(t, metrics, "%s", help)
	require.Contains(t, words, "0.0.0.0:"+string(metrics[1]))
}
