package manifests

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/stretchr/testify/require"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

const chartFolder = "../../deploy/chart"

var kinds = map[string]func() meta.Object{
	"v1 ConfigMap":                            func() meta.Object { return &core.ConfigMap{} },
	"v1 Service":                              func() meta.Object { return &core.Service{} },
	"v1 Pod":                                  func() meta.Object { return &core.Pod{} },
	"apps/v1 Deployment":                      func() meta.Object { return &apps.Deployment{} },
	"batch/v1 Job":                            func() meta.Object { return &batch.Job{} },
	"policy/v1 PodDisruptionBudget":           func() meta.Object { return &policy.PodDisruptionBudget{} },
	"autoscaling/v2 HorizontalPodAutoscaler":  func() meta.Object { return &autoscaling.HorizontalPodAutoscaler{} },
	"networking.k8s.io/v1 NetworkPolicy":      func() meta.Object { return &networking.NetworkPolicy{} },
	"monitoring.coreos.com/v1 PodMonitor":     func() meta.Object { return &monitoring.PodMonitor{} },
	"monitoring.coreos.com/v1 PrometheusRule": func() meta.Object { return &monitoring.PrometheusRule{} },

	"argoproj.io/v1alpha1 Application":             func() meta.Object { return &application{} },
	"source.toolkit.fluxcd.io/v1 GitRepository":    func() meta.Object { return &gitRepository{} },
	"helm.toolkit.fluxcd.io/v2 HelmRelease":        func() meta.Object { return &helmRelease{} },
	"kustomize.toolkit.fluxcd.io/v1 Kustomization": func() meta.Object { return &fluxKustomization{} },
}

// objects are what one set of values makes, or one file holds.
type objects []meta.Object

// find returns the object of type P with that name, or nil.
func find[T any, P interface {
	*T
	meta.Object
}](list objects, name string) P {
	for _, o := range list {
		if p, is := o.(P); is && p.GetName() == name {
			return p
		}
	}
	return nil
}

// decode reads documents. Unknown and duplicate fields are faults.
func decode(t testing.TB, name, text string) (list objects) {
	t.Helper()
	for _, document := range regexp.MustCompile(`(?m)^---$`).Split(text, -1) {
		var kind meta.TypeMeta
		require.NoError(t, yaml.Unmarshal([]byte(document), &kind), "%s:\n%s", name, document)
		if kind == (meta.TypeMeta{}) {
			require.Empty(t, strings.TrimSpace(regexp.MustCompile(`(?m)^#.*$`).ReplaceAllString(document, "")), name)
			continue
		}
		make, known := kinds[kind.APIVersion+" "+kind.Kind]
		require.True(t, known, "%s: unexpected kind %+v", name, kind)
		o := make()
		// yaml.UnmarshalStrict would make a string of a number or a Boolean, which the API server refuses.
		data, err := yaml.YAMLToJSONStrict([]byte(document))
		require.NoError(t, err, "%s:\n%s", name, document)
		faults, err := json.UnmarshalStrict(data, o)
		require.NoError(t, err, "%s:\n%s", name, document)
		require.Empty(t, faults, "%s:\n%s", name, document)
		list = append(list, o)
	}
	return list
}

var chartOnce = sync.OnceValues(func() (*chart.Chart, error) { return loader.Load(chartFolder) })

// manifests are the chart's rendered files by their name, as helm template has them.
func manifests(values map[string]any) (map[string]string, error) { return manifestsOf("weir", values) }

func manifestsOf(release string, values map[string]any) (map[string]string, error) {
	c, err := chartOnce()
	if err != nil {
		return nil, err
	}
	options := chartutil.ReleaseOptions{Name: release, Namespace: "weir", IsInstall: true, Revision: 1}
	all, err := chartutil.ToRenderValues(c, values, options, chartutil.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(c, all)
	for name := range files {
		if filepath.Ext(name) != ".yaml" {
			delete(files, name)
		}
	}
	return files, err
}

func render(t testing.TB, values map[string]any) (list objects) {
	t.Helper()
	files, err := manifests(values)
	require.NoError(t, err)
	seen := map[string]bool{}
	for name, text := range files {
		for _, o := range decode(t, name, text) {
			id := strings.Join([]string{regexp.MustCompile(`^.*\.`).ReplaceAllString(typeName(o), ""), o.GetName()}, " ")
			require.False(t, seen[id], "%s: %s twice", name, id)
			seen[id] = true
			list = append(list, o)
		}
	}
	return list
}

// values reads a set of values from testdata.
func values(t testing.TB, name string) map[string]any {
	t.Helper()
	return read(t, filepath.Join("testdata/values", name))
}

func read(t testing.TB, file string) map[string]any {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	v := map[string]any{}
	require.NoError(t, yaml.UnmarshalStrict(text, &v), file)
	return v
}
