package region

import (
	"context"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

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

const patience = testenv.Patience

// run calls f with a context that ends with the test, which waits for f.
func run(t testing.TB, f func(context.Context)) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { f(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
}

// edge is an edge node as Consul sees it.
type edge struct {
	consul.Registration
	ready   atomic.Bool
	changed chan struct{}

	mu   sync.Mutex
	meta map[string]string
}

func newEdge(t testing.TB, id, pop string) *edge {
	t.Helper()
	e := &edge{changed: make(chan struct{}, 1), meta: map[string]string{}}
	e.ready.Store(true)
	ready := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !e.ready.Load() {
			http.Error(w, `{"status":"no rules"}`, http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(ready.Close)
	e.Registration = consul.Registration{
		ID: id, Address: "192.0.2.7", Port: 8080, Admin: strings.TrimPrefix(ready.URL, "http://"), Region: "eu-west", PoP: pop, CheckURL: ready.URL + "/readyz",
	}
	return e
}

// register keeps e registered until the end of the test.
func (e *edge) register(t testing.TB, c *consul.Client) {
	t.Helper()
	run(t, func(ctx context.Context) {
		c.Register(ctx, e.Registration, func() map[string]string {
			e.mu.Lock()
			defer e.mu.Unlock()
			return maps.Clone(e.meta)
		}, e.changed, nil)
	})
}

// set changes the meta.
func (e *edge) set(name, value string) {
	e.mu.Lock()
	e.meta[name] = value
	e.mu.Unlock()
	select {
	case e.changed <- struct{}{}:
	default:
	}
}
