package terraform_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// logTools answer what logs.py asks: a journal of which each line is its cursor, and CloudWatch.
var logTools = map[string]string{
	"journalctl": `after=0
for arg; do case $arg in --after-cursor=*) after=${arg#*=} ;; esac; done
tail -n +$((after + 1)) "$WEIR_ROOT/journal"`,
	"aws": `echo "$2" >>"$WEIR_ROOT/asked"
case "$*" in
"logs create-log-stream --region eu-west-1 --log-group-name weir-eu-west --log-stream-name i-1") touch "$WEIR_ROOT/stream" ;;
"logs put-log-events --region eu-west-1 --log-group-name weir-eu-west --log-stream-name i-1 --log-events file://"*)
  [ -e "$WEIR_ROOT/stream" ] || { echo ResourceNotFoundException >&2; exit 254; }
  [ ! -e "$WEIR_ROOT/away" ] || exit 255
  cat "${10#file://}" >>"$WEIR_ROOT/shipped" && echo >>"$WEIR_ROOT/shipped" ;;
*) exit 2 ;;
esac`,
}

// Every line of weir's units reaches CloudWatch once and in order, also after an outage.
func TestLogsAreShipped(t *testing.T) {
	m := &instance{t: t, root: t.TempDir(), bin: t.TempDir()}
	for name, script := range logTools {
		require.NoError(t, os.WriteFile(filepath.Join(m.bin, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755))
	}
	m.env = append(os.Environ(), "PATH="+m.bin+":"+os.Getenv("PATH"), "WEIR_ROOT="+m.root, "LOG_REGION=eu-west-1", "LOG_GROUP=weir-eu-west", "INSTANCE=i-1")
	m.write("logs", read(t, "modules/cloud-init/files/logs.py"), 0o755)
	m.write("var/lib/weir-logs/.keep", "", 0o600)
	var journal []string
	add := func(unit, message any, seconds, priority int) {
		line, err := json.Marshal(map[string]any{
			"__CURSOR": fmt.Sprint(len(journal) + 1), "__REALTIME_TIMESTAMP": fmt.Sprint(seconds * 1_000_000), "_SYSTEMD_UNIT": unit, "MESSAGE": message, "PRIORITY": fmt.Sprint(priority),
		})
		require.NoError(t, err)
		journal = append(journal, string(line))
		m.write("journal", strings.Join(journal, "\n")+"\n", 0o600)
	}
	shipped := func() (batches int, messages []string) {
		text, err := os.ReadFile(filepath.Join(m.root, "shipped"))
		require.NoError(t, err)
		for batch := range strings.Lines(string(text)) {
			var events []struct {
				Timestamp int64
				Message   string
			}
			require.NoError(t, json.Unmarshal([]byte(batch), &events))
			require.LessOrEqual(t, len(events), 1000)
			require.Less(t, events[len(events)-1].Timestamp-events[0].Timestamp, int64(86_400_000), "CloudWatch takes a day at a time")
			batches++
			for _, event := range events {
				messages = append(messages, event.Message)
			}
		}
		return batches, messages
	}

	add("weir-edge.service", "one", 1000, 6)
	add("init.scope", "Starting weir: ship logs", 1001, 6)
	add("init.scope", "weir-edge.service failed", 1002, 4)
	add("weir-edge.service", []int{0xff, 'x'}, 1003, 6)
	add("weir-edge.service", nil, 100_000, 6)
	out, err := m.run("logs")
	require.NoError(t, err, "%s", out)
	batches, messages := shipped()
	require.Equal(t, 2, batches)
	require.Equal(t, []string{"weir-edge.service one", "init.scope weir-edge.service failed", "weir-edge.service \ufffdx", "weir-edge.service "}, messages)
	out, err = m.run("logs")
	require.NoError(t, err, "%s", out)
	_, messages = shipped()
	require.Len(t, messages, 4, "each once")

	want := slices.Clone(messages)
	for i := range 1500 {
		text := fmt.Sprintf("line %d", i)
		add("weir-edge.service", text, 100_001+i, 6)
		want = append(want, "weir-edge.service "+text)
	}
	m.write("away", "", 0o600)
	out, err = m.run("logs")
	require.Error(t, err)
	require.Contains(t, out, "CloudWatch took nothing")
	require.NoError(t, os.Remove(filepath.Join(m.root, "away")))
	out, err = m.run("logs")
	require.NoError(t, err, "%s", out)
	_, messages = shipped()
	require.Equal(t, want, messages)
}
