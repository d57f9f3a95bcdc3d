package edge

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/weir-edge/weir/internal/edge/config"
)

// tinyParts is how many bytes a body has in these tests, each of which is sent in a chunk of its own.
const tinyParts = 100_000

// parts is how a body arrived: in so many chunks or DATA frames.
type parts struct {
	number, size int
	err          error
}

func tinyChunks() string { return strings.Repeat("1\r\nx\r\n", tinyParts) + "0\r\n\r\n" }

// readChunks reads a header and the chunks behind it.
func readChunks(br *bufio.Reader) (start string, got parts) {
	start, got.err = br.ReadString('\n')
	for line := start; got.err == nil && line != "\r\n"; {
		line, got.err = br.ReadString('\n')
	}
	for got.err == nil && !strings.Contains(start, "/answer") {
		var line string
		if line, got.err = br.ReadString('\n'); got.err != nil {
			break
		}
		var size int
		_, got.err = fmt.Sscanf(line, "%x\r\n", &size)
		if size == 0 {
			_, got.err = br.Discard(2)
			break
		}
		got.number, got.size = got.number+1, got.size+size
		_, got.err = br.Discard(size + 2)
	}
	return start, got
}

// readFrames reads a header and the DATA frames behind it.
func readFrames(f *http2.Framer) (head *http2.MetaHeadersFrame, got parts) {
	if f.ReadMetaHeaders == nil {
		f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	}
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return head, parts{err: err}
		}
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				_ = f.WriteSettingsAck()
			}
		case *http2.PingFrame:
			if !frame.IsAck() {
				_ = f.WritePing(true, frame.Data)
			}
		case *http2.MetaHeadersFrame:
			if head = frame; frame.StreamEnded() {
				return head, got
			}
		case *http2.DataFrame:
			if size := len(frame.Data()); size > 0 {
				got.number, got.size = got.number+1, got.size+size
			}
			if frame.StreamEnded() {
				return head, got
			}
		case *http2.GoAwayFrame, *http2.RSTStreamFrame:
			return head, parts{err: fmt.Errorf("%v", frame)}
		}
	}
}

// openWindows lets the other end send a whole body.
func openWindows(f *http2.Framer) {
	_ = f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
	_ = f.WriteWindowUpdate(0, 1<<20)
}

// uploadedTo starts an origin of HTTP/1.1 or HTTP/2, which tells in which parts bodies came. The one of
// HTTP/1.1 answers /answer with a body in tiny chunks.
func uploadedTo(t *testing.T, scheme string, uploads chan<- parts) (addr string) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = ln.Close() })
	serve := func(c net.Conn, br *bufio.Reader) {
		for start, got := readChunks(br); got.err == nil; start, got = readChunks(br) {
			if strings.Contains(start, "/answer") {
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"+tinyChunks())
				continue
			}
			uploads <- got
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		}
	}
	if scheme == "h2c" {
		serve = func(c net.Conn, br *bufio.Reader) {
			_, _ = br.Discard(len(http2.ClientPreface))
			f := http2.NewFramer(c, br)
			openWindows(f)
			for head, got := readFrames(f); got.err == nil; head, got = readFrames(f) {
				uploads <- got
				var b bytes.Buffer
				_ = hpack.NewEncoder(&b).WriteField(hpack.HeaderField{Name: ":status", Value: "200"})
				_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: head.StreamID, BlockFragment: b.Bytes(), EndHeaders: true, EndStream: true})
			}
		}
	}
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				serve(c, bufio.NewReader(c))
			}()
		}
	}()
	return ln.Addr().String()
}

// Tiny chunks of a body that have arrived together are forwarded together, from a client and from an
// origin, to either protocol.
func TestTinyChunksAreForwardedTogether(t *testing.T) {
	uploads := make(chan parts, 1)
	begin := func(scheme string) *node {
		origin := uploadedTo(t, scheme, uploads)
		return startH2C(t, setup{config: func(c *config.Config) { c.Upstreams = []config.Upstream{{URL: scheme + "://" + origin}} }})
	}
	check := func(name string, got parts) {
		t.Helper()
		require.NoError(t, got.err)
		require.Equal(t, tinyParts, got.size)
		t.Logf("%s: %d parts for each MB", name, got.number*1_000_000/tinyParts)
		require.Less(t, got.number, tinyParts/20)
	}
	for _, scheme := range []string{"http", "h2c"} {
		n := begin(scheme)
		require.Equal(t, []int{200}, statuses(n.raw(lines("POST /upload HTTP/1.1", "Host: a", "Connection: close", "Transfer-Encoding: chunked")+tinyChunks())))
		check("an upload to "+scheme, <-uploads)
	}
	n := begin("http")
	c, err := net.Dial("tcp", n.public)
	require.NoError(t, err)
	defer c.Close()
	_, err = io.WriteString(c, lines("GET /answer HTTP/1.1", "Host: a"))
	require.NoError(t, err)
	_, got := readChunks(bufio.NewReader(c))
	check("an answer to HTTP/1.1", got)
	a := n.attacker()
	a.Path = "/answer"
	openWindows(a.Framer)
	_, err = a.Open(true)
	require.NoError(t, err)
	_, got = readFrames(a.Framer)
	check("an answer to HTTP/2", got)
}

// chunksOnTheWire are the chunks of "abcd".
const chunksOnTheWire = "1\r\na\r\n2;x\r\nbc\r\n1\r\nd\r\n"

// wholeChunks returns how many bytes of data the whole chunks of its first cut bytes have.
func wholeChunks(cut int) int {
	switch {
	case cut < 6:
		return 0
	case cut < 15:
		return 1
	case cut < 21:
		return 3
	}
	return 4
}

// A part of a body is forwarded once it has arrived, wherever the sender pauses after it.
func TestPartsAreForwardedAtOnce(t *testing.T) {
	arrived, next := make(chan byte, 10), make(chan bool)
	origin := originOfBoth(t, func(w http.ResponseWriter, r *http.Request) {
		switch cut, err := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/answer/")); {
		case err != nil:
			one := make([]byte, 1)
			for {
				if _, err := io.ReadFull(r.Body, one); err != nil {
					return
				}
				arrived <- one[0]
			}
		case r.ProtoMajor == 1:
			c, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				return
			}
			defer c.Close()
			for _, piece := range []string{"HTTP/1.1 200 OK\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n", chunksOnTheWire[:cut], chunksOnTheWire[cut:], "0\r\n\r\n"} {
				_, _ = io.WriteString(c, piece)
				<-next
			}
		default:
			for _, part := range []string{"", "abcd"[:wholeChunks(cut)], "abcd"[wholeChunks(cut):], ""} {
				_, _ = io.WriteString(w, part)
				_ = http.NewResponseController(w).Flush()
				<-next
			}
		}
	})
	got := func(count int) string {
		var b []byte
		for range count {
			b = append(b, <-arrived)
		}
		return string(b)
	}
	for _, scheme := range []string{"http", "h2c"} {
		n := startH2C(t, setup{config: func(c *config.Config) { c.Upstreams = []config.Upstream{{URL: scheme + "://" + origin}} }})
		f := func(client string, cut int) {
			n.client.Transport = &http.Transport{DisableKeepAlives: true}
			if client == "HTTP/2" {
				n.speakHTTP2(nil)
			}
			whole := wholeChunks(cut)
			resp, err := n.client.Get(fmt.Sprintf("http://%s/answer/%d", n.public, cut)) // returns with the header
			require.NoError(t, err)
			defer resp.Body.Close()
			for _, count := range []int{0, whole, 4 - whole, 0} {
				b := make([]byte, count)
				_, err := io.ReadFull(resp.Body, b)
				require.NoError(t, err)
				next <- true
			}
			_, err = resp.Body.Read(make([]byte, 1))
			require.Equal(t, io.EOF, err)

			if client == "HTTP/2" {
				r, w := io.Pipe()
				go func() {
					_, _ = io.WriteString(w, "abcd"[:whole])
					<-next
					_, _ = io.WriteString(w, "abcd"[whole:])
					<-next
					_ = w.Close()
				}()
				resp := make(chan error, 1)
				go func() {
					_, err := n.client.Post("http://"+n.public+"/upload", "", r)
					resp <- err
				}()
				require.Equal(t, "abcd"[:whole], got(whole))
				next <- true
				require.Equal(t, "abcd"[whole:], got(4-whole))
				next <- true
				require.NoError(t, <-resp)
				return
			}
			c, err := net.Dial("tcp", n.public)
			require.NoError(t, err)
			defer c.Close()
			_, err = io.WriteString(c, lines("POST /upload HTTP/1.1", "Host: a", "Transfer-Encoding: chunked")+chunksOnTheWire[:cut])
			require.NoError(t, err)
			require.Equal(t, "abcd"[:whole], got(whole))
			_, err = io.WriteString(c, chunksOnTheWire[cut:])
			require.NoError(t, err)
			require.Equal(t, "abcd"[whole:], got(4-whole))
			_, err = io.WriteString(c, "0\r\n\r\n")
			require.NoError(t, err)
			answer, err := http.ReadResponse(bufio.NewReader(c), nil)
			require.NoError(t, err)
			require.Equal(t, 200, answer.StatusCode)
		}
		for cut := range len(chunksOnTheWire) + 1 {
			f("HTTP/1.1", cut)
			f("HTTP/2", cut)
		}
	}
}
