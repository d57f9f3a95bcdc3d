package main

import (
	"fmt"
	"go/doc"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
)

// packagePage lists the packages with the first sentences of their comments.
func packagePage(root string) (string, error) {
	var b strings.Builder
	b.WriteString(begin("Packages", "the packages' comments") + "[ARCHITECTURE](../ARCHITECTURE.md) says how they work together.\n\n| package | |\n|---|---|\n")
	err := filepath.WalkDir(root, func(folder string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if d.Name() == "testdata" || folder != root && strings.HasPrefix(d.Name(), ".") {
			return fs.SkipDir
		}
		comment, err := packageComment(folder)
		if err != nil || comment == "" {
			return err
		}
		name, err := filepath.Rel(root, folder)
		if err != nil {
			return err
		}
		words := strings.Fields(new(doc.Package).Synopsis(comment))
		fmt.Fprintf(&b, "| `%s` | %s |\n", filepath.ToSlash(name), escape(strings.Join(words[2:], " "))) // without "Package edge"
		return nil
	})
	return b.String(), err
}

// packageComment returns a package's comment; "" for a folder without a package.
func packageComment(folder string) (string, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		return "", err
	}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			return "", err
		}
		if parsed.Doc != nil {
			return parsed.Doc.Text(), nil
		}
	}
	return "", nil
}
