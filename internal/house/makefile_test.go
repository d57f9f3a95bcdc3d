package house

import (
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
	f("none", "good\ngood\ngood\ngood\n", "soak")
	f("*soak-tests|*fuzz", "bad\ngood\ngood\nbad\nfailed: soak-tests fuzz\n", "soak")
	parsers := "FUZZ=./a:FuzzA ./b:FuzzB"
	f("none", "./a:FuzzA\ngood\n./b:FuzzB\ngood\n", "fuzz", parsers)
	f("*./a", "./a:FuzzA\nbad\nbad\n./b:FuzzB\ngood\nfailed: ./a:FuzzA\n", "fuzz", parsers)
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
