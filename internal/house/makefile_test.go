package house

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The targets that take hours run all their steps, and name the failed ones at their end.
func TestLongTargetsRunEveryStep(t *testing.T) {
	// In place of make and go, it prints how it ends.
	program := filepath.Join(t.TempDir(), "program")
	f := func(failing, want string, args ...string) {
		t.Helper()
		require.NoError(t, os.WriteFile(program, []byte("#!/bin/sh\ncase \"$*\" in "+failing+") echo bad; exit 1;; esac\necho good\n"), 0o700))
		cmd := exec.Command("make", append([]string{"--no-print-directory", "-C", root, "-o", "deps-soak", "-o", "tools", "MAKE=" + program, "GO=" + program}, args...)...)
		cmd.Env = append(os.Environ(), "MAKEFLAGS=", "MFLAGS=") // of a make that runs this test
		out, err := cmd.Output()
		require.Equal(t, want, string(out))
		require.Equal(t, strings.Contains(want, "failed"), err != nil, "%v", err)
	}
	f("none", "good\ngood\ngood\ngood\ngood\ngood\n", "soak")
	f("*soak-tests|*fuzz", "bad\ngood\ngood\ngood\ngood\nbad\nfailed: soak-tests fuzz\n", "soak")
	parsers := "FUZZ=./a:FuzzA ./b:FuzzB"
	f("none", "./a:FuzzA\ngood\n./b:FuzzB\ngood\n", "fuzz", parsers)
	f("*./a", "./a:FuzzA\nbad\nbad\n./b:FuzzB\ngood\nfailed: ./a:FuzzA\n", "fuzz", parsers)
}

// The first build takes a minute or more; without line after line, it looks as if it hangs.
func TestBuildShowsProgress(t *testing.T) {
	seen := filepath.Join(t.TempDir(), "seen")
	program := filepath.Join(t.TempDir(), "program") // in place of go, it compiles until its progress was seen
	require.NoError(t, os.WriteFile(program, []byte("#!/bin/sh\necho $5 >&2\nuntil test -e "+seen+"; do sleep 0.05; done\necho '# some/package' >&2\necho 'a.go:1:1: a fault' >&2\nexit 1\n"), 0o700))
	cmd := exec.Command("make", "--no-print-directory", "-C", root, "run", "GO="+program)
	cmd.Env = append(os.Environ(), "MAKEFLAGS=", "MFLAGS=") // of a make that runs this test
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewReader(out)
	for range 2 {
		line, err := lines.ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, "compiling: 1 packages so far; ./cmd/edge\n", line)
	}
	require.NoError(t, os.WriteFile(seen, nil, 0o600))
	_, _ = io.Copy(io.Discard, out)
	require.Error(t, cmd.Wait())
	require.True(t, strings.HasPrefix(errs.String(), "# some/package\na.go:1:1: a fault\n"), errs.String())
}

// A newcomer reads the whole list; make help-all has the rest.
func TestHelpIsShort(t *testing.T) {
	lists := func(target string) []string {
		cmd := exec.Command("make", "--no-print-directory", "-C", root, target)
		cmd.Env = append(os.Environ(), "MAKEFLAGS=", "MFLAGS=") // of a make that runs this test
		out, err := cmd.Output()
		require.NoError(t, err)
		var names []string
		for line := range strings.Lines(string(out)) {
			names = append(names, strings.Fields(line)[0])
		}
		return names
	}
	help := lists("help")
	require.LessOrEqual(t, len(help), 15)
	require.Contains(t, help, "help-all")
	require.Subset(t, lists("help-all"), help)
}
