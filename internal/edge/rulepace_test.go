package edge

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPace(t *testing.T) {
	at := func(d time.Duration) time.Time { return time.Unix(0, 0).Add(d) }
	p := newPace(at(0))
	require.False(t, p.restDue(at(workAtOnce-1)))
	require.True(t, p.restDue(at(workAtOnce)))
	p.woken = at(10 * workAtOnce)
	require.False(t, p.restDue(at(11*workAtOnce-1)))
	require.True(t, p.restDue(at(11*workAtOnce)))
	p.woken = at(restWithin - 2*workAtOnce)
	require.True(t, p.restDue(at(restWithin)))
	require.False(t, p.restDue(at(restWithin+1)), "the rules are late enough")
}
