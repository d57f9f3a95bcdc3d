package ctl

import (
	"encoding/base64"
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/ctl/term"
)

// What validate accepts, apply publishes and the console takes.
func TestSizesOfDocuments(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "eu-west")
	noise := make([]byte, 900_000)
	_, _ = rand.NewChaCha8([32]byte{}).Read(noise)
	long := write(t, "long.yaml", rulesOf(1)+"# "+base64.StdEncoding.EncodeToString(noise)+"\n")
	for _, command := range []string{"validate", "apply"} {
		r := f.run(t, "rules", command, long)
		require.Equal(t, term.StatusUsage, r.status, command)
		require.Contains(t, r.out+r.errOut, "bytes after compression, over Consul's 524288 for one key; split or shorten it", command)
	}

	good := rulesOf(1) + strings.Repeat("# \"why\"\n", 230_000) // 2.1 MB
	file := write(t, "good.yaml", good)
	f.good(t, "rules", "validate", file)
	f.good(t, "rules", "apply", file, "--yes", "--wait", "0")
	body, err := json.Marshal(map[string]string{"document": good})
	require.NoError(t, err)
	w := f.people(t)(t.Context(), "ana", "POST", "/rules/validate", string(body))
	require.Equal(t, http.StatusOK, w.Code, "%.200s", w.Body)
	require.Contains(t, w.Body.String(), `"valid":true`)
}
