package lazy

import (
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// counting counts how often its timers are moved.
type counting struct {
	net.Conn
	moved int
}

func (c *counting) SetReadDeadline(t time.Time) error  { c.moved++; return c.Conn.SetReadDeadline(t) }
func (c *counting) SetWriteDeadline(t time.Time) error { c.moved++; return c.Conn.SetWriteDeadline(t) }

func lazyPair(t *testing.T) (*Conn, *counting, net.Conn) {
	t.Helper()
	near, far := net.Pipe()
	t.Cleanup(func() { near.Close(); far.Close() })
	c := &counting{Conn: near}
	return &Conn{Conn: c}, c, far
}

func TestLazyDeadlineMovesWhenItFires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, inner, far := lazyPair(t)
		start := time.Now()
		for i := range 100 { // each later than the one before
			require.NoError(t, c.SetReadDeadline(start.Add(time.Duration(50+i)*time.Millisecond)))
		}
		require.Equal(t, 1, inner.moved)
		_, err := c.Read(make([]byte, 1))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.Equal(t, start.Add(149*time.Millisecond), time.Now(), "the requested deadline")
		require.Equal(t, 2, inner.moved)

		require.NoError(t, c.SetReadDeadline(time.Time{}))
		go func() { _, _ = far.Write([]byte("x")) }()
		n, err := c.Read(make([]byte, 1))
		require.NoError(t, err, "a cleared deadline does not end a call")
		require.Equal(t, 1, n)
	})
}

func TestLazyDeadlineMovesForward(t *testing.T) {
	c, _, _ := lazyPair(t)
	require.NoError(t, c.SetDeadline(time.Now().Add(time.Hour)))
	require.NoError(t, c.SetDeadline(time.Now().Add(-time.Second)))
	_, err := c.Read(make([]byte, 1))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	_, err = c.Write([]byte("x"))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
}

// A write that an old deadline interrupts continues where it stopped.
func TestLazyDeadlineKeepsWhatWasWritten(t *testing.T) {
	c, _, far := lazyPair(t)
	require.NoError(t, c.SetWriteDeadline(time.Now().Add(30*time.Millisecond)))
	require.NoError(t, c.SetWriteDeadline(time.Now().Add(time.Hour)))
	got := make(chan string)
	go func() {
		text := ""
		buf := make([]byte, 2)
		for len(text) < 6 {
			n, err := far.Read(buf)
			if err != nil {
				break
			}
			if text += string(buf[:n]); len(text) == 2 {
				<-time.After(60 * time.Millisecond) // past the first deadline
			}
		}
		got <- text
	}()
	n, err := c.Write([]byte("abcdef"))
	require.NoError(t, err)
	require.Equal(t, 6, n)
	require.Equal(t, "abcdef", <-got)
}
