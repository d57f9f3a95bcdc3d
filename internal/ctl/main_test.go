package ctl

import (
	"bytes"
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-edge/weir/internal/ctl/command"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/internal/testenv"
	"github.com/weir-edge/weir/pkg/region/consul"
)

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "5") // most tests wait for Consul
	goleak.VerifyTestMain(m)
}

const (
	patience = testenv.Patience
	tick     = 10 * time.Millisecond
	ample    = 20 * time.Second // for a Consul to answer on a busy machine
)

// rulesOf returns a document with this limit per minute.
func rulesOf(limit int) string {
	return fmt.Sprintf("rules:\n  - {id: per-client, key: [client_ip], limit: %d, window: 1m}\n", limit)
}

// write creates a file in a directory of the test.
func write(t testing.TB, name, content string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
	return file
}

// buffer is written by the program while the test reads it.
type buffer struct {
	mu     sync.Mutex
	text   bytes.Buffer
	stopAt string        // "": nowhere
	resume chan struct{} // is closed
}

// Write implements io.Writer. From stopAt on it waits, like a terminal after Ctrl-S, until resume.
func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	n, err := b.text.Write(p)
	stops := b.stopAt != "" && strings.Contains(b.text.String(), b.stopAt)
	b.mu.Unlock()
	if stops {
		<-b.resume
	}
	return n, err
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// testFleet is regions with their Consuls, and their fleet file.
type testFleet struct {
	file    string
	names   []string
	consuls map[string]*testenv.Consul
	open    map[string]*consul.Client
	prefix  string

	registering time.Duration // how long to wait for missing edges; 0: briefly
}

// startFleet starts a Consul for each region.
func startFleet(t testing.TB, names ...string) *testFleet {
	t.Helper()
	consuls := map[string]*testenv.Consul{}
	for _, name := range names {
		consuls[name] = testenv.StartConsul(t, testenv.ConsulOptions{Datacenter: name})
	}
	return newFleet(t, "weir", names, consuls)
}

func newFleet(t testing.TB, prefix string, names []string, consuls map[string]*testenv.Consul) *testFleet {
	t.Helper()
	f := &testFleet{names: names, consuls: consuls, open: map[string]*consul.Client{}, prefix: prefix}
	var text strings.Builder
	text.WriteString("regions:\n")
	for _, name := range names {
		config := consul.Config{Addr: consuls[name].Addr(), Prefix: prefix}
		fmt.Fprintf(&text, "  - {name: %s, admin_networks: [127.0.0.0/8], consul: {addr: %q, prefix: %s}}\n", name, config.Addr, prefix)
		c, err := consul.Open(config)
		require.NoError(t, err)
		t.Cleanup(c.Close)
		f.open[name] = c
		_, err = c.NameRegion(t.Context(), name)
		require.NoError(t, err)
	}
	f.file = write(t, "fleet.yaml", text.String())
	return f
}

func (f *testFleet) rules(name string) *consul.Documents { return f.open[name].Documents("rules") }

func (f *testFleet) settings(name string) *consul.Documents {
	return f.open[name].Documents("shedder").Temporary()
}

// current returns a region's active version, "" if there is none.
func (f *testFleet) current(t testing.TB, name string) string {
	t.Helper()
	p, _, err := f.rules(name).Current(t.Context())
	require.NoError(t, err)
	if p == nil {
		return ""
	}
	return p.Version
}

// publish activates a document without regionctl.
func (f *testFleet) publish(t testing.TB, document, by string, names ...string) consul.Pointer {
	t.Helper()
	p := consul.NewPointer([]byte(document), by, time.Now())
	for _, name := range names {
		_, index, err := f.rules(name).Current(t.Context())
		require.NoError(t, err)
		_, err = f.rules(name).Put(t.Context(), []byte(document))
		require.NoError(t, err)
		done, err := f.rules(name).Activate(t.Context(), consul.Change{Pointer: p}, index)
		require.NoError(t, err)
		require.True(t, done)
	}
	return p
}

// try makes a site follow p without regionctl.
func (f *testFleet) try(t testing.TB, name, pop string, p consul.Pointer) {
	t.Helper()
	_, index, err := f.rules(name).Canary(t.Context(), pop)
	require.NoError(t, err)
	done, err := f.rules(name).SetCanary(t.Context(), pop, p, index)
	require.NoError(t, err)
	require.True(t, done)
}

// result is the outcome of a run.
type result struct {
	status      int
	out, errOut string
}

func (f *testFleet) run(t testing.TB, args ...string) result {
	t.Helper()
	return f.runContext(t, t.Context(), "", args...)
}

func (f *testFleet) program(in io.Reader, out, errOut io.Writer) *command.Program {
	p := command.NewProgram(term.New(in, out, errOut))
	p.Registering, p.CompletionTime = cmp.Or(f.registering, 300*time.Millisecond), ample
	return p
}

func (f *testFleet) runContext(t testing.TB, ctx context.Context, in string, args ...string) result {
	t.Helper()
	var out, errOut buffer
	err := run(ctx, f.program(strings.NewReader(in), &out, &errOut), append(args, "--fleet", f.file))
	return result{term.ExitStatus(err), out.String(), errOut.String()}
}

// good runs the program, which must succeed.
func (f *testFleet) good(t testing.TB, args ...string) result {
	t.Helper()
	r := f.run(t, args...)
	require.Zero(t, r.status, "%v\n%s%s", args, r.out, r.errOut)
	return r
}

// refused is the expected status and message of a failed command.
func (f *testFleet) refused(t testing.TB, status int, args ...string) string {
	t.Helper()
	r := f.run(t, args...)
	require.Equal(t, status, r.status, "%v\n%s%s", args, r.out, r.errOut)
	return r.errOut
}

// session is a run of the program with a user at its prompt.
type session struct {
	out, errOut buffer
	answers     *io.PipeWriter
	ended       chan error
	cancel      context.CancelFunc
}

func (f *testFleet) converse(t testing.TB, args ...string) *session {
	t.Helper()
	return f.begin(t, &session{}, args...)
}

// stopped begins a run that stops where it writes text to standard error, until resume is called.
func (f *testFleet) stopped(t testing.TB, text string, args ...string) (s *session, resume func()) {
	t.Helper()
	s = &session{errOut: buffer{stopAt: text, resume: make(chan struct{})}}
	resume = sync.OnceFunc(func() { close(s.errOut.resume) })
	t.Cleanup(resume)
	f.begin(t, s, args...).sees(t, text)
	return s, resume
}

func (f *testFleet) begin(t testing.TB, s *session, args ...string) *session {
	t.Helper()
	in, answers := io.Pipe()
	s.answers, s.ended = answers, make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	s.cancel = cancel
	p := f.program(in, &s.out, &s.errOut)
	p.Asks = true
	go func() { s.ended <- run(ctx, p, append(args, "--fleet", f.file)) }()
	t.Cleanup(func() {
		cancel()
		_ = answers.Close() // pending reads see the end
	})
	return s
}

// sees waits for text on standard error.
func (s *session) sees(t testing.TB, text string) {
	t.Helper()
	require.Eventually(t, func() bool { return strings.Contains(s.errOut.String(), text) }, patience, tick, "%q in:\n%s", text, &s.errOut)
}

func (s *session) answer(t testing.TB, line string) {
	t.Helper()
	_, err := io.WriteString(s.answers, line+"\n")
	require.NoError(t, err)
}

// end waits for the run to end.
func (s *session) end(t testing.TB) result {
	t.Helper()
	select {
	case err := <-s.ended:
		return result{term.ExitStatus(err), s.out.String(), s.errOut.String()}
	case <-time.After(patience):
		require.Fail(t, "does not end", "%s%s", &s.out, &s.errOut)
		return result{}
	}
}
