package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// chart packs the Helm chart as helm package does. Its image and runbooks are the release's.
func (r *release) chart() error {
	root := filepath.Join(r.root, "deploy", "chart")
	version := strings.TrimPrefix(r.version, "v")
	var files []file
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if name == "Chart.yaml" {
			data = regexp.MustCompile(`(?m)^version: .*`).ReplaceAll(data, []byte("version: "+version))
			data = regexp.MustCompile(`(?m)^appVersion: .*`).ReplaceAll(data, []byte("appVersion: "+r.version))
		}
		if name == filepath.Join("files", "alerts.yaml") && r.cut {
			data = bytes.ReplaceAll(data, []byte(`"docs/RUNBOOKS.md"`), fmt.Appendf(nil, `"%s/blob/%s/docs/RUNBOOKS.md"`, home, r.version))
		}
		files = append(files, file{filepath.ToSlash(name), 0o644, data})
		return err
	})
	if err != nil {
		return err
	}
	data, err := tarball("weir", r.date, files)
	if err != nil {
		return err
	}
	return r.write("weir-"+version+".tgz", data)
}
