package manifests

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apps "k8s.io/api/apps/v1"
)

// Every value of another type is refused by its name, and so is null, for which Helm deletes the default: templates would write
// 0 replicas, or a NetworkPolicy that admits everyone.
func TestChartRefusesOtherTypes(t *testing.T) {
	refuses := func(path []string, value any, want string) {
		v := values(t, "minimal.yaml")
		m := v
		for _, name := range path[:len(path)-1] {
			if m[name] == nil {
				m[name] = map[string]any{}
			}
			m = m[name].(map[string]any)
		}
		m[path[len(path)-1]] = value
		_, err := manifests(v)
		require.ErrorContains(t, err, want, "%v: %v", path, value)
	}
	var walk func(above []string, m map[string]any)
	walk = func(above []string, m map[string]any) {
		for _, name := range slices.Sorted(maps.Keys(m)) {
			path := append(slices.Clone(above), name)
			var other any = "x"
			if _, is := m[name].(string); is {
				other = 1
			}
			refuses(path, other, "at '/"+strings.Join(path, "/")+"': ")
			at := strings.Join(append([]string{""}, above...), "/")
			refuses(path, nil, fmt.Sprintf("at '%s': missing property '%s'", at, name))
			if below, is := m[name].(map[string]any); is {
				walk(path, below)
			}
		}
	}
	walk(nil, read(t, chartFolder+"/values.yaml"))
}

// Helm accepts such names, which YAML reads as something else where they are not quoted.
func TestChartReleaseName(t *testing.T) {
	for _, name := range []string{"no", "1e3"} {
		files, err := manifestsOf(name, values(t, "trial.yaml"))
		require.NoError(t, err)
		list := decode(t, name, files["weir/templates/redis.yaml"])
		d := find[apps.Deployment](list, name+"-weir-redis")
		require.Equal(t, name, d.Spec.Selector.MatchLabels["app.kubernetes.io/instance"])
	}
}
