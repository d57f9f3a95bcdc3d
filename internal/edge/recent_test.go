package edge

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/edge/config"

	"github.com/weir-edge/weir/internal/adminapi"
)

// A node keeps what it decided, with how it ended, and without secrets.
func TestRecentRequests(t *testing.T) {
	n := start(t, setup{rules: "rules: [{id: per-client, match: {paths: [\"/a*\"]}, key: [client_ip], limit: 2, window: 1h}]", config: func(c *config.Config) {
		c.Recent.Keep, c.Recent.Headers = 100, []string{"X-Api-Key"}
	}})
	for range 3 {
		n.get("/a?token=hunter2", "X-Api-Key: hunter2", "Authorization: hunter2")
	}
	n.get("/b")
	var list []adminapi.Recent
	kept := func(query string) string {
		t.Helper()
		a := n.operate("GET", adminapi.PathRecent+query)
		require.Equal(t, 200, a.status, a.body)
		list = nil
		for line := range strings.Lines(a.body) {
			var r adminapi.Recent
			require.NoError(t, json.Unmarshal([]byte(line), &r))
			list = append(list, r)
		}
		require.NotContains(t, a.body, "hunter2")
		require.Equal(t, "1", a.header.Get(adminapi.HeaderShare))
		require.NotEmpty(t, a.header.Get(adminapi.HeaderSince))
		require.Equal(t, "0", a.header.Get(adminapi.HeaderLost))
		return a.body
	}
	// The end of a request may come after its answer.
	require.Eventually(t, func() bool { return strings.Count(kept("?client=127.0.0.1"), `"status":`) == 4 }, patience, 10*time.Millisecond)
	require.Len(t, list, 4)
	for i, want := range []string{"pass 200 ", "pass 200 ", "limited 429 per-client", "pass 200 "} {
		require.Equal(t, want, fmt.Sprintf("%s %d %s", list[i].Verdict, list[i].Status, list[i].Rules))
	}
	require.Regexp(t, `^/a\?token=~[0-9a-f]{16}$`, list[0].Target)
	require.Regexp(t, `^~[0-9a-f]{16}$`, list[0].Headers["X-Api-Key"][0])
	kept("?refused")
	require.Len(t, list, 1)
	kept("?rules&most=2")
	require.Equal(t, "/b", list[1].Target)
	kept("?client=203.0.113.7")
	require.Empty(t, list)
	for query, saying := range map[string]string{"?clint=127.0.0.1": "clint: unknown", "?client=x": "client: must be an address", "?most=0": "most: must be a number from 1"} {
		a := n.operate("GET", adminapi.PathRecent+query)
		require.Equal(t, http.StatusBadRequest, a.status)
		require.Contains(t, a.body, saying)
	}
}

func TestNoRecentRequests(t *testing.T) {
	n := start(t, setup{})
	a := n.operate("GET", adminapi.PathRecent)
	require.Equal(t, http.StatusNotFound, a.status)
	require.Contains(t, a.body, "set recent.keep")
}

// Keeping requests adds no allocation, neither to a refusal nor to what passes.
func TestKeepingAllocatesNothing(t *testing.T) {
	for _, limit := range []int{1, 10_000} {
		e := inMemory(t, fmt.Sprintf(allocRules, limit, limit, limit))
		e.config.Recent.Keep, e.config.Recent.Headers = 1000, []string{"X-Api-Key"}
		require.NoError(t, e.openRecent())
		ctx := received(t, "192.0.2.1", usual...)
		charge(t, e, ctx)
		do := func() { charge(t, e, ctx) }
		if limit == 1 {
			do = func() { ctx.Response.Reset(); e.serve(ctx) }
		}
		do()
		do()
		require.LessOrEqual(t, testing.AllocsPerRun(2000, do), bound(0), "limit %d", limit)
	}
}
