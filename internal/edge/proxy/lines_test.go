package proxy

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// requestsOnTheWire are what clients send, good and bad.
var requestsOnTheWire = []string{
	"GET / HTTP/1.1\r\nHost: x\r\n\r\nGET /2 HTTP/1.1\r\nHost: x\r\n\r\n",
	"\r\n\r\nPOST / HTTP/1.1\r\nHost: x\r\ncontent-LENGTH:\t4 \r\n\r\n\n\r\n\nGET / HTTP/1.0\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n4;a=b\r\nab\n\n\r\n00\r\nX-T: 1\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nA\r\n0123456789\r\n0\r\n\r\n",
	"GET /" + strings.Repeat("p", 100) + " HTTP/1.1\r\nX: " + strings.Repeat("v", 100) + "\r\n\r\n",
	"GET / HTTP/1.1\nHost: x\r\n\r\n", "GET / HTTP/1.1\r\nHost: x\n\r\n", "\n", "\r\r\n", "GET / HTTP/1.1\r\n\n",
	"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\nx\r\n", "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: 1\n\r\n",
	"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n", "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n",
	"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1;\rx\r\n", "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX-" + strings.Repeat("n", 100) + " : 1\r\n\r\n",
	"POST / HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n", "POST / HTTP/1.1\r\nContent-Length: 1, 1\r\n\r\n",
}

// followed returns what lines lets pass of input that arrives in parts of the given
// sizes, in turn.
func followed(input []byte, sizes []byte) (passed []byte, err error) {
	var l lines
	for i := 0; len(input) > 0 && err == nil; i++ {
		size := len(input)
		if len(sizes) > 0 {
			size = min(size, 1+int(sizes[i%len(sizes)]))
		}
		var n int
		n, err = l.follow(input[:size])
		passed = append(passed, input[:n]...)
		input = input[size:]
	}
	return passed, err
}

// FuzzLines checks that lines passes the same bytes however they are split, and that a
// request that net/http reads ends at the same byte for lines.
func FuzzLines(f *testing.F) {
	for i, input := range requestsOnTheWire {
		f.Add([]byte(input), []byte{byte(i), 0, 2})
	}
	f.Fuzz(func(t *testing.T, input, sizes []byte) {
		whole, err := followed(input, nil)
		require.True(t, bytes.HasPrefix(input, whole))
		split, splitErr := followed(input, sizes)
		require.Equal(t, err, splitErr)
		require.True(t, bytes.HasPrefix(input, split))
		if err == nil {
			require.Equal(t, len(whole), len(split))
		}
		requireSameEnds(t, whole)
	})
}

// requireSameEnds checks that lines expects a request line wherever net/http has read a
// request to its end.
func requireSameEnds(t *testing.T, passed []byte) {
	t.Helper()
	for len(passed) > 0 {
		source := bytes.NewReader(passed)
		br := bufio.NewReaderSize(source, 16)
		req, err := http.ReadRequest(br)
		if err != nil {
			return
		}
		if _, err := io.Copy(io.Discard, req.Body); err != nil {
			return
		}
		end := len(passed) - source.Len() - br.Buffered()
		var l lines
		if n, err := l.follow(passed[:end]); err != nil || n != end {
			return // what lines refuses never gets this far
		}
		if len(req.Trailer) == 0 && len(req.TransferEncoding) == 0 {
			require.Equal(t, requestLine, l.part, "%q", passed[:end])
			require.Zero(t, l.left, "%q", passed[:end])
		}
		passed = passed[end:]
	}
}

func TestFollowingLinesDoesNotAlloc(t *testing.T) {
	for i, input := range requestsOnTheWire {
		var l lines
		b := []byte(input)
		require.Zero(t, testing.AllocsPerRun(100, func() {
			l = lines{}
			for at := range b {
				if _, err := l.follow(b[at : at+1]); err != nil {
					return
				}
			}
		}), "%d: %q", i, input)
	}
}

func BenchmarkLines(b *testing.B) {
	header := []byte("GET /api/users/42?full=1 HTTP/1.1\r\nHost: api.example.com\r\nUser-Agent: test\r\nAccept: */*\r\nX-Api-Key: example\r\n\r\n")
	for _, body := range []int{0, 64 << 10} {
		input := append(bytes.TrimSuffix(header, []byte("\r\n")), fmt.Sprintf("Content-Length: %d\r\n\r\n", body)...)
		input = append(input, make([]byte, body)...)
		b.Run(fmt.Sprint(body), func(b *testing.B) {
			b.SetBytes(int64(len(input)))
			b.ReportAllocs()
			var l lines
			for b.Loop() {
				if _, err := l.follow(input); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// Extensions of chunks are bounded, in one line and over all, however they arrive.
func TestExtensionsOfChunksAreBounded(t *testing.T) {
	const begin = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
	f := func(body string, passes int) {
		t.Helper()
		for _, sizes := range [][]byte{nil, {0}, {6, 99, 255}} {
			passed, err := followed([]byte(begin+body), sizes)
			if passes < 0 {
				require.NoError(t, err)
				require.Equal(t, len(begin+body), len(passed))
				continue
			}
			require.ErrorIs(t, err, errExcess)
			require.Equal(t, len(begin)+passes, len(passed))
		}
	}
	f(strings.Repeat("1\r\nx\r\n", 100_000)+"0\r\n\r\n", -1)
	f(strings.Repeat("1;a=b;c=d\r\nx\r\n", 100_000)+"0\r\n\r\n", -1)
	f(strings.Repeat("1;"+strings.Repeat("e", 29)+"\r\nx\r\n", 1000), -1)
	f("1;"+strings.Repeat("e", 16_000)+"\r\nx\r\n0\r\n\r\n", -1)
	f("1;"+strings.Repeat("e", 20_000), maxExcess)
	f("1;"+strings.Repeat("e", 20_000)+"\r\nx\r\n0\r\n\r\n", maxExcess)
	line := "1;" + strings.Repeat("e", 115) // with its carriage return, 100 bytes too many
	f(strings.Repeat(line+"\r\nx\r\n", 1000), 163*(len(line)+5)+84)
}
