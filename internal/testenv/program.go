package testenv

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

var programs struct {
	sync.Mutex
	dir   string
	kept  io.Closer // while it is open, dir exists
	built map[string]error
}

// Program builds cmd/<name> once for a test binary and returns the file.
func Program(t testing.TB, name string) string {
	t.Helper()
	return build(t, moduleDir(), name, "go", "build", "./cmd/"+name)
}

// Tool returns the path of a program that the tools module names, which it builds first.
func Tool(t testing.TB, pkg string) string {
	t.Helper()
	return build(t, filepath.Join(moduleDir(), "tools"), path.Base(pkg), "go", "build", pkg)
}

// moduleDir is the folder of weir's module. Tests in modules of their own need its versions for its programs.
func moduleDir() string {
	_, here, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(here), "..", "..")
}

// build runs a compiler in a folder, with -o FILE after its first argument, once for a test binary, and returns the file of that
// name.
func build(t testing.TB, folder, name, compiler, first string, more ...string) string {
	t.Helper()
	p := &programs
	p.Lock()
	defer p.Unlock()
	if p.dir == "" {
		dir, kept, err := processDir()
		require.NoError(t, err)
		p.dir, p.kept, p.built = dir, kept, map[string]error{}
	}
	file := filepath.Join(p.dir, name)
	err, done := p.built[name]
	if !done {
		cmd := exec.Command(compiler, append([]string{first, "-o", file}, more...)...)
		cmd.Dir, cmd.Env = folder, append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0") // with the module's own versions, as in a release
		if out, berr := cmd.CombinedOutput(); berr != nil {
			err = fmt.Errorf("%s %s: %w: %s", compiler, strings.Join(more, " "), berr, out)
		}
		p.built[name] = err
	}
	require.NoError(t, err)
	return file
}

// processDir creates a folder that lasts as long as this process, however that ends: a shell
// waits for the end of a pipe and deletes it.
func processDir() (dir string, kept io.Closer, err error) {
	if dir, err = os.MkdirTemp("", "weir-programs-"); err != nil {
		return "", nil, err
	}
	remove := exec.Command("sh", "-c", `read -r _; rm -rf "$0"`, dir)
	remove.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for the tests
	if kept, err = remove.StdinPipe(); err == nil {
		err = remove.Start()
	}
	return dir, kept, err
}
