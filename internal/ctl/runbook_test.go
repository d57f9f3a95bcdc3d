package ctl

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/weir-edge/weir/docs"
)

// The commands of the runbooks, and those that alerts name, exist and take their arguments and flags.
func TestCommandsOfRunbooksExist(t *testing.T) {
	requireCommand := func(where, line string) {
		t.Helper()
		quoted := regexp.MustCompile(`"[^"]*"`).ReplaceAllString(line, "TEXT") // one word for the shell
		root := Commands()
		cmd, args, err := root.Find(strings.Fields(strings.ReplaceAll(quoted, "DOCUMENT", "rules"))[1:])
		require.NoError(t, err, "%s: %s", where, line)
		require.False(t, cmd.HasAvailableSubCommands(), "%s: %s: no such command", where, line)
		require.NoError(t, cmd.ParseFlags(args), "%s: %s", where, line)
		if len(args) > 0 { // otherwise it may be named without its arguments
			require.NoError(t, cmd.Args(cmd, cmd.Flags().Args()), "%s: %s", where, line)
		}
	}
	n := 0
	for _, r := range docs.Runbooks() {
		for _, m := range regexp.MustCompile("`(regionctl [^`]+)`").FindAllStringSubmatch(r.Text, -1) {
			n++
			requireCommand(r.Alert, m[1])
		}
	}
	require.Greater(t, n, 60)

	text, err := os.ReadFile("../../dashboards/rules/alerts.yaml")
	require.NoError(t, err)
	var file struct {
		Groups []struct {
			Rules []struct {
				Alert       string
				Annotations map[string]string
			}
		}
	}
	require.NoError(t, yaml.Unmarshal(text, &file))
	for _, g := range file.Groups {
		for _, rule := range g.Rules {
			for _, m := range regexp.MustCompile(`regionctl ([a-z]+)(?: ([a-z]+))?`).FindAllStringSubmatch(rule.Annotations["description"], -1) {
				cmd, rest, err := Commands().Find(m[1:])
				require.NoError(t, err, "%s: %s", rule.Alert, m[0])
				require.False(t, cmd.HasAvailableSubCommands() && len(rest) > 0, "%s: no command %s", rule.Alert, m[0])
			}
		}
	}
}
