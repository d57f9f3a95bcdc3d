package proxy

import (
	"bufio"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// weir notices a client that hangs up on a silent stream, although nothing is written
// to it.
func TestSilentStreamNoticesTheClientsEnd(t *testing.T) {
	e := newEdge(t, Config{StreamTimeout: time.Hour, Upstreams: []string{evil(t, func(c net.Conn, br *bufio.Reader) {
		if _, ok := head(br); ok {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
			_, _ = io.Copy(io.Discard, br)
		}
	})}}, ForwardOptions{})
	for _, behind := range []string{"", "bytes that nobody reads"} {
		c, err := net.Dial("tcp", e.addr)
		require.NoError(t, err)
		_, err = io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n"+behind)
		require.NoError(t, err)
		_, ok := head(bufio.NewReader(c))
		require.True(t, ok)
		require.NoError(t, c.Close())
		e.wait(t)
	}
	require.Eventually(t, func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return slices.Equal(e.streams, []Kind{KindClient, KindClient})
	}, patience, time.Millisecond)
}
