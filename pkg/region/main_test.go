package region

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-edge/weir/internal/testenv"
	"github.com/weir-edge/weir/pkg/region/consul"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open returns a client that is closed with the test.
func open(t testing.TB, config consul.Config) *consul.Client {
	t.Helper()
	c, err := consul.Open(config)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// answers starts a server that imitates a misbehaving Consul.
func answers(t testing.TB, config consul.Config, handle http.HandlerFunc) *consul.Client {
	t.Helper()
	s := httptest.NewServer(handle)
	t.Cleanup(s.Close)
	config.Addr = s.URL
	return open(t, config)
}

// write creates a file in a directory of the test.
func write(t testing.TB, name, content string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
	return file
}

// publish activates a topology.
func publish(t testing.TB, c *consul.Client, topology *Topology) (version string) {
	t.Helper()
	text, err := json.Marshal(topology)
	require.NoError(t, err)
	return activate(t, c, text)
}

func activate(t testing.TB, c *consul.Client, text []byte) (version string) {
	t.Helper()
	docs := c.Documents(TopologyKind)
	version, err := docs.Put(t.Context(), text)
	require.NoError(t, err)
	_, index, err := docs.Current(t.Context())
	require.NoError(t, err)
	done, err := docs.Activate(t.Context(), consul.Change{Pointer: consul.NewPointer(text, "ana", time.Now())}, index)
	require.NoError(t, err)
	require.True(t, done)
	return version
}

const patience = testenv.Patience

// run calls f with a context that ends with the test, which waits for f.
func run(t testing.TB, f func(context.Context)) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { f(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
}
