package testenv

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Crowd opens n connections to an HTTP server, asks each for path twice, and returns how many
// answered the second time.
func Crowd(t testing.TB, addr, path string, n int) int {
	t.Helper()
	conns := make([]net.Conn, n)
	for i := range conns {
		c, err := net.Dial("tcp", addr)
		require.NoError(t, err)
		defer c.Close()
		require.NoError(t, c.SetDeadline(time.Now().Add(Patience)))
		conns[i] = c
	}
	ask := func() (answered int) {
		for _, c := range conns {
			_, _ = io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: "+addr+"\r\n\r\n") // it may be closed
			if resp, err := http.ReadResponse(bufio.NewReader(c), nil); err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				answered++
			}
		}
		return answered
	}
	ask()
	return ask()
}
