package replay

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-edge/weir/pkg/limiter/rules"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func load(t testing.TB, text string) *rules.Set {
	t.Helper()
	set, err := rules.Load([]byte(text))
	require.NoError(t, err)
	return set
}

// run replays lines, all of them valid.
func run(t testing.TB, c Config, lines ...string) *Report {
	t.Helper()
	r, err := Run(t.Context(), c, strings.NewReader(strings.Join(lines, "\n")+"\n"))
	require.NoError(t, err)
	require.Empty(t, r.Skips)
	return r
}

func parsed(t testing.TB, c Config, line string) (*entry, error) {
	t.Helper()
	e, text := &entry{}, &arena{}
	p := &parser{config: &c}
	err := p.parse(text.keep([]byte(line)), e, text)
	return e, err
}

// golden compares with a file of testdata, which WEIR_GOLDEN=write rewrites.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if os.Getenv("WEIR_GOLDEN") == "write" {
		require.NoError(t, os.WriteFile(file, got, 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), string(got), "if this is intended, run WEIR_GOLDEN=write go test ./internal/ctl/replay")
}

// traffic is a generated log: it is written while it is read, so it needs no memory.
type traffic struct {
	lines, done int
	write       func(b *bytes.Buffer, x *sample)
	random      *rand.Rand
	zipf        *rand.Zipf
	now         time.Time
	buf         bytes.Buffer
}

// sample holds a line's fields.
type sample struct {
	time   time.Time
	client netip.Addr
	path   string
	key    string
}

// newTraffic generates lines of clients whose shares follow Zipf's law.
func newTraffic(lines, clients int, write func(*bytes.Buffer, *sample)) *traffic {
	random := rand.New(rand.NewPCG(1, 2))
	return &traffic{
		lines: lines, write: write, random: random, zipf: rand.NewZipf(random, 1.1, 1, uint64(clients-1)),
		now: time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC),
	}
}

func (t *traffic) Read(p []byte) (int, error) {
	for t.buf.Len() == 0 {
		if t.done == t.lines {
			return 0, io.EOF
		}
		t.done++
		t.now = t.now.Add(time.Duration(t.random.IntN(2000)) * time.Microsecond)
		n := uint32(t.zipf.Uint64())
		x := sample{
			time: t.now, client: netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)}),
			path: [...]string{"/", "/api/orders", "/api/orders/17?full=1", "/login", "/static/app%2Ejs"}[t.random.IntN(5)],
			key:  fmt.Sprintf("key-%d", n%1000),
		}
		t.buf.Reset()
		t.write(&t.buf, &x)
	}
	return t.buf.Read(p)
}

func asJSON(b *bytes.Buffer, x *sample) {
	fmt.Fprintf(b, `{"time":%q,"client":"%s","method":"GET","host":"api.example.com","uri":%q,"status":200,"bytes":5120,"duration":0.012,`+
		`"headers":{"User-Agent":["Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36"],"X-Api-Key":[%q],"Accept":["*/*"]}}`+"\n",
		x.time.Format(time.RFC3339Nano), x.client, x.path, x.key)
}

func asCombined(b *bytes.Buffer, x *sample) {
	fmt.Fprintf(b, `%s - - [%s] "GET %s HTTP/1.1" 200 5120 "https://example.com/" "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36"`+"\n",
		x.client, x.time.Format(commonLogTime), x.path)
}

func indented(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.MarshalIndent(v, "", "  ")
	require.NoError(t, err)
	return append(b, '\n')
}

func text(t testing.TB, r *Report) string {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, r.WriteText(&b))
	return b.String()
}

// reader delivers s like a connection.
func reader(s string) *bufio.Reader { return bufio.NewReader(strings.NewReader(s)) }
