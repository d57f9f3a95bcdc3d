package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/ctl/term"
)

const limitedTraefik = `http:
  middlewares: {few: {rateLimit: {average: 1, period: 1h, burst: 2}}}
  routers: {all: {rule: "PathPrefix(` + "`/`" + `)", middlewares: [few]}}
`

// The command line: what is printed where, and the exit status.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	file, log := filepath.Join(dir, "dynamic.yaml"), filepath.Join(dir, "access.log")
	require.NoError(t, os.WriteFile(file, []byte(limitedTraefik), 0o600))
	line := `{"time":"2026-03-01T10:00:00Z","client":"203.0.113.7","host":"a.example","method":"GET","path":"/","status":200}` + "\n"
	require.NoError(t, os.WriteFile(log, []byte(strings.Repeat(line, 3)), 0o600))
	f := func(status int, out, errOut, in string, args ...string) {
		t.Helper()
		var stdout, stderr bytes.Buffer
		err := run(t.Context(), args, strings.NewReader(in), &stdout, &stderr)
		require.Equal(t, status, term.ExitStatus(err), stderr.String())
		require.Contains(t, stdout.String(), out)
		require.Contains(t, stderr.String(), errOut)
	}
	f(0, "token_bucket", "", "", "traefik", file)
	f(0, "token_bucket", "", limitedTraefik, "traefik", "-")
	f(0, "token_bucket", "3 requests, decided alike: 3;", "", "traefik", file, "--prove", log)
	f(0, "weir-import", "", "", "--version")
	f(0, "weir-import [command]", "", "")
	f(term.StatusUsage, "", "weir-import: open missing.conf: no such file", "", "nginx", "missing.conf")
	f(term.StatusUsage, "", "weir-import: open missing.yaml: no such file", "", "traefik", "missing.yaml")
	f(term.StatusUsage, "token_bucket", "no such file", "", "traefik", file, "--prove", "missing.log")
	f(term.StatusUsage, "token_bucket", "no line of the log can be read", "", "traefik", file, "--prove", "-")
	f(term.StatusUsage, "", "accepts 1 arg(s), received 0; see weir-import nginx --help", "", "nginx")
	f(term.StatusUsage, "", "unknown flag: --proof; see weir-import nginx --help", "", "nginx", file, "--proof", log)
	f(term.StatusUsage, "", `unknown command "caddy" for "weir-import"; see weir-import --help`, "", "caddy", file)
}
