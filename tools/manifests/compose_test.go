package manifests

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/stretchr/testify/require"
	apps "k8s.io/api/apps/v1"
)

// compose.yaml keeps to the Compose Specification's schema, and its containers run what
// the image, the systemd units and the chart run.
func TestCompose(t *testing.T) {
	file, err := filepath.Abs("../../deploy/compose.yaml")
	require.NoError(t, err)
	project, err := loader.LoadWithContext(t.Context(), types.ConfigDetails{WorkingDir: filepath.Dir(file), ConfigFiles: []types.ConfigFile{{Filename: file}}},
		func(o *loader.Options) { o.SetProjectName("weir", true) })
	require.NoError(t, err)

	edge := execStart(t, "weir-edge.service")
	require.Contains(t, text(t, "../release/image.go"), `{"`+strings.Join(edge, `", "`)+`"}`, "the image runs what the unit runs")
	router := execStart(t, "weir-dns.service")

	edges := 0
	for name, s := range project.Services {
		if !strings.HasPrefix(s.Image, "weir:") {
			continue
		}
		for _, c := range s.Configs {
			if c.Target != edge[2] {
				continue
			}
			edges++
			require.Equal(t, name, c.Source, "%s: its own configuration", name)
			require.Empty(t, s.Command, "%s: the image's", name)
			require.Empty(t, s.Entrypoint, "%s: the image's", name)
		}
		require.True(t, s.ReadOnly, name)
		require.Equal(t, []string{"ALL"}, s.CapDrop, name)
	}
	require.Equal(t, 12, edges)

	// Beyond the fleet file, the unit names its state and a variable; a container has neither.
	dns := project.Services["dns"].Command
	require.Equal(t, router[1:4], []string(dns[1:4]))
	require.Equal(t, filepath.Base(router[0]), dns[0])

	list := render(t, values(t, "routers.yaml"))
	for name, want := range map[string][]string{"weir-edge": edge[1:], "weir-dns": router[1:4]} {
		command := find[apps.Deployment](list, name).Spec.Template.Spec.Containers[0].Command
		require.Equal(t, want, command[1:1+len(want)], name)
	}
}

// execStart are the words of a unit's ExecStart.
func execStart(t *testing.T, unit string) []string {
	text, err := os.ReadFile(filepath.Join("../../deploy/systemd", unit))
	require.NoError(t, err)
	m := regexp.MustCompile(`(?m)^ExecStart=(.*)$`).FindStringSubmatch(string(text))
	require.NotNil(t, m, unit)
	return strings.Fields(m[1])
}
