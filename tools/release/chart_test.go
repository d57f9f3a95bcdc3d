package main

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Alerts of a released chart link to the runbooks of that release, those of any other chart to the
// page in its tree.
func TestAlertsLinkToRunbooksOfTheRelease(t *testing.T) {
	f := func(cut bool, want string) {
		t.Helper()
		root, err := filepath.Abs("../..")
		require.NoError(t, err)
		r := &release{root: root, out: t.TempDir(), version: "v0.1.0", cut: cut, date: time.Unix(0, 0)}
		require.NoError(t, r.chart())
		alerts := command(t, r.out, "tar", "-xzOf", "weir-0.1.0.tgz", "weir/files/alerts.yaml")
		links := strings.Count(alerts, "runbook_url: ")
		require.NotZero(t, links)
		require.Equal(t, links, strings.Count(alerts, `runbook_url: '{{ or $externalLabels.runbooks_url "`+want+`" }}#weir`))
	}
	f(true, "https://github.com/weir-edge/weir/blob/v0.1.0/docs/RUNBOOKS.md")
	f(false, "docs/RUNBOOKS.md")
}
