package limits

import (
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/kinds"
	"github.com/weir-edge/weir/internal/ctl/term"
)

func TestKeys(t *testing.T) {
	k, err := parseKeys([]string{"203.0.113.7", "header:x-api-key=a=b", "path=/x", "cookie:s=1", "query:q=2", "tier=pro", "method=PUT", "host=h"})
	require.NoError(t, err)
	require.Equal(t, keys{"client_ip": "203.0.113.7", "header:X-Api-Key": "a=b", "path": "/x", "cookie:s": "1", "query:q": "2", "tier": "pro", "method": "PUT", "host": "h"}, k)
	for _, bad := range []string{"abc", "client=", "user=1", "header=1", "header:=1", "path=x", "host:a=b", "client=x"} {
		_, err := parseKeys([]string{bad})
		require.Equal(t, term.StatusUsage, term.ExitStatus(err), bad)
	}
	_, err = parseKeys([]string{"::1", "client=::2"})
	require.ErrorContains(t, err, "given twice")

	d, err := fleet.ParseDocument(kinds.Rules, "rules.yaml", []byte(`rules:
  - {id: all-of-it, key: [client_ip, "header:X-A", "cookie:c", "query:q", host, path, method, tier], limit: 1, window: 1m, match: {headers: {x-a: v, X-B: w}}}
  - {id: other-value, key: [client_ip], limit: 1, window: 1m, match: {headers: {X-A: other}}}
  - {id: "off", key: [client_ip], limit: 1, window: 1m, mode: "off"}
`))
	require.NoError(t, err)
	k, err = parseKeys([]string{"::1", "header:X-A=v", "cookie:c=1", "query:q=2", "host=h", "path=/p?z=9", "method=PUT", "tier=t"})
	require.NoError(t, err)
	list, lacking := k.lookups(kinds.RulesOf(d))
	require.Empty(t, lacking)
	require.Equal(t, []lookup{{"all-of-it", url.Values{
		"client": {"::1"}, "host": {"h"}, "method": {"PUT"}, "tier": {"t"}, "path": {"/p?q=2&z=9"}, "cookie": {"c=1"}, "header": {"X-A:v", "X-B:w"},
	}}}, list)
}
