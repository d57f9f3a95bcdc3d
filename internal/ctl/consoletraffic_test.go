package ctl

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// tryTraffic tests the console's operations on traffic and on single clients.
func (c *consoleUnderTest) tryTraffic(t *testing.T) {
	strict := rulesOf(1)
	recent := c.post("/rules/test/recent", "/rules/test/recent", `{"document": `+text(t, strict)+`, "region": ["eu-west"]}`)
	require.Equal(t, "regionctl rules test --from-nodes rules.yaml --region eu-west", recent["command"])
	require.EqualValues(t, 1, dig(recent, "result", "changes", "newly_limited", "requests"))
	require.EqualValues(t, 1, dig(recent, "result", "sample", "edges"))
	require.Contains(t, c.refused(422, "/rules/test/recent", `{"document": `+text(t, strict)+`}`), "name one with --region")

	var log strings.Builder
	for i := range 4 {
		fmt.Fprintf(&log, "203.0.113.7 - - [20/Nov/2026:10:00:0%d +0000] \"GET / HTTP/1.1\" 200 12\r\n", i)
	}
	part := func(name, value string) string {
		return fmt.Sprintf("--form\r\nContent-Disposition: form-data; name=%q\r\n\r\n%s\r\n", name, value)
	}
	form := func(log string) string {
		return part("region", "eu-west") + part("document", strict) + part("log", log) + "--form--\r\n"
	}
	tested := c.post("/rules/test", "/rules/test", form(log.String()))
	require.Equal(t, "regionctl rules test rules.yaml access.log --region eu-west", tested["command"])
	require.EqualValues(t, 3, dig(tested, "result", "candidate", "limited"))
	require.Equal(t, "access.log: none of the 1 lines can be read as a request", strings.Split(c.refused(422, "/rules/test", form("nothing")), ": line 1")[0])

	blocked := c.post("/clients/block", "/clients/block", `{"network": "203.0.113.7", "reason": "scans", "for": "1h"}`)
	require.Equal(t, "regionctl clients block 203.0.113.7 --message scans --for 1h", blocked["command"])
	require.Contains(t, c.refused(422, "/clients/block", `{"network": "0.0.0.0/0", "reason": "x"}`), "pass --force if that is intended")
	c.post("/clients/allow", "/clients/allow", `{"network": "203.0.113.0/28", "reason": "ours"}`)
	require.Len(t, c.get("/clients")["result"], 2)
	shown, err := json.Marshal(c.get("/clients/show?network=203.0.113.7")["result"])
	require.NoError(t, err)
	require.Contains(t, string(shown), `"by":"ana@desk"`)
	c.post("/clients/unblock", "/clients/unblock", `{"network": "203.0.113.7"}`)
	require.Len(t, c.get("/clients")["result"], 1)
	last := dig(c.get("/audit/changes?lines=1"), "result").([]any)[0].(map[string]any)
	c.post("/clients/undo", "/clients/undo", `{"of": ["`+last["version"].(string)+`"]}`)
	require.Len(t, c.get("/clients")["result"], 2)
	require.Contains(t, text(t, c.get("/clients/recent?network=203.0.113.7&all=true")["result"]), `"verdict":"limited"`)
}
