package peer

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-edge/weir/internal/testenv"
	"github.com/weir-edge/weir/pkg/certs"
)

func TestMain(m *testing.M) {
	if os.Getenv(nodeProcess) != "" {
		serveProcess()
		return
	}
	goleak.VerifyTestMain(m)
}

const patience = testenv.Patience

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	require.Eventually(t, ok, patience, 5*time.Millisecond, what)
}

var regions = []Region{{Name: "eu-west"}, {Name: "us-east"}, {Name: "ap-south"}}

// end is a node of a test.
type end struct {
	Config
	server *Server
	links  *Links
	seen   *seen

	refused, panics atomic.Int64
}

// seen collects the exchanges that a node observed.
type seen struct {
	mu   sync.Mutex
	list []Exchange
}

func (s *seen) add(x Exchange) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, x)
}

func (s *seen) count(d Direction, r Result) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.list {
		if x.Direction == d && x.Result == r {
			n++
		}
	}
	return n
}

// comesTo waits until so many exchanges were observed: a server does so after its answer.
func (s *seen) comesTo(t *testing.T, n int, d Direction, r Result) {
	t.Helper()
	eventually(t, "an exchange is observed", func() bool { return s.count(d, r) >= n })
	require.Equal(t, n, s.count(d, r))
}

// all waits until so many exchanges of any kind were observed.
func (s *seen) all(t *testing.T, n int, of any) {
	t.Helper()
	length := func() int { s.mu.Lock(); defer s.mu.Unlock(); return len(s.list) }
	eventually(t, "an exchange is observed", func() bool { return length() >= n })
	require.Equal(t, n, length(), "%v", of)
}

func quietLog() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// newEnd returns a node that serves the topic "echo" after start.
func newEnd(t *testing.T, region, id string, files *testenv.TLSFiles) *end {
	t.Helper()
	e := &end{seen: &seen{}}
	e.Config = Config{Self: Node{Region: region, ID: id}, Log: quietLog(), Observe: e.seen.add, Refused: func() { e.refused.Add(1) }, Panicked: func() { e.panics.Add(1) }}
	if files != nil {
		e.Certificates = load(t, *files)
	}
	e.Directory = NewDirectory(e.Self, regions)
	e.links = NewLinks(e.Config)
	t.Cleanup(e.links.Close)
	e.server = NewServer(e.Config)
	e.server.Handle("echo", func(_ context.Context, from Node, body []byte) ([]byte, error) {
		return append([]byte(from.Region+"/"+from.ID+": "), body...), nil
	})
	return e
}

func load(t *testing.T, f testenv.TLSFiles) *certs.Server {
	t.Helper()
	s, err := certs.NewServer([]certs.Pair{{CertFile: f.CertFile, KeyFile: f.KeyFile}}, f.CAFile)
	require.NoError(t, err)
	return s
}

// start serves until the test ends, and returns the node as others call it.
func (e *end) start(t *testing.T) Node {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- e.server.Serve(ln) }()
	t.Cleanup(func() {
		_ = e.server.http.Close()
		require.NoError(t, <-served)
		_ = ln.Close()
	})
	e.Self.Addr = ln.Addr().String()
	return e.Self
}

func (e *end) call(t *testing.T, to Node, body string) (string, error) {
	t.Helper()
	reply, err := e.links.Call(t.Context(), to, "echo", []byte(body))
	return string(reply), err
}

// pair returns two nodes of two regions that trust each other.
func pair(t *testing.T) (caller, answerer *end, a *testenv.Authority) {
	t.Helper()
	a = testenv.NewAuthority(t)
	one, two := a.Issue(time.Hour, "spiffe://weir/eu-west/a"), a.Issue(time.Hour, "b.us-east.peer.weir")
	return newEnd(t, "eu-west", "a", &one), newEnd(t, "us-east", "b", &two), a
}

// words is a body that compresses well.
func words(n int) []byte { return bytes.Repeat([]byte("weir:{203.0.113.7}:api "), n/23+1)[:n] }
