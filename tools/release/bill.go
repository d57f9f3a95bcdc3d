package main

import (
	"bytes"
	"cmp"
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
// version to that of the root module's programs.
func (r *release) bill(ctx context.Context, directory string, programs []program) (*bill, error) {
	type module struct{ path, version string }
	type origin struct{ sum, user string } // user is the folder of a module that requires it
	modules := map[module]origin{}
	for _, p := range programs {
		info, err := buildinfo.ReadFile(filepath.Join(directory, p.name))
		if err != nil {
			return nil, err
		}
		if v := info.Main.Version; strings.HasSuffix(v, "+dirty") || v == "(devel)" {
			return nil, fmt.Errorf("%s was built from %s, not from a commit; see git status", p.name, v)
		}
		if p.module == "." {
			if r.cut && info.Main.Version != r.version {
				return nil, fmt.Errorf("%s was built as %s, not %s", p.name, info.Main.Version, r.version)
			}
			r.version = info.Main.Version
		}
		r.compiler = strings.TrimPrefix(info.GoVersion, "go")
		for _, dep := range info.Deps {
			if dep.Replace == nil { // otherwise it is of this repository
				modules[module{dep.Path, dep.Version}] = origin{dep.Sum, p.module}
			}
		}
	}
	doc := cdx.NewBOM()
	doc.SerialNumber = "" // random, but the same commit must give the same bill
	doc.Metadata = &cdx.Metadata{
		Timestamp: r.date.Format(time.RFC3339),
		Component: &cdx.Component{BOMRef: "weir", Type: cdx.ComponentTypeApplication, Name: "weir", Version: r.version, PackageURL: "pkg:golang/github.com/weir-edge/weir@" + r.version},
	}
	components := []cdx.Component{{BOMRef: "go", Type: cdx.ComponentTypeLibrary, Name: "std", Version: r.compiler, PackageURL: "pkg:golang/std@" + r.compiler}}
	if programs[0].name == "edge" { // its image has roots of TLS
		const roots = "golang.org/x/crypto/x509roots/fallback"
		found, err := r.run(ctx, nil, "go", "list", "-C", "tools", "-m", "-f", "{{.Version}} {{.Sum}}", roots)
		if err != nil {
			return nil, err
		}
		version, sum, _ := strings.Cut(found, " ")
		modules[module{roots, version}] = origin{sum, "tools"}
	}
	var licenses bytes.Buffer
	byName := func(a, b module) int { return cmp.Or(cmp.Compare(a.path, b.path), cmp.Compare(a.version, b.version)) }
	for _, m := range slices.SortedFunc(maps.Keys(modules), byName) {
		from := modules[m]
		url := "pkg:golang/" + m.path + "@" + m.version
		components = append(components, cdx.Component{
			BOMRef: url, Type: cdx.ComponentTypeLibrary, Name: m.path, Version: m.version, PackageURL: url,
			Properties: &[]cdx.Property{{Name: "go:sum", Value: from.sum}},
		})
		if err := r.license(ctx, &licenses, from.user, m.path); err != nil {
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

// license appends the license and notices of a module that another one uses, from the module cache.
func (r *release) license(ctx context.Context, to *bytes.Buffer, user, path string) error {
	directory, err := r.run(ctx, nil, "go", "list", "-C", user, "-m", "-f", "{{.Dir}}", path)
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
