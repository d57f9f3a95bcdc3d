package httpconns

import (
	"net"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestConnectionsAtWorkStay(t *testing.T) {
	b, conns := New(), make([]net.Conn, Max+1)
	for i := range conns {
		conns[i], _ = net.Pipe()
	}
	last := conns[Max]
	for _, c := range conns[:Max] {
		require.Nil(t, b.note(c, http.StateNew))
		require.Nil(t, b.note(c, http.StateActive))
	}
	require.Equal(t, last, b.note(last, http.StateNew), "all others are busy")
	require.Nil(t, b.note(last, http.StateClosed))
	require.Nil(t, b.note(conns[7], http.StateIdle))
	require.Nil(t, b.note(conns[3], http.StateIdle))
	require.Equal(t, conns[7], b.note(last, http.StateNew))
	require.Nil(t, b.note(conns[7], http.StateActive), "its request came too late")
	require.Nil(t, b.note(conns[7], http.StateClosed))
	for _, c := range conns {
		b.note(c, http.StateClosed)
	}
	require.Zero(t, len(b.open)+b.waiting.Len())
}
