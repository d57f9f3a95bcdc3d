package consul

import (
	"net/http"
	"strings"
	"testing"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"
)

// A server that is no Consul may answer with null in any place. That is a failure, and ends no
// process that follows it.
func TestNullIsNoEntry(t *testing.T) {
	t.Parallel()
	status, text := 200, ""
	c := answers(t, Config{}, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Consul-Index", "5")
		if strings.Contains(r.URL.Path, "/txn") {
			w.WriteHeader(status)
		}
		_, _ = w.Write([]byte(text))
	})
	text = `[null]`
	_, err := c.List(t.Context(), "weir/drain/")
	require.ErrorIs(t, err, errNull)
	nodes, err := c.Nodes(t.Context())
	require.NoError(t, err)
	require.Empty(t, nodes)
	text = `[{"Service": {"Meta": null}, "Checks": [null]}]`
	_, err = c.Nodes(t.Context())
	require.ErrorIs(t, err, errNull)
	op := &api.KVTxnOp{Verb: api.KVGet, Key: "weir/k"}
	for _, text = range []string{`{"Results": [null]}`, `{"Results": [{}]}`} {
		_, _, err = c.transact(t.Context(), "read", op)
		require.ErrorIs(t, err, errNull, text)
	}
	status, text = 409, `{"Errors": [null]}`
	_, failed, err := c.transact(t.Context(), "read", op)
	require.ErrorContains(t, err, "answered 409")
	require.Empty(t, failed)
	text = `{"AggregatedStatus": "passing", "Service": {"Address": "192.0.2.1"}, "Checks": [null]}`
	s := &service{consul: c, Registration: Registration{ID: "a"}}
	require.NoError(t, s.taken(t.Context()))
	text = `null`
	_, err = s.known(t.Context())
	require.ErrorIs(t, err, errNull)
}
