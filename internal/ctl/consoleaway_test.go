package ctl

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/console"
	"github.com/weir-edge/weir/internal/ctl/change"
)

// outcomes returns the results of a change by region, and the versions that are then active.
func outcomes(t *testing.T, result any) (results, active map[string]string) {
	t.Helper()
	text, err := json.Marshal(result)
	require.NoError(t, err)
	results, active = map[string]string{}, map[string]string{}
	for _, r := range parse[change.Report](t, string(text)).Regions {
		results[r.Region], active[r.Region] = r.Result.String(), r.Active
	}
	return results, active
}

// The buttons of an incident with a region down: the refusal says which regions answer, partial
// continues with those (undo does with regions that it names), the answer says what each has, and what was begun with some regions can
// be ended while others are down, and after they are back.
func TestConsoleButtonsWithoutARegion(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "eu-west", "us-east")
	f.publish(t, rulesOf(1), "ana", f.names...)
	f.publish(t, rulesOf(2), "ana", f.names...)
	ams := f.edge(t, "eu-west", "ams1", "ams1-1")
	iad := f.edge(t, "us-east", "iad1", "iad1-1")
	require.Eventually(t, func() bool { return iad.runs() == versionOf(rulesOf(2)) }, patience, tick)
	c := f.console(t)
	refused := func(path, body string) {
		t.Helper()
		w := c.send("POST", path, body)
		var p console.Problem
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &p))
		require.Equal(t, http.StatusInternalServerError, w.Code, w.Body)
		require.Equal(t, "unreachable", p.Reason, w.Body)
		results, _ := outcomes(t, p.Result)
		require.Equal(t, map[string]string{"eu-west": "not changed", "us-east": "unreachable"}, results)
	}
	partly := func(path, body, want string) {
		t.Helper()
		answer := c.post(path, path, body)
		require.Contains(t, answer["incomplete"], "us-east has not:", answer)
		results, active := outcomes(t, answer["result"])
		require.Equal(t, map[string]string{"eu-west": "applied", "us-east": "unreachable"}, results)
		require.Equal(t, map[string]string{"eu-west": want, "us-east": ""}, active)
	}
	f.consuls["us-east"].Kill()
	refused("/shedder/off", `{"for": "1h"}`)
	p, _, err := f.settings("eu-west").Current(t.Context())
	require.NoError(t, err)
	require.Nil(t, p, "nothing was changed")
	answer := c.post("/shedder/off", "/shedder/off", `{"for": "1h", "partial": true}`)
	_, active := outcomes(t, answer["result"])
	off := active["eu-west"]
	require.NotEmpty(t, off)
	require.Equal(t, off, ams.sheds())
	partly("/shedder/undo", `{"of": ["`+off+`"]}`, "config")
	require.Equal(t, "config", ams.sheds())

	two := versionOf(rulesOf(2))
	refused("/rules/undo", `{"of": ["`+two+`"]}`)
	require.Equal(t, http.StatusConflict, c.send("POST", "/rules/undo", `{"of": ["`+versionOf(rulesOf(1))+`"], "region": ["eu-west"]}`).Code)
	c.post("/rules/undo", "/rules/undo", `{"of": ["`+two+`"], "region": ["eu-west"]}`)
	require.Equal(t, versionOf(rulesOf(1)), ams.runs())

	// The region comes back while the switch is on elsewhere.
	c.post("/shedder/off", "/shedder/off", `{"for": "1h", "partial": true}`)
	f.consuls["us-east"].Start()
	answer = c.post("/shedder/undo", "/shedder/undo", `{"of": ["`+off+`"]}`)
	require.Empty(t, answer["incomplete"])
	results, _ := outcomes(t, answer["result"])
	require.Equal(t, map[string]string{"eu-west": "applied"}, results, "nothing temporary was active in us-east")
	require.Equal(t, "config", ams.sheds())
	require.Equal(t, versionOf(rulesOf(2)), iad.runs())
}
