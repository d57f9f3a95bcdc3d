package dashboards

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// NaN and Inf are no data, over a time and at its end.
func TestSamplesAreNumbers(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		result := `{"values": [[1, "NaN"], [2, "+Inf"], [3, "-Inf"], [4, "0"], [5, "1e-3"]]}, {"values": [[4, "7"]]}`
		if r.URL.Path == "/api/v1/query" {
			result = `{"value": [` + r.FormValue("time") + `, "` + r.FormValue("query") + `"]}`
		}
		fmt.Fprintf(w, `{"status": "success", "data": {"result": [%s]}}`, result)
	}))
	t.Cleanup(server.Close)
	p := prometheus{url: server.URL, span: Span{From: time.Unix(1, 0), To: time.Unix(5, 0)}}
	f := func(want int, expr string, instant bool) {
		t.Helper()
		n, err := p.samples(t.Context(), expr, instant, nil)
		require.NoError(t, err)
		require.Equal(t, want, n)
	}
	f(3, "any", false)
	f(1, "0", true)
	f(0, "NaN", true)
	f(0, "Inf", true)
}

func TestReach(t *testing.T) {
	require.Equal(t, settle, reach(`x{a="b"} == 1`))
	require.Equal(t, settle, reach(`rate(x[2s]) > 0`))
	require.Equal(t, 30*time.Second, reach(`rate(x[8s]) / increase(y[30s])`))
}
