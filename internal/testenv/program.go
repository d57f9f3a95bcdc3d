package testenv

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

var programs struct {
	sync.Mutex
	dir   string
	built map[string]error
}

// Program builds cmd/<name> once for a test binary and returns the file.
func Program(t testing.TB, name string) string {
	t.Helper()
	p := &programs
	p.Lock()
	defer p.Unlock()
	if p.dir == "" {
		dir, err := os.MkdirTemp("", "weir-programs-")
		if err != nil {
			t.Fatalf("testenv: %v", err)
		}
		p.dir, p.built = dir, map[string]error{}
	}
	file := filepath.Join(p.dir, name)
	err, done := p.built[name]
	if !done {
		if out, berr := exec.Command("go", "build", "-o", file, "github.com/weir-edge/weir/cmd/"+name).CombinedOutput(); berr != nil {
			err = fmt.Errorf("go build cmd/%s: %w: %s", name, berr, out)
		}
		p.built[name] = err
	}
	if err != nil {
		t.Fatalf("testenv: %v", err)
	}
	return file
}
