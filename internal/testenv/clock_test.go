package testenv

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestClock(t *testing.T) {
	c := NewClock(t)
	s := Redis(t, Options{Clock: c})
	for _, ahead := range []time.Duration{0, time.Hour, -24 * time.Hour} {
		c.Set(ahead)
		now, err := s.Client().Time(t.Context()).Result()
		require.NoError(t, err)
		require.WithinDuration(t, time.Now().Add(ahead), now, time.Minute)
	}
}
