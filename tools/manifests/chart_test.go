// Package manifests checks the chart and compose.yaml of deploy, and what docs/KUBERNETES.md shows.
package manifests

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/stretchr/testify/require"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	"helm.sh/helm/v3/pkg/strvals"
	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"github.com/weir-edge/weir/internal/edge/config"
)

func typeName(o meta.Object) string { return fmt.Sprintf("%T", o) }

// Every set of values passes helm lint, makes objects that fit together, and a configuration that edge accepts.
func TestChart(t *testing.T) {
	files, err := filepath.Glob("testdata/values/*.yaml")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(files), 10)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			v := read(t, file)
			linter := lint.All(chartFolder, v, "weir", true)
			for _, m := range linter.Messages {
				require.Less(t, m.Severity, support.WarningSev, m)
			}
			list := render(t, v)
			for _, o := range list {
				fits(t, list, o)
			}
			checkEdge(t, list)
		})
	}
}

// fits checks what refers to other objects.
func fits(t *testing.T, list objects, o meta.Object) {
	selects := func(s *meta.LabelSelector) *core.PodSpec {
		selector, err := meta.LabelSelectorAsSelector(s)
		require.NoError(t, err)
		for _, other := range list {
			switch other := other.(type) {
			case *apps.Deployment:
				if selector.Matches(labels.Set(other.Spec.Template.Labels)) {
					return &other.Spec.Template.Spec
				}
			case *core.Pod:
				if selector.Matches(labels.Set(other.Labels)) {
					return &other.Spec
				}
			}
		}
		require.Fail(t, "no pods", "%s %s selects %s", typeName(o), o.GetName(), selector)
		return nil
	}
	switch o := o.(type) {
	case *core.Pod:
		restricted(t, &o.Spec)
		if p := find[networking.NetworkPolicy](list, "weir-edge"); p != nil {
			clients := p.Spec.Ingress[0].From
			require.True(t, clients == nil || slices.ContainsFunc(clients, func(from networking.NetworkPolicyPeer) bool {
				return from.PodSelector != nil && selects(from.PodSelector) == &o.Spec
			}), "helm test does not reach the nodes: %v", clients)
		}
	case *apps.Deployment:
		pod := selects(o.Spec.Selector)
		restricted(t, pod)
		require.Same(t, &o.Spec.Template.Spec, pod)
		for _, c := range pod.TopologySpreadConstraints {
			// A rolling update adds a pod first, also where each machine already has one.
			require.Equal(t, []string{"pod-template-hash"}, c.MatchLabelKeys)
			selects(c.LabelSelector)
		}
	case *core.Service:
		ports := portNames(selects(&meta.LabelSelector{MatchLabels: o.Spec.Selector}))
		for _, p := range o.Spec.Ports {
			require.Contains(t, ports, p.TargetPort.StrVal)
		}
	case *policy.PodDisruptionBudget:
		selects(o.Spec.Selector)
	case *networking.NetworkPolicy:
		var admits []string
		for _, rule := range o.Spec.Ingress {
			for _, p := range rule.Ports {
				admits = append(admits, p.Port.StrVal)
			}
			for _, from := range rule.From {
				if from.PodSelector != nil {
					selects(from.PodSelector)
				}
			}
		}
		require.ElementsMatch(t, portNames(selects(&o.Spec.PodSelector)), admits)
	case *autoscaling.HorizontalPodAutoscaler:
		scaled := find[apps.Deployment](list, o.Spec.ScaleTargetRef.Name)
		require.NotNil(t, scaled)
		require.Nil(t, scaled.Spec.Replicas, "an upgrade must not undo the autoscaler")
	case *monitoring.PodMonitor:
		ports := portNames(selects(&o.Spec.Selector))
		for _, e := range o.Spec.PodMetricsEndpoints {
			require.Contains(t, ports, *e.Port)
		}
	}
}

func portNames(pod *core.PodSpec) (names []string) {
	for _, c := range pod.Containers {
		for _, p := range c.Ports {
			names = append(names, p.Name)
		}
	}
	return names
}

// restricted is the Pod Security Standard of that name, and more: a read-only root, bounded memory, no token.
func restricted(t *testing.T, pod *core.PodSpec) {
	require.False(t, *pod.AutomountServiceAccountToken)
	require.True(t, *pod.SecurityContext.RunAsNonRoot)
	require.NotZero(t, *pod.SecurityContext.RunAsUser)
	require.Equal(t, core.SeccompProfileTypeRuntimeDefault, pod.SecurityContext.SeccompProfile.Type)
	require.False(t, pod.HostNetwork || pod.HostPID || pod.HostIPC)
	volumes := map[string]bool{}
	for _, v := range pod.Volumes {
		volumes[v.Name] = true
		if v.Projected != nil {
			require.EqualValues(t, 0o440, *v.Projected.DefaultMode)
		}
		require.True(t, v.ConfigMap != nil || v.Secret != nil || v.Projected != nil || v.EmptyDir != nil, v.Name)
	}
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		require.Regexp(t, `(:(v?\d+\.\d+[.\w-]*|VERSION|dev)|@sha256:[0-9a-f]{64})$`, c.Image, "pinned")
		require.True(t, *c.SecurityContext.ReadOnlyRootFilesystem)
		require.False(t, *c.SecurityContext.AllowPrivilegeEscalation)
		require.Equal(t, []core.Capability{"ALL"}, c.SecurityContext.Capabilities.Drop)
		require.NotZero(t, c.Resources.Limits.Memory().Value(), c.Name)
		for _, v := range c.VolumeMounts {
			require.True(t, volumes[v.Name], "%s mounts %s", c.Name, v.Name)
		}
		ports := portNames(pod)
		for _, probe := range []*core.Probe{c.StartupProbe, c.LivenessProbe, c.ReadinessProbe} {
			if probe != nil && probe.HTTPGet != nil {
				require.Contains(t, ports, probe.HTTPGet.Port.StrVal)
				require.Contains(t, []string{"/healthz", "/readyz"}, probe.HTTPGet.Path)
			}
		}
	}
}

// What cannot work is refused by its name, before anything changes.
func TestChartRefuses(t *testing.T) {
	for set, want := range map[string]string{
		"image.repository=":                                  "'/image/repository': minLength",
		"upstreams=null":                                     "missing property 'upstreams'",
		"upstreams[0].url=origin:80":                         "'/upstreams/0/url'",
		"replica=3":                                          "additional properties 'replica' not allowed",
		"redis.adrs[0]=redis:6379":                           "'/redis': additional properties 'adrs' not allowed",
		"redis.addrs[0]=redis":                               "'/redis/addrs/0'",
		"redis.addrs=null":                                   "'/redis'",
		"redis.trial=true":                                   "'/redis/addrs': maxItems",
		"redis.mode=sentinel":                                "'/redis/masterName': minLength",
		"redis.masterName=weir":                              "'/redis/masterName': maxLength",
		"rules.source=file":                                  "'/rules/source': value must be one of 'configmap', 'consul'",
		"rules.source=consul":                                "'/node/region': minLength",
		"rules.source=consul,node.region=eu-west":            "'/node/pop': minLength",
		"node.region=EU":                                     "'/node/region'",
		"config.shutdown.delay=1s":                           "'/config': additional properties 'shutdown' not allowed",
		"gateways.rls.enabled=true":                          "'/gateways/rls/from': minItems",
		"gateways.spoe.authorization=true":                   "'/gateways/spoe/authorization'",
		"routers.enabled=true":                               "'/routers/nameServers': minItems",
		"replicas=0":                                         "'/replicas': minimum",
		"resources.memoryMiB=1Gi":                            "'/resources/memoryMiB': got string, want integer",
		"monitoring.jobs.edge=a\"b":                          "'/monitoring/jobs/edge'",
		"autoscaling.metric=memory":                          "'/autoscaling/metric'",
		"service.type=ExternalName":                          "'/service/type'",
		"peer.tlsSecret=weir-peer":                           "'/rules/source': value must be 'consul'",
		"config.listen.peer.address=:8444":                   "'/config/listen/peer'",
		"resources.cpu=1.5m":                                 "'/resources/cpu'",
		"config.listen.public=:80":                           "'/config/listen/public'",
		"config.listen.decide.address=:80":                   "'/config/listen/decide/address'",
		"rules.configMap=shop-rules,policy.document=x":       "'/policy/document': maxLength",
		"redis.caSecret.name=redis-ca":                       "'/redis/caSecret/name': maxLength",
		"rules.configMap=weir-rules":                         "rules.configMap: weir-rules is the chart's ConfigMap, which Helm deletes in an upgrade to your own; rename yours",
		"shutdown.preStop=41":                                "shutdown.preStop: 41 is longer than shutdown.delay, 40; lower it",
		"autoscaling.enabled=true,autoscaling.maxReplicas=2": "autoscaling.maxReplicas: 2 is below autoscaling.minReplicas, 3; raise it",
	} {
		v := values(t, "minimal.yaml")
		require.NoError(t, strvals.ParseInto(set, v))
		_, err := manifests(v)
		require.ErrorContains(t, err, want, set)
	}
}

// The values can hold every field of a node's configuration that no other value has.
func TestChartKnowsTheConfiguration(t *testing.T) {
	text, err := os.ReadFile(chartFolder + "/values.schema.json")
	require.NoError(t, err)
	var schema struct {
		Properties struct {
			Config struct{ Properties map[string]any }
		}
	}
	require.NoError(t, json.Unmarshal(text, &schema))
	var known []string
	for name := range schema.Properties.Config.Properties {
		known = append(known, name)
	}
	known = append(known, "node", "upstreams", "shutdown")
	var want []string
	for _, f := range reflect.VisibleFields(reflect.TypeFor[config.Config]()) {
		if name, _, _ := strings.Cut(f.Tag.Get("yaml"), ","); name != "-" {
			want = append(want, name)
		}
	}
	require.ElementsMatch(t, want, known)
}

// New rules reach running nodes. A new configuration restarts them.
func TestChartRestartsNodes(t *testing.T) {
	pods := func(set string) core.PodTemplateSpec {
		v := values(t, "minimal.yaml")
		require.NoError(t, strvals.ParseInto(set, v))
		return find[apps.Deployment](render(t, v), "weir-edge").Spec.Template
	}
	before := pods("")
	require.Equal(t, before, pods("rules.document=rules: []"))
	require.NotEqual(t, before.Annotations, pods("config.legacy_headers=true").Annotations)
	require.NotEqual(t, before.Annotations, pods("replicas=4").Annotations, "store.nodes")
}

// By default a pod looks healthy for longer than the health checks on the page take, and serves until after them.
func TestChartOutlastsHealthChecks(t *testing.T) {
	list := render(t, values(t, "routers.yaml"))
	edge, router := find[apps.Deployment](list, "weir-edge").Spec.Template.Spec, find[apps.Deployment](list, "weir-dns").Spec.Template.Spec
	checks := regexp.MustCompile(`\b(\d+) s × (\d+) = (\d+) s\b`).FindAllStringSubmatch(text(t, page), -1)
	require.Len(t, checks, 3, "clouds")
	for _, m := range checks {
		var n [3]int64
		for i := range n {
			n[i], _ = strconv.ParseInt(m[1+i], 10, 64)
		}
		require.Equal(t, n[2], n[0]*n[1], m[0])
		require.GreaterOrEqual(t, edge.Containers[0].Lifecycle.PreStop.Sleep.Seconds, n[2])
		require.GreaterOrEqual(t, router.Containers[0].Lifecycle.PreStop.Sleep.Seconds, n[2])
	}
	require.Greater(t, *router.TerminationGracePeriodSeconds, router.Containers[0].Lifecycle.PreStop.Sleep.Seconds)
}

// The chart's rules are those of dashboards, and its targets have the labels that they use.
func TestChartMonitoring(t *testing.T) {
	list := render(t, values(t, "tls.yaml"))
	rule := find[monitoring.PrometheusRule](list, "weir")
	require.NotNil(t, rule)
	var want []any
	for _, name := range []string{"recording.yaml", "alerts.yaml"} {
		groups := read(t, filepath.Join("../../dashboards/rules", name))["groups"].([]any)
		require.NotEmpty(t, groups)
		want = append(want, groups...)
	}
	text, err := yaml.Marshal(rule.Spec.Groups)
	require.NoError(t, err)
	var got []any
	require.NoError(t, yaml.Unmarshal(text, &got))
	require.Equal(t, want, got)

	nodes := find[monitoring.PodMonitor](list, "weir-edge")
	require.Equal(t, "prometheus", nodes.Labels["release"])
	have := map[string]string{}
	for _, r := range nodes.Spec.PodMetricsEndpoints[0].RelabelConfigs {
		have[r.TargetLabel] = replacement(r)
	}
	require.Equal(t, map[string]string{"job": "weir-edge", "region": "eu-west", "pop": "ams1", "node": "__meta_kubernetes_pod_name"}, have)
}

// Other jobs' names are in the labels of targets, and in the rules that name jobs.
func TestChartJobs(t *testing.T) {
	v := values(t, "routers.yaml")
	require.NoError(t, strvals.ParseInto("monitoring.prometheusRule=true,monitoring.jobs.edge=edge,monitoring.jobs.dns=a/b,monitoring.jobs.lists=lists", v))
	list := render(t, v)
	var named []string
	for _, g := range find[monitoring.PrometheusRule](list, "weir").Spec.Groups {
		for _, r := range g.Rules {
			for _, m := range regexp.MustCompile(`\bjob="([^"]*)"`).FindAllStringSubmatch(r.Expr.String(), -1) {
				named = append(named, m[1])
			}
		}
	}
	require.Equal(t, []string{"edge", "a/b", "lists"}, named)
	for name, job := range map[string]string{"weir-edge": "edge", "weir-dns": "a/b"} {
		label := find[monitoring.PodMonitor](list, name).Spec.PodMetricsEndpoints[0].RelabelConfigs[0]
		require.Equal(t, []string{"job", job}, []string{label.TargetLabel, replacement(label)})
	}
}

// replacement is what a relabeling writes: a constant, or the value of its only label.
func replacement(r monitoring.RelabelConfig) string {
	if r.Replacement != nil {
		return *r.Replacement
	}
	return string(r.SourceLabels[0])
}

// Flux drops symbolic links from a Git repository.
func TestChartHasNoLinks(t *testing.T) {
	require.NoError(t, filepath.WalkDir(chartFolder, func(path string, d fs.DirEntry, err error) error {
		require.NoError(t, err)
		require.Zero(t, d.Type()&fs.ModeSymlink, "%s is a symbolic link", path)
		return nil
	}))
}

// A release sets both at packaging; the tree has no version that could be forgotten.
func TestChartVersion(t *testing.T) {
	c, err := chartOnce()
	require.NoError(t, err)
	require.Equal(t, "0.0.0-dev", c.Metadata.Version)
	require.Equal(t, "0.0.0-dev", c.Metadata.AppVersion)
	d := find[apps.Deployment](render(t, values(t, "minimal.yaml")), "weir-edge")
	require.Equal(t, "registry.example.com/weir:0.0.0-dev", d.Spec.Template.Spec.Containers[0].Image)
}
