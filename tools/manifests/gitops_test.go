package manifests

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The fields that the page uses of Argo CD's and Flux' types, whose modules are larger than weir. Others are faults.
type (
	application struct {
		meta.TypeMeta
		meta.ObjectMeta `json:"metadata"`
		Spec            struct {
			Project     string `json:"project"`
			Destination struct {
				Server    string `json:"server"`
				Namespace string `json:"namespace"`
			} `json:"destination"`
			Sources []struct {
				RepoURL        string `json:"repoURL"`
				TargetRevision string `json:"targetRevision"`
				Path           string `json:"path"`
				Ref            string `json:"ref"`
				Helm           struct {
					ReleaseName string   `json:"releaseName"`
					ValueFiles  []string `json:"valueFiles"`
				} `json:"helm"`
			} `json:"sources"`
			SyncPolicy struct {
				Automated struct {
					Prune    bool `json:"prune"`
					SelfHeal bool `json:"selfHeal"`
				} `json:"automated"`
			} `json:"syncPolicy"`
		} `json:"spec"`
	}
	gitRepository struct {
		meta.TypeMeta
		meta.ObjectMeta `json:"metadata"`
		Spec            struct {
			URL string `json:"url"`
			Ref struct {
				Tag string `json:"tag"`
			} `json:"ref"`
			Interval meta.Duration `json:"interval"`
		} `json:"spec"`
	}
	sourceRef struct {
		Kind string `json:"kind"`
		Name string `json:"name"`
	}
	helmRelease struct {
		meta.TypeMeta
		meta.ObjectMeta `json:"metadata"`
		Spec            struct {
			Interval meta.Duration `json:"interval"`
			Chart    struct {
				Spec struct {
					Chart             string    `json:"chart"`
					SourceRef         sourceRef `json:"sourceRef"`
					ReconcileStrategy string    `json:"reconcileStrategy"`
				} `json:"spec"`
			} `json:"chart"`
			Test struct {
				Enable bool `json:"enable"`
			} `json:"test"`
			Values map[string]any `json:"values"`
		} `json:"spec"`
	}
	fluxKustomization struct {
		meta.TypeMeta
		meta.ObjectMeta `json:"metadata"`
		Spec            struct {
			Interval        meta.Duration `json:"interval"`
			Path            string        `json:"path"`
			Prune           bool          `json:"prune"`
			TargetNamespace string        `json:"targetNamespace"`
			SourceRef       sourceRef     `json:"sourceRef"`
		} `json:"spec"`
	}
)

// checkGitOps checks that Argo CD and Flux install the chart of a release, and rules from one folder.
func checkGitOps(t *testing.T, list objects) {
	argo, flux := find[application](list, "weir").Spec, find[helmRelease](list, "weir").Spec
	repository, rules := find[gitRepository](list, "weir").Spec, find[fluxKustomization](list, "weir-rules").Spec
	require.Len(t, argo.Sources, 2)
	chart, own := argo.Sources[0], argo.Sources[1]
	require.Equal(t, []string{"weir", "$" + own.Ref + "/weir/values.yaml"}, append([]string{chart.Helm.ReleaseName}, chart.Helm.ValueFiles...))
	require.Equal(t, []string{chart.RepoURL, chart.TargetRevision}, []string{repository.URL, repository.Ref.Tag})
	require.Equal(t, sourceRef{"GitRepository", "weir"}, flux.Chart.Spec.SourceRef)
	for _, path := range []string{chart.Path, flux.Chart.Spec.Chart} {
		require.Equal(t, filepath.Clean(chartFolder), filepath.Join("../..", path))
	}
	// All tags have the same version in Chart.yaml, so by default Flux would keep the first.
	require.Equal(t, "Revision", flux.Chart.Spec.ReconcileStrategy)
	checkPage(t, flux.Values)

	require.Equal(t, sourceRef{"GitRepository", "edge"}, rules.SourceRef)
	require.Equal(t, own.Path, filepath.Clean(rules.Path))
	require.Equal(t, argo.Destination.Namespace, rules.TargetNamespace)
	require.True(t, argo.SyncPolicy.Automated.Prune && argo.SyncPolicy.Automated.SelfHeal && rules.Prune && flux.Test.Enable)
}
