package testenv

import (
	_ "embed"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Clock is a wall clock that a test sets, for servers with Options.Clock and for edges started by Clock.Edge. Timers and
// deadlines do not follow it: they use the monotonic clock, which nobody sets.
type Clock struct {
	t       testing.TB
	seconds *os.File // how far it is ahead: 8 bytes that the programs map into their memory
}

// NewClock returns a clock that is right until Set is called.
func NewClock(t testing.TB) *Clock {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "seconds"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = f.Close() })
	c := &Clock{t, f}
	c.Set(0)
	return c
}

// Set puts the clock ahead of the machine's, or behind it, in whole seconds.
func (c *Clock) Set(ahead time.Duration) {
	c.t.Helper()
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], uint64(int64(ahead/time.Second)))
	_, err := c.seconds.WriteAt(b[:], 0)
	require.NoError(c.t, err)
}

// runs returns a script that runs the program with this clock; for a nil clock, the program itself.
func (c *Clock) runs(t testing.TB, program string) string {
	t.Helper()
	if c == nil {
		return program
	}
	script := filepath.Join(filepath.Dir(c.seconds.Name()), filepath.Base(program))
	require.NoError(t, os.WriteFile(script, fmt.Appendf(nil, "#!/bin/sh\nWEIR_TEST_CLOCK='%s' LD_PRELOAD='%s' exec '%s' \"$@\"\n",
		c.seconds.Name(), clockLibrary(t), program), 0o700))
	return script
}

//go:embed testdata/clock.c
var clockInC []byte

// clockLibrary builds the replacement of the C library's clock functions.
func clockLibrary(t testing.TB) string {
	t.Helper()
	source := filepath.Join(t.TempDir(), "clock.c")
	require.NoError(t, os.WriteFile(source, clockInC, 0o600))
	return build(t, "", "clock.so", "gcc", "-shared", "-fPIC", "-O2", source)
}

// Edge starts an edge node like the function Edge, with this clock.
func (c *Clock) Edge(t testing.TB, config, rules string) *EdgeNode {
	t.Helper()
	return edgeOf(nil, t, c.EdgeProgram(t), config, rules)
}

// EdgeProgram returns the program for StartEdgeOf that has this clock.
func (c *Clock) EdgeProgram(t testing.TB) string {
	t.Helper()
	return c.runs(t, clockedEdge(t))
}

// A Go program asks the kernel for the time without the C library, so this file becomes part of
// its package time.
//
//go:embed testdata/clock.go.txt
var clockInGo []byte

// clockedEdge builds an edge whose time.Now follows a Clock. The first time, that recompiles
// everything and takes a minute or two.
func clockedEdge(t testing.TB) string {
	t.Helper()
	root, err := exec.Command("go", "env", "GOROOT").Output()
	require.NoError(t, err)
	folder := filepath.Join(strings.TrimSpace(string(root)), "src", "time")
	text, err := os.ReadFile(filepath.Join(folder, "time.go"))
	require.NoError(t, err)
	const reads = "sec, nsec, mono := runtimeNow()\n"
	require.Equal(t, 1, strings.Count(string(text), reads), "this release of Go has a different time.Now; change the text to replace")
	dir := t.TempDir()
	now, set, overlay := filepath.Join(dir, "time.go"), filepath.Join(dir, "set.go"), filepath.Join(dir, "overlay.json")
	require.NoError(t, os.WriteFile(now, []byte(strings.Replace(string(text), reads, reads+"\tsec += ahead()\n", 1)), 0o600))
	require.NoError(t, os.WriteFile(set, clockInGo, 0o600))
	list, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(folder, "time.go"): now, filepath.Join(folder, "set.go"): set}})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(overlay, list, 0o600))
	return build(t, moduleDir(), "edge-with-clock", "go", "build", "-overlay", overlay, "./cmd/edge")
}
