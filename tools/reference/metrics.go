package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-edge/weir/internal/shedding"
)

// metric is what the source says of a metric when it makes it. A registry would not do: most
// metrics exist only with some configuration.
type metric struct {
	name, kind, help string
	labels           []string
}

// makesMetric matches the functions of internal/metric that make metrics: their arguments are the
// name, the help, and the labels.
var makesMetric = regexp.MustCompile(`^(?:Read)?(Counter|Gauge|Histogram)(?:s|Func)?$`)

var weirs = regexp.MustCompile(`^weir_[a-z0-9_]+$`)

// constants are those that helps use.
var constants = map[string]string{"shedding.ShadowBias": shedding.ShadowBias}

// metricPage lists the metrics of each program.
func metricPage(root string) (string, error) {
	b := begin("Metrics", "internal") + "[METRICS](../METRICS.md) explains values of labels and how to read them. Counters count from a process's start. The label\n" +
		"`upstream` is a group. Labels have bounded sets of values: never a client, key, path, or address other than an upstream's.\n"
	programs := []struct{ title, intro, under string }{
		{"Edge node", "`GET /metrics` on the admin listener serves these, and the usual `go_` and `process_` metrics.", "internal/edge"},
		{"DNS router", "`regionctl dns` serves these on its admin address.", "internal/router"},
		{"Remote list", "`regionctl clients sync` serves these on the address of `--metrics`.", "internal/blocklist"},
	}
	found := 0
	for _, p := range programs {
		list, err := metricsUnder(filepath.Join(root, p.under))
		if err != nil {
			return "", err
		}
		found += len(list)
		b += "\n## " + p.title + "\n\n" + p.intro + "\n\n| metric | type | unit | labels | meaning |\n|---|---|---|---|---|\n"
		for _, m := range list {
			unit := regexp.MustCompile(`_(seconds|bytes|ratio)(_total)?$`).FindStringSubmatch(m.name)
			labels := strings.Join(m.labels, "`, `")
			if labels != "" {
				labels = "`" + labels + "`"
			}
			b += fmt.Sprintf("| `%s` | %s | %s | %s | %s |\n", m.name, m.kind, append(unit, "", "")[1], labels, escape(strings.TrimSuffix(m.help, ".")))
		}
	}
	for _, tree := range []string{"cmd", "internal", "pkg"} {
		list, err := metricsUnder(filepath.Join(root, tree))
		if err != nil {
			return "", err
		}
		found -= len(list)
	}
	if found != 0 {
		return "", fmt.Errorf("%d metrics are made outside %v: add their program", -found, programs)
	}
	return b, nil
}

// metricsUnder returns the metrics that a tree makes, by name.
func metricsUnder(tree string) (list []metric, err error) {
	err = filepath.WalkDir(tree, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
			return err
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			return err
		}
		var faulty error
		ast.Inspect(parsed, func(n ast.Node) bool {
			call, is := n.(*ast.CallExpr)
			if !is || len(call.Args) < 2 {
				return true
			}
			of, is := call.Fun.(*ast.SelectorExpr)
			if !is {
				return true
			}
			kind, name := makesMetric.FindStringSubmatch(of.Sel.Name), text(call.Args[0])
			if kind == nil || !weirs.MatchString(name) {
				return true
			}
			m := metric{name: name, kind: strings.ToLower(kind[1]), help: text(call.Args[1])}
			for _, arg := range call.Args[2:] {
				if label := text(arg); label != "" {
					m.labels = append(m.labels, label)
				}
			}
			if m.help == "" {
				faulty = fmt.Errorf("%s: the help of %s is neither a literal nor a known constant", file, name)
			}
			list = append(list, m)
			return true
		})
		return faulty
	})
	slices.SortFunc(list, func(a, b metric) int { return cmp.Compare(a.name, b.name) })
	return list, err
}

// text is the value of a literal, of a known constant, or of their sum.
func text(n ast.Expr) string {
	switch n := n.(type) {
	case *ast.BasicLit:
		s, _ := strconv.Unquote(n.Value)
		return s
	case *ast.BinaryExpr:
		if x, y := text(n.X), text(n.Y); x != "" && y != "" {
			return x + y
		}
	case *ast.SelectorExpr:
		if of, is := n.X.(*ast.Ident); is {
			return constants[of.Name+"."+n.Sel.Name]
		}
	}
	return ""
}
