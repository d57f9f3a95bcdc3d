package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// bill describes the contents of a platform's programs.
type bill struct {
	data     []byte // CycloneDX
	licenses []byte // the texts of all modules
}

// bill reads the modules that the linker recorded in the programs, and sets the release's
// version to the programs' own.
func (r *release) bill(ctx context.Context, directory string) (*bill, error) {
	type module struct{ version, sum string }
	modules := map[string]module{}
	compiler := ""
	for _, name := range programs {
		info, err := buildinfo.ReadFile(filepath.Join(directory, name))
		if err != nil {
			return nil, err
		}
		if r.version = info.Main.Version; strings.HasSuffix(r.version, "+dirty") || r.version == "(devel)" {
			return nil, fmt.Errorf("%s was built from %s, not from a commit; see git status", name, r.version)
		}
		compiler = strings.TrimPrefix(info.GoVersion, "go")
		for _, dep := range info.Deps {
			modules[dep.Path] = module{dep.Version, dep.Sum}
		}
	}
	doc := cdx.NewBOM()
	doc.SerialNumber = "" // random, but the same commit must give the same bill
	doc.Metadata = &cdx.Metadata{
		Timestamp: r.date.Format(time.RFC3339),
		Component: &cdx.Component{BOMRef: "weir", Type: cdx.ComponentTypeApplication, Name: "weir", Version: r.version, PackageURL: "pkg:golang/github.com/weir-edge/weir@" + r.version},
	}
	components := []cdx.Component{{BOMRef: "go", Type: cdx.ComponentTypeLibrary, Name: "std", Version: compiler, PackageURL: "pkg:golang/std@" + compiler}}
	var licenses bytes.Buffer
	for _, path := range slices.Sorted(maps.Keys(modules)) {
		m := modules[path]
		url := "pkg:golang/" + path + "@" + m.version
		components = append(components, cdx.Component{
			BOMRef: url, Type: cdx.ComponentTypeLibrary, Name: path, Version: m.version, PackageURL: url,
			Properties: &[]cdx.Property{{Name: "go:sum", Value: m.sum}},
		})
		if err := r.license(ctx, &licenses, path); err != nil {
			return nil, err
		}
	}
	doc.Components = &components
	var out bytes.Buffer
	encoder := cdx.NewBOMEncoder(&out, cdx.BOMFileFormatJSON)
	encoder.SetPretty(true)
	err := encoder.Encode(doc)
	return &bill{out.Bytes(), licenses.Bytes()}, err
}

// license appends the license and notices of a module, from the module cache.
func (r *release) license(ctx context.Context, to *bytes.Buffer, path string) error {
	directory, err := r.run(ctx, nil, "go", "list", "-m", "-f", "{{.Dir}}", path)
	if err != nil {
		return err
	}
	found := false
	entries, err := os.ReadDir(directory)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := strings.ToUpper(e.Name())
		if e.IsDir() || !slices.ContainsFunc([]string{"LICENSE", "LICENCE", "COPYING", "NOTICE"}, func(p string) bool { return strings.HasPrefix(name, p) }) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(directory, e.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(to, "==== %s: %s\n\n%s\n", path, e.Name(), text)
		found = found || !strings.HasPrefix(name, "NOTICE")
	}
	if !found {
		return fmt.Errorf("%s has no license file, so it may not be distributed; see %s", path, directory)
	}
	return nil
}
