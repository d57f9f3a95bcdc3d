package manifests

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"helm.sh/helm/v3/pkg/strvals"
	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/weir-edge/weir/internal/testenv"
)

const page = "../../docs/KUBERNETES.md"

var update = flag.Bool("update", false, "write deploy/kubernetes/weir.yaml")

// The manifests for Kustomize are the chart's. An overlay brings the image's version.
func TestKustomizeBase(t *testing.T) {
	files, err := manifests(values(t, "kustomize.yaml"))
	require.NoError(t, err)
	var b strings.Builder
	b.WriteString("# deploy/chart rendered: cd tools && go test ./manifests -run TestKustomizeBase -update\n")
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if body := strings.TrimSpace(files[name]); strings.Contains(body, "kind:") && !strings.Contains(name, "/tests/") {
			b.WriteString("---\n" + body + "\n")
		}
	}
	const file = "../../deploy/kubernetes/weir.yaml"
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(b.String()), 0o644))
	}
	require.Equal(t, b.String(), text(t, file), "run with -update")
	base := read(t, "../../deploy/kubernetes/kustomization.yaml")
	require.Equal(t, []any{"weir.yaml"}, base["resources"])
}

// Objects on the page are of the API's types, values render, and commands set values that render.
func TestPage(t *testing.T) {
	base := decode(t, "weir.yaml", text(t, "../../deploy/kubernetes/weir.yaml"))
	seen := map[string]int{}
	var own map[string]any
	var list objects
	for _, m := range regexp.MustCompile("(?ms)^```yaml\n(.*?)^```").FindAllStringSubmatch(text(t, page), -1) {
		for document := range strings.SplitSeq(m[1], "\n---\n") {
			var o map[string]any
			require.NoError(t, yaml.UnmarshalStrict([]byte(document), &o), document)
			kind, _ := o["kind"].(string)
			switch {
			case strings.HasPrefix(document, "# values.yaml\n"):
				seen["values"]++
				own = o
				checkPage(t, o)
			case strings.HasPrefix(document, "# kustomization.yaml\n"):
				seen["kustomization"]++
				checkKustomization(t, base, o)
			case kind != "":
				seen[kind]++
				list = append(list, decode(t, page, document)...)
			}
		}
	}
	require.Equal(t, map[string]int{"values": 2, "kustomization": 2, "Job": 1, "Application": 1, "GitRepository": 1, "HelmRelease": 1, "Kustomization": 1}, seen)
	checkJob(t, find[batch.Job](list, "weir-rules"))
	checkGitOps(t, list)

	commands := regexp.MustCompile(`(?m)^    (helm (?:upgrade|template) (?:.*\\\n)*.*)$`).FindAllStringSubmatch(text(t, page), -1)
	require.Len(t, commands, 3)
	for _, m := range commands {
		v := map[string]any{}
		if !strings.Contains(m[1], "--install") {
			v = own // -f values.yaml, --reuse-values
		}
		for _, set := range regexp.MustCompile(`--set '?([^' \n]+)`).FindAllStringSubmatch(m[1], -1) {
			require.NoError(t, strvals.ParseInto(set[1], v))
		}
		checkPage(t, v)
	}
}

func checkPage(t *testing.T, v map[string]any) {
	t.Helper()
	list := render(t, v)
	for _, o := range list {
		fits(t, list, o)
	}
	checkEdge(t, list)
	image := find[apps.Deployment](list, "weir-edge").Spec.Template.Spec.Containers[0].Image
	require.NotContains(t, image, ":0.0.0-dev", "no registry has the tag of the chart in Git")
}

// checkKustomization checks what an overlay replaces.
func checkKustomization(t *testing.T, base objects, o map[string]any) {
	for _, g := range o["configMapGenerator"].([]any) {
		g := g.(map[string]any)
		if g["behavior"] != "replace" {
			continue
		}
		replaced := find[core.ConfigMap](base, g["name"].(string))
		require.NotNil(t, replaced, g["name"])
		for _, file := range g["files"].([]any) {
			require.Contains(t, replaced.Data, file)
		}
	}
	if images, is := o["images"].([]any); is {
		image, _, _ := strings.Cut(find[apps.Deployment](base, "weir-edge").Spec.Template.Spec.Containers[0].Image, ":")
		require.Equal(t, image, images[0].(map[string]any)["name"])
	}
}

// checkJob checks that regionctl has the Job's flags, and that the page describes the exit statuses of OPERATIONS.
func checkJob(t *testing.T, job *batch.Job) {
	command := job.Spec.Template.Spec.Containers[0].Command
	help, err := exec.Command(testenv.Program(t, "regionctl"), append(slices.Clone(command[1:]), "--help")...).CombinedOutput()
	require.NoError(t, err, "%s", help)
	require.Contains(t, string(help), "--canary")
	restricted(t, &job.Spec.Template.Spec)
	table := func(file string) (statuses, fail []string) {
		_, rest, found := strings.Cut(text(t, file), "\n| status | ")
		require.True(t, found, file)
		rest, _, _ = strings.Cut(rest, "\n\n")
		for _, m := range regexp.MustCompile(`(?m)^\| (\d+) (?:\|.*)?\| (.*) \|$`).FindAllStringSubmatch(rest, -1) {
			statuses = append(statuses, m[1])
			if strings.HasPrefix(m[2], "fails") {
				fail = append(fail, m[1])
			}
		}
		return statuses, fail
	}
	want, _ := table("../../docs/OPERATIONS.md")
	statuses, fail := table(page)
	require.Equal(t, want, statuses)
	var codes []string
	for _, code := range job.Spec.PodFailurePolicy.Rules[0].OnExitCodes.Values {
		codes = append(codes, fmt.Sprint(code))
	}
	require.Equal(t, fail, codes)
}
