package edge

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	specconfig "github.com/summerwind/h2spec/config"
	"github.com/summerwind/h2spec/generic"
	hpackspec "github.com/summerwind/h2spec/hpack"
	h2spec "github.com/summerwind/h2spec/http2"
	"github.com/summerwind/h2spec/spec"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/weir-edge/weir/internal/edge/config"
	"github.com/weir-edge/weir/internal/testenv"
)

// specCases is how many h2spec has: a release that drops some would otherwise go unnoticed.
const specCases = 146

// otherwise are the cases in which a node does what RFC 9113 allows and h2spec does not expect.
// TestHTTP2Otherwise holds it to that.
var otherwise = map[string]bool{
	"http2/6.5.3/1":   true, // a setting twice in one frame
	"http2/8.1.2.2/1": true, // Connection
	"http2/8.1.2.2/2": true, // TE
}

// Every case of h2spec, the strict ones included, over TLS and in the clear.
func TestHTTP2Conforms(t *testing.T) {
	f := func(name string, encrypted bool) {
		t.Run(name, func(t *testing.T) {
			s := setup{origin: func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				_, _ = io.WriteString(w, "long enough for windows of a few bytes")
			}}
			var n *node
			if encrypted {
				files := testenv.Certificates(t)
				s.config = func(c *config.Config) { c.Listen.TLS, c.Listen.HTTP2.TLS = &config.TLS{Pair: pairOf(files)}, true }
				n = start(t, s)
			} else {
				n = startH2C(t, s)
			}
			host, port, err := net.SplitHostPort(n.public)
			require.NoError(t, err)
			c := &specconfig.Config{Host: host, Path: "/", Timeout: patience, MaxHeaderLen: 4000, Strict: true, TLS: encrypted, Insecure: true}
			c.Port, err = strconv.Atoi(port)
			require.NoError(t, err)
			cases := 0
			for _, g := range []*spec.TestGroup{generic.Spec(), h2spec.Spec(), hpackspec.Spec()} {
				cases += conform(t, c, g)
			}
			require.Equal(t, specCases, cases)
			eventually(t, "nothing is left open", func() bool { return n.http2.Connections() == 0 && n.http2.Streams() == 0 })
			require.Zero(t, n.metric("weir_panics_total"))
		})
	}
	f("TLS", true)
	f("in the clear", false)
}

// conform runs the cases of a group and of those below it, and returns how many there are.
func conform(t *testing.T, c *specconfig.Config, g *spec.TestGroup) (cases int) {
	for i, tc := range append(g.Tests, g.StrictTests...) {
		cases++
		id := fmt.Sprintf("%s/%d", g.ID(), i+1)
		if otherwise[id] || id == "http2/3.5/2" && !c.TLS { // on a listener that speaks HTTP/1.1, too
			continue
		}
		t.Run(id, func(t *testing.T) {
			conn, err := spec.Dial(c)
			require.NoError(t, err)
			defer conn.Close()
			require.NoError(t, tc.Run(c, conn), "%s: %s", tc.Desc, tc.Requirement)
		})
	}
	for _, below := range g.Groups {
		cases += conform(t, c, below)
	}
	return cases
}

// What the cases that conform leaves out get instead. None of it reaches the origin.
func TestHTTP2Otherwise(t *testing.T) {
	n := startH2C(t, setup{})

	a := n.attacker()
	window := http2.Setting{ID: http2.SettingInitialWindowSize, Val: 100}
	require.NoError(t, a.WriteSettings(window, window))
	code, said := a.Ends()
	require.True(t, said)
	require.Equal(t, http2.ErrCodeProtocol, code)

	for _, field := range []string{"connection keep-alive", "te trailers, deflate"} {
		a = n.attacker()
		a.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
		id, err := a.Open(true, field)
		require.NoError(t, err)
		status := ""
		a.Frames(func(f http2.Frame) bool {
			if head, ok := f.(*http2.MetaHeadersFrame); ok && head.StreamID == id {
				status = head.PseudoValue("status")
			}
			return status != ""
		})
		require.Equal(t, "400", status, field)
	}

	conn, err := net.Dial("tcp", n.public)
	require.NoError(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, "INVALID CONNECTION PREFACE\r\n\r\n")
	require.NoError(t, err)
	got, err := io.ReadAll(conn)
	require.NoError(t, err, "closed")
	require.Contains(t, string(got), "HTTP/1.1 400 ")
	require.Zero(t, n.asked.Load())
}
