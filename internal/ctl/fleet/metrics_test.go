package fleet

import (
	"bytes"
	"encoding/binary"
	"math"
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/stretchr/testify/require"
)

func familiesOf(t *testing.T, text string) families {
	t.Helper()
	all, err := readFamilies(strings.NewReader(text), expfmt.NewFormat(expfmt.TypeTextPlain))
	require.NoError(t, err)
	return all
}

func TestFamiliesInBothForms(t *testing.T) {
	all := familiesOf(t, "# TYPE weir_requests_total counter\nweir_requests_total{code_class=\"2xx\"} 12\n# TYPE weir_inflight gauge\nweir_inflight 3\n")
	var b bytes.Buffer
	form := expfmt.NewFormat(expfmt.TypeProtoDelim)
	for _, f := range all {
		require.NoError(t, expfmt.NewEncoder(&b, form).Encode(f))
	}
	again, err := readFamilies(&b, form)
	require.NoError(t, err)
	require.Equal(t, 12.0, value(again["weir_requests_total"].GetMetric()[0]))
	require.Equal(t, 3.0, value(again["weir_inflight"].GetMetric()[0]))
}

// No answer at an edge's address can crash the console.
func TestFamiliesThatAreNone(t *testing.T) {
	for _, text := range []string{"<html>", "weir_requests_total{code_class=} x\n"} {
		_, err := readFamilies(strings.NewReader(text), expfmt.NewFormat(expfmt.TypeTextPlain))
		require.ErrorContains(t, err, "are not metrics: ")
	}
	for _, size := range []uint64{5, maxAdminAnswer + 1, math.MaxInt64, math.MaxUint64} {
		_, err := readFamilies(bytes.NewReader(append(binary.AppendUvarint(nil, size), "abc"...)), expfmt.NewFormat(expfmt.TypeProtoDelim))
		require.ErrorContains(t, err, "are not metrics: ")
	}
}
