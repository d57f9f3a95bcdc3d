package peer

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
)

// rawClient speaks HTTP/2 with a node's certificate, and says what it wants.
func rawClient(t *testing.T, e *end, to Node) *http.Transport {
	t.Helper()
	protocols := &http.Protocols{}
	protocols.SetHTTP2(true)
	raw := &http.Transport{TLSClientConfig: dialing(e.Certificates, to), Protocols: protocols}
	t.Cleanup(raw.CloseIdleConnections)
	return raw
}

// packed compresses a body; claimed, if over 0, is what its header says instead of its length.
func packed(t testing.TB, body []byte, claimed uint64) []byte {
	t.Helper()
	e, err := zstd.NewWriter(nil, zstd.WithSingleSegment(true))
	require.NoError(t, err)
	defer e.Close()
	wire := e.EncodeAll(body, nil)
	if claimed == 0 {
		return wire
	}
	var h zstd.Header
	rest, err := h.DecodeAndStrip(wire)
	require.NoError(t, err)
	h.FrameContentSize = claimed
	head, err := h.AppendTo(nil)
	require.NoError(t, err)
	return append(head, rest...)
}

func TestHostileMessages(t *testing.T) {
	a, b, _ := pair(t)
	to := b.start(t)
	raw := rawClient(t, a, to)
	bomb := packed(t, make([]byte, 64<<20), 0)
	require.Less(t, len(bomb), 1<<20)
	for name, c := range map[string]struct {
		method, path string
		change       func(*http.Request)
		body         io.Reader
		status       int
		why          string
	}{
		"no length":           {body: io.MultiReader(strings.NewReader("x")), status: 411, why: "needs a Content-Length"},
		"too long":            {body: bytes.NewReader(make([]byte, MaxBody+1)), status: 413, why: "longer than 4194304 bytes"},
		"a bomb":              {body: bytes.NewReader(bomb), change: encoded("zstd"), status: 413, why: "longer than 4194304 bytes"},
		"a bomb that lies":    {body: bytes.NewReader(packed(t, make([]byte, 1<<20), 10_000)), change: encoded("zstd"), status: 400, why: "damaged"},
		"claims too much":     {body: bytes.NewReader(packed(t, []byte("short"), 1<<20)), change: encoded("zstd"), status: 400, why: "damaged"},
		"two frames":          {body: bytes.NewReader(append(packed(t, words(600), 0), packed(t, words(600), 0)...)), change: encoded("zstd"), status: 400, why: "damaged"},
		"noise":               {body: strings.NewReader(strings.Repeat("noise", 200)), change: encoded("zstd"), status: 400, why: "damaged"},
		"gzip":                {body: strings.NewReader("x"), change: encoded("gzip"), status: 415, why: "must be zstd or not encoded"},
		"GET":                 {method: "GET", status: 405, why: "must be POST"},
		"no such topic":       {path: "/v1/exchange/nothing", status: 404, why: "no topic nothing here"},
		"elsewhere":           {path: "/metrics", status: 404, why: "no topic"},
		"a control character": {path: "/v1/exchange/a%0Ab", status: 404, why: "no topic a here"},
		"no version":          {change: func(r *http.Request) { r.Header.Del(headerVersion) }, status: 406, why: "speaks versions 1"},
		"no node":             {change: func(r *http.Request) { r.Header.Del(headerNode) }, status: 400, why: "needs Weir-Region and Weir-Node"},
		"a long node":         {change: func(r *http.Request) { r.Header.Set(headerNode, strings.Repeat("a", 129)) }, status: 400, why: "needs Weir-Region and Weir-Node"},
		"another node":        {change: func(r *http.Request) { r.Header.Set(headerNode, "c") }, status: 403, why: "the message is from eu-west/c, but the certificate is that of eu-west/a"},
		"other regions":       {change: func(r *http.Request) { r.Header.Set(headerRegions, "0") }, status: 409, why: "the topology is being changed"},
	} {
		if c.method == "" {
			c.method = "POST"
		}
		if c.path == "" {
			c.path = "/v1/exchange/echo"
		}
		r, err := http.NewRequestWithContext(t.Context(), c.method, "https://"+to.Addr+c.path, c.body)
		require.NoError(t, err)
		a.sign(r.Header)
		r.Header.Set(headerVersion, "1")
		if c.change != nil {
			c.change(r)
		}
		resp, err := raw.RoundTrip(r)
		require.NoError(t, err, name)
		text, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		require.NoError(t, err, name)
		require.Equal(t, c.status, resp.StatusCode, "%s: %s", name, text)
		require.Contains(t, string(text), c.why, name)
		require.Equal(t, "1", resp.Header.Get(headerVersions), name)
	}
	requireNothingHeld(t, b)
	_, err := a.call(t, to, "it still answers")
	require.NoError(t, err)
}

func encoded(by string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set("Content-Encoding", by) }
}

func requireNothingHeld(t *testing.T, e *end) {
	t.Helper()
	eventually(t, "no memory is held", func() bool {
		r := e.server.room
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.all == 0 && len(r.node) == 0 && len(r.region) == 0
	})
}

// A peer that promises a body and does not send it loses its place, and keeps no other
// node's messages out.
func TestSlowPeersAreCutOff(t *testing.T) {
	a, b, authority := pair(t)
	b.server.http.ReadTimeout = 200 * time.Millisecond
	to := b.start(t)
	raw := rawClient(t, a, to)
	failed := make(chan error, 2*maxOfNode)
	for range 2 * maxOfNode {
		silent, end := io.Pipe()
		defer end.Close()
		r, err := http.NewRequestWithContext(t.Context(), "POST", "https://"+to.Addr+"/v1/exchange/echo", silent)
		require.NoError(t, err)
		r.ContentLength = MaxBody
		a.sign(r.Header)
		r.Header.Set(headerVersion, "1")
		go func() {
			resp, err := raw.RoundTrip(r)
			if err == nil {
				if resp.StatusCode != http.StatusBadRequest && resp.StatusCode != http.StatusServiceUnavailable {
					t.Errorf("status %d", resp.StatusCode)
				}
				_ = resp.Body.Close()
			}
			failed <- err
		}()
	}
	other := authority.Issue(time.Hour, "spiffe://weir/ap-south/c")
	c := newEnd(t, "ap-south", "c", &other)
	eventually(t, "another region gets in", func() bool { // with the same short time for its handshake
		_, err := c.call(t, to, "from another region")
		return err == nil
	})
	for range 2 * maxOfNode {
		<-failed
	}
	requireNothingHeld(t, b)
}

// Connections that never show a certificate are bounded, and a node gets in although they come
// from everywhere.
func TestStrangersTakeNoPlaces(t *testing.T) {
	a, b, _ := pair(t)
	b.server.pending = 10
	to := b.start(t)
	from := 0
	silent := func() net.Conn {
		from++
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 2, byte(from))}}
		c, err := d.DialContext(t.Context(), "tcp", to.Addr)
		require.NoError(t, err)
		t.Cleanup(func() { c.Close() })
		require.NoError(t, c.SetReadDeadline(time.Now().Add(patience)))
		return c
	}
	first := silent()
	for range 19 {
		silent()
	}
	eventually(t, "all have been accepted", func() bool { return b.refused.Load() == 10 })
	_, err := first.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF, "the oldest makes room")
	_, err = a.call(t, to, "x")
	require.NoError(t, err)
	all, unknown := b.server.listener.Load().Open()
	require.Equal(t, 9, unknown)
	require.Equal(t, 10, all)
}

// Anyone can get a node's certificate from that node. Without its key, it takes none of the node's places.
func TestCertificateWithoutItsKey(t *testing.T) {
	a, b, _ := pair(t)
	to := b.start(t)
	for range maxOfPeer {
		c, err := net.Dial("tcp", to.Addr)
		require.NoError(t, err)
		t.Cleanup(func() { c.Close() })
		require.NoError(t, tls.Client(&unproven{Conn: c}, dialing(a.Certificates, to)).Handshake())
	}
	eventually(t, "all have been accepted", func() bool { all, _ := b.server.listener.Load().Open(); return all == maxOfPeer })
	_, err := a.call(t, to, "x")
	require.NoError(t, err)
	_, unknown := b.server.listener.Load().Open()
	require.Equal(t, maxOfPeer, unknown)
}

// unproven sends a client's certificate, but not the proof that the client has its key.
type unproven struct {
	net.Conn
	encrypted int // records
}

func (c *unproven) Write(b []byte) (int, error) {
	const header, encrypted = 5, 23
	for rest := b; len(rest) > 0; {
		n := header + int(rest[3])<<8 + int(rest[4])
		if rest[0] == encrypted {
			c.encrypted++
		}
		if c.encrypted <= 1 {
			if _, err := c.Conn.Write(rest[:n]); err != nil {
				return 0, err
			}
		}
		rest = rest[n:]
	}
	return len(b), nil
}

// The bounds by themselves.
func TestRoom(t *testing.T) {
	r := newRoom()
	for range maxOfNode {
		require.True(t, r.begin("a"))
	}
	require.False(t, r.begin("a"))
	require.True(t, r.begin("b"))
	r.end("a")
	require.True(t, r.begin("a"))

	require.True(t, r.take("eu-west", maxRegionRoom))
	require.False(t, r.take("eu-west", 1), "half is for the others")
	require.True(t, r.take("us-east", maxRegionRoom))
	require.False(t, r.take("ap-south", 1))
	r.give("us-east", maxRegionRoom)
	require.True(t, r.take("ap-south", 1))
}

// One peer cannot hold more than its connections, and those that end are counted no more.
func TestConnectionsOfOnePeer(t *testing.T) {
	a, b, authority := pair(t)
	to := b.start(t)
	var open []*tls.Conn
	for range maxOfPeer {
		c, err := tls.Dial("tcp", to.Addr, dialing(a.Certificates, to))
		require.NoError(t, err)
		defer c.Close()
		require.NoError(t, c.SetReadDeadline(time.Now().Add(patience)))
		_, err = c.Read(make([]byte, 1)) // the server's settings
		require.NoError(t, err)
		open = append(open, c)
	}
	_, err := a.call(t, to, "one more")
	require.Error(t, err)
	other := authority.Issue(time.Hour, "spiffe://weir/ap-south/c")
	_, err = newEnd(t, "ap-south", "c", &other).call(t, to, "of another node")
	require.NoError(t, err)
	for _, c := range open {
		_ = c.Close()
	}
	eventually(t, "it gets in again", func() bool { _, err := a.call(t, to, "x"); return err == nil })
}

// Whatever arrives, reading it takes bounded memory and ends.
func FuzzRead(f *testing.F) {
	f.Add([]byte("hello"), "", int64(5))
	f.Add(packed(f, words(5000), 0), "zstd", int64(0))
	f.Add(packed(f, make([]byte, 5<<20), 0), "zstd", int64(0))
	f.Add(packed(f, words(5000), 10), "zstd", int64(0))
	f.Add([]byte{0x28, 0xb5, 0x2f, 0xfd, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, "zstd", int64(13))
	f.Add([]byte{0x50, 0x2a, 0x4d, 0x18, 4, 0, 0, 0, 1, 2, 3, 4}, "zstd", int64(12))
	f.Fuzz(func(t *testing.T, wire []byte, encoding string, length int64) {
		if length == 0 {
			length = int64(len(wire))
		}
		s := NewServer(Config{Self: Node{Region: "eu-west", ID: "a"}, Directory: NewDirectory(Node{}, nil), Log: quietLog()})
		r, err := http.NewRequestWithContext(context.Background(), "POST", "/v1/exchange/echo", bytes.NewReader(wire))
		require.NoError(t, err)
		r.ContentLength = length
		r.Header = http.Header{"Content-Encoding": {encoding}}
		held := 0
		testenv.Bounded(t, 4*MaxBody+64<<20, func() { // the decoder keeps tables
			body, refused := s.read(r, "us-east", &held)
			if refused == nil && len(body) > MaxBody {
				t.Errorf("%d bytes", len(body))
			}
			if refused != nil && (refused.status < 400 || refused.why == "") {
				t.Errorf("refused with %d %q", refused.status, refused.why)
			}
		})
		require.LessOrEqual(t, held, 2*MaxBody)
		s.room.give("us-east", held)
		require.Zero(t, s.room.all)
	})
}
