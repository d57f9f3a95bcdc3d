package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
)

const (
	// home is where weir is developed.
	home           = "https://github.com/weir-edge/weir"
	provenanceFile = "provenance.intoto.json"
)

// provenance states from what, by what and how the files were built: a SLSA provenance in an in-toto statement. It has no
// times: a rebuild must give the same statement.
func (r *release) provenance(sums map[string]string) ([]byte, error) {
	type digest map[string]string
	type resource struct {
		Name   string `json:"name,omitempty"`
		URI    string `json:"uri,omitempty"`
		Digest digest `json:"digest,omitempty"`
	}
	subject := []resource{}
	for _, name := range r.files {
		subject = append(subject, resource{Name: name, Digest: digest{"sha256": sums[name]}})
	}
	command := "make release"
	if r.cut {
		command += " VERSION=" + r.version
	}
	data, err := json.MarshalIndent(map[string]any{
		"_type": "https://in-toto.io/Statement/v1", "subject": subject, "predicateType": "https://slsa.dev/provenance/v1",
		"predicate": map[string]any{
			"buildDefinition": map[string]any{
				"buildType":          home + "/tree/main/tools/release",
				"externalParameters": map[string]any{"command": command, "version": r.version},
				"resolvedDependencies": []resource{
					{URI: "git+" + home, Digest: digest{"gitCommit": r.commit}},
					{URI: "pkg:golang/std@" + r.compiler},
				},
			},
			"runDetails": map[string]any{"builder": map[string]any{"id": home + "/tree/main/tools/release"}},
		},
	}, "", "  ")
	return append(data, '\n'), err
}

// sign signs SHA256SUMS, and so everything that it names, into SHA256SUMS.sig.
func (r *release) sign(ctx context.Context) error {
	c := exec.CommandContext(ctx, "ssh-keygen", "-q", "-Y", "sign", "-f", r.key, "-n", "weir", filepath.Join(r.out, "SHA256SUMS"))
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", c, err, out)
	}
	return nil
}
