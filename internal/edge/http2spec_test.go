package edge

import (
	"encoding/xml"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/weir-edge/weir/internal/edge/config"
	"github.com/weir-edge/weir/internal/testenv"
)

// specCases is how many h2spec has: a release that drops some would otherwise go unnoticed.
const specCases = 146

// otherwise are the cases in which a node does what RFC 9113 allows and h2spec does not expect.
// TestHTTP2Otherwise holds it to that.
var otherwise = []string{
	"http2/6.5.3/1",   // a setting twice in one frame
	"http2/8.1.2.2/1", // Connection
	"http2/8.1.2.2/2", // TE
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
			var flags []string
			expected := otherwise
			if encrypted {
				files := testenv.Certificates(t)
				s.config = func(c *config.Config) { c.Listen.TLS, c.Listen.HTTP2.TLS = &config.TLS{Pair: pairOf(files)}, true }
				n, flags = start(t, s), []string{"-t", "-k"}
			} else {
				n, expected = startH2C(t, s), append([]string{"http2/3.5/2"}, otherwise...) // this listener speaks HTTP/1.1, too
			}
			cases, failed := conform(t, n.public, 2*time.Second, flags...)
			require.Equal(t, specCases, cases)
			require.Subset(t, failed, expected)
			unexpected := slices.DeleteFunc(failed, func(one string) bool { return slices.Contains(expected, one) })
			if len(unexpected) > 0 { // on a slow machine
				_, failed = conform(t, n.public, patience, append(flags, unexpected...)...)
				require.Empty(t, failed)
			}
			eventually(t, "nothing is left open", func() bool { return n.listeners.HTTP2.Connections() == 0 && n.listeners.HTTP2.Streams() == 0 })
			require.Zero(t, n.metric("weir_panics_total"))
		})
	}
	f("TLS", true)
	f("in the clear", false)
}

// conform runs h2spec, which waits this long for each frame. It returns how many cases it ran and those that failed.
func conform(t *testing.T, addr string, wait time.Duration, args ...string) (cases int, failed []string) {
	t.Helper()
	host, port, err := net.SplitHostPort(addr)
	require.NoError(t, err)
	report := filepath.Join(t.TempDir(), "report.xml")
	args = append([]string{"-S", "-h", host, "-p", port, "-o", strconv.Itoa(int(wait / time.Second)), "-j", report}, args...)
	out, _ := exec.Command(testenv.Tool(t, "github.com/summerwind/h2spec/cmd/h2spec"), args...).CombinedOutput() // fails if a case does
	text, err := os.ReadFile(report)
	require.NoError(t, err, "%s", out)
	var said struct {
		Sections []struct {
			Name  string `xml:"package,attr"`
			Cases []struct {
				Failure *struct{} `xml:"failure"`
				Skipped *struct{} `xml:"skipped"`
				Error   *struct{} `xml:"error"`
			} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	require.NoError(t, xml.Unmarshal(text, &said))
	for _, section := range said.Sections {
		for i, one := range section.Cases {
			cases++
			if one.Failure != nil || one.Skipped != nil || one.Error != nil {
				failed = append(failed, fmt.Sprintf("%s/%d", section.Name, i+1))
			}
		}
	}
	return cases, failed
}

// What the cases that fail get instead. None of it reaches the origin.
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
