// Command unit runs the tests that start no server or other program and take seconds, the ones for
// an editor to run on saving. It reads the module's test files and omits each test that reaches
// internal/testenv or os/exec, directly or through helpers, so tests need no marks.
//
// It compares names, not types: a helper that shares its name with one that starts a server
// counts as starting it. That may omit too many tests; make check runs them all.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

func main() {
	root := flag.String("root", "..", "the `FOLDER` of the module")
	list := flag.Bool("list", false, "print what would be left out, and run nothing")
	flag.Parse()
	if err := run(*root, *list, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "unit:", err)
		os.Exit(1)
	}
}

// tests are those of one package.
type tests struct {
	ImportPath, Dir                    string
	TestGoFiles, XTestGoFiles          []string
	Imports, TestImports, XTestImports []string

	all, outside []string // outside: those that start something or take long
}

func run(root string, list bool, args []string) error {
	packages, err := packages(root)
	if err != nil {
		return err
	}
	// Those with most tests wait longest, for clients that are slow and the like: others run meanwhile.
	slices.SortStableFunc(packages, func(a, b tests) int { return len(b.all) - len(a.all) })
	// make lint vets.
	test := append([]string{"test", "-vet=off"}, args...)
	shared := []string{"build"}
	var calls [][]string
	whole := slices.Clone(test) // packages of which every test runs
	ran, left := 0, 0
	for _, p := range packages {
		ran, left = ran+len(p.all)-len(p.outside), left+len(p.outside)
		if list {
			for _, name := range p.outside {
				fmt.Println(p.ImportPath, name)
			}
		}
		if len(p.outside) == len(p.all) {
			continue
		}
		shared = slices.Concat(shared, p.Imports, p.TestImports, p.XTestImports)
		if len(p.outside) == 0 {
			whole = append(whole, p.ImportPath)
		} else {
			calls = append(calls, slices.Concat(test, []string{"-skip", "^(" + strings.Join(p.outside, "|") + ")$", p.ImportPath}))
		}
	}
	fmt.Printf("%d tests; %d others start servers or programs, or simulate for a minute: make check\n", ran, left)
	if list {
		return nil
	}
	fmt.Println("compiling what they share: two minutes the first time")
	// Two that run at once would each compile what is missing.
	if err := inTurn(root, 1, shared); err != nil {
		return err
	}
	return inTurn(root, 3, slices.Insert(calls, 0, whole)...)
}

// packages returns what go list reports about the module's packages, with their tests
// sorted.
func packages(root string) ([]tests, error) {
	cmd := exec.Command("go", "list", "-json=ImportPath,Dir,TestGoFiles,XTestGoFiles,Imports,TestImports,XTestImports", "./...")
	cmd.Dir, cmd.Stderr = root, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	var all []tests
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p tests
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		if err := p.sort(); err != nil {
			return nil, err
		}
		all = append(all, p)
	}
}

// simulation is a package that simulates for a minute.
const simulation = "/internal/spillsim"

// harmless lists helpers of testenv that start nothing.
var harmless = []string{"FreePorts", "Certificates"}

// sort divides the tests by whether they start something.
func (p *tests) sort() error {
	calls := map[string][]string{} // the names used, by function or method
	starts := map[string]bool{}
	for _, name := range append(p.TestGoFiles, p.XTestGoFiles...) {
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, 0)
		if err != nil {
			return err
		}
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			own := fn.Name.Name
			if fn.Recv == nil && isTest(own) {
				p.all = append(p.all, own)
			}
			ast.Inspect(fn, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.CallExpr:
					starts[own] = starts[own] || startsOne(n.Fun)
				case *ast.Ident:
					calls[own] = append(calls[own], n.Name)
				}
				return true
			})
		}
	}
	if strings.HasSuffix(p.ImportPath, "/testenv") || strings.HasSuffix(p.ImportPath, simulation) {
		p.outside = p.all
		return nil
	}
	for more := true; more; {
		more = false
		for name, used := range calls {
			if !starts[name] && slices.ContainsFunc(used, func(u string) bool { return u != name && starts[u] }) {
				starts[name], more = true, true
			}
		}
	}
	for _, name := range p.all {
		if starts[name] || starts["TestMain"] {
			p.outside = append(p.outside, name)
		}
	}
	return nil
}

// startsOne reports whether a function of os/exec or testenv starts something.
func startsOne(function ast.Expr) bool {
	f, ok := function.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	switch x, _ := f.X.(*ast.Ident); {
	case x == nil:
		return false
	case x.Name == "exec":
		return strings.HasPrefix(f.Sel.Name, "Command")
	case x.Name == "testenv":
		return !slices.Contains(harmless, f.Sel.Name)
	}
	return false
}

func isTest(name string) bool {
	for _, prefix := range []string{"Test", "Fuzz", "Example"} {
		if strings.HasPrefix(name, prefix) && name != "TestMain" {
			return true
		}
	}
	return false
}

// inTurn runs go for the calls, in their order and some at a time, and prints what they print.
func inTurn(root string, atATime int, calls ...[]string) error {
	var wg sync.WaitGroup
	var mu sync.Mutex
	failed := 0
	slots := make(chan struct{}, atATime)
	for _, call := range calls {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			cmd := exec.Command("go", call...)
			cmd.Dir = root
			out, err := cmd.CombinedOutput()
			mu.Lock()
			defer mu.Unlock()
			os.Stdout.Write(out)
			if err != nil {
				failed++
			}
		})
	}
	wg.Wait()
	if failed > 0 {
		return errors.New("some tests fail")
	}
	return nil
}
