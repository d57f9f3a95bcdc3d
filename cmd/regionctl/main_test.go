package main

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"regionctl": main})
}

// The command line as a person sees it, exit status included. What needs a Consul is
// tested in internal/ctl.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "../../internal/ctl/testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("TERM", "xterm")
			e.Setenv("GORACE", "atexit_sleep_ms=0") // a second for each run otherwise
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"status": status},
	})
}

// status runs a program that is to end with a given exit status: status 2 regionctl …
func status(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: status N PROGRAM ARGUMENT…")
	}
	got := "0"
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		got = strings.TrimPrefix(err.Error(), "exit status ")
	}
	if got != args[0] {
		ts.Fatalf("%v: exit status %s, not %s", args[1:], got, args[0])
	}
}

func TestRunPrintsWhatIsWrong(t *testing.T) {
	var errs bytes.Buffer
	require.Error(t, run(t.Context(), []string{"rules", "validate"}, strings.NewReader(""), io.Discard, &errs))
	require.Equal(t, "regionctl: FILE is missing; use regionctl rules validate FILE, and see regionctl rules validate --help\n", errs.String())
}

// start runs the program as a process of its own.
func start(t *testing.T, args ...string) (cmd *exec.Cmd, stdin io.WriteCloser, stdout, stderr *bufio.Scanner) {
	t.Helper()
	cmd = exec.Command("regionctl", args...) // testscript.Main put it there
	cmd.Dir = t.TempDir()
	for name, content := range map[string]string{
		"fleet.yaml": `regions: [{name: eu-west, consul: {addr: "127.0.0.1:1"}}]`,
		"rules.yaml": "rules: []",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(cmd.Dir, name), []byte(content), 0o600))
	}
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	errs, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	watchdog := time.AfterFunc(testenv.Patience, func() { _ = cmd.Process.Kill() })
	t.Cleanup(func() { watchdog.Stop() })
	return cmd, stdin, bufio.NewScanner(out), bufio.NewScanner(errs)
}

func TestWatchingEndsWithCtrlC(t *testing.T) {
	cmd, _, stdout, _ := start(t, "rules", "status", "--watch=100ms", "-o", "json", "--fleet", "fleet.yaml")
	require.True(t, stdout.Scan())
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	for stdout.Scan() { // what was on its way
	}
	require.NoError(t, cmd.Wait())
}

func TestInterrupted(t *testing.T) {
	cmd, _, _, stderr := start(t, "rules", "test", "rules.yaml", "-") // the log never comes
	require.True(t, stderr.Scan())
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.True(t, stderr.Scan())
	require.Equal(t, "regionctl: interrupted", stderr.Text())
	require.Error(t, cmd.Wait())
	require.Equal(t, 130, cmd.ProcessState.ExitCode())
}

// A reader that has seen enough does not end the program, nor change what it says.
func TestReaderGone(t *testing.T) {
	cmd := exec.Command("regionctl", "rules", "validate", "-")
	read, write, err := os.Pipe()
	require.NoError(t, err)
	require.NoError(t, read.Close())
	cmd.Stdout, cmd.Stdin = write, strings.NewReader("rules: 1")
	require.Error(t, cmd.Run())
	require.Equal(t, 2, cmd.ProcessState.ExitCode())
	require.NoError(t, write.Close())
}
