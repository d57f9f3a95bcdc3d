package consul

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-edge/weir/internal/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open returns a client that is closed with the test.
func open(t testing.TB, config Config) *Client {
	t.Helper()
	c, err := Open(config)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// write creates a file in a directory of the test.
func write(t testing.TB, name, content string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
	return file
}

const patience = testenv.Patience

// promised requires a promised duration, in the long form only: otherwise other work may slow
// the machine.
func promised(t testing.TB, took, most time.Duration) {
	t.Helper()
	t.Logf("took %s of %s", took.Round(time.Millisecond), most)
	if os.Getenv("WEIR_SOAK") != "" {
		require.Less(t, took, most)
	}
}

// run calls f with a context that ends with the test, which waits for f.
func run(t testing.TB, f func(context.Context)) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(ctx)
	}()
	stop = func() {
		t.Helper()
		cancel()
		select {
		case <-done:
		case <-time.After(patience):
			require.Fail(t, "did not end with its context")
		}
	}
	t.Cleanup(stop)
	return stop
}

// event is one call of a callback.
type event struct {
	err   error
	entry *Entry
	told  bool // reported by each, not by state
}

// watching is a watch whose callbacks a test reads one by one.
type watching chan event

// watch follows key until the test ends.
func watch(t testing.TB, c *Client, key string) watching {
	t.Helper()
	w := make(watching, 10_000)
	run(t, func(ctx context.Context) {
		c.Watch(ctx, key, func(err error) { w <- event{err: err} }, func(e *Entry) { w <- event{entry: e, told: true} })
	})
	return w
}

// next waits for content.
func (w watching) next(t testing.TB) *Entry {
	t.Helper()
	return w.until(t, "content", func(e event) bool { return e.told }).entry
}

// failure waits for a failure.
func (w watching) failure(t testing.TB) error {
	t.Helper()
	return w.until(t, "a failure", func(e event) bool { return e.err != nil }).err
}

// success waits for an answer.
func (w watching) success(t testing.TB) {
	t.Helper()
	w.until(t, "an answer", func(e event) bool { return e.err == nil })
}

func (w watching) until(t testing.TB, what string, ok func(event) bool) event {
	t.Helper()
	timeout := time.After(patience)
	last := errors.New("nothing")
	for {
		select {
		case e := <-w:
			if ok(e) {
				return e
			}
			last = e.err
		case <-timeout:
			require.Fail(t, "no "+what, "last event: %v", last)
			return event{}
		}
	}
}
