package term

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{
		time.Minute: "1m", time.Hour: "1h", 90 * time.Second: "1m30s", 50 * time.Millisecond: "50ms", 90 * time.Minute: "1h30m",
		10 * time.Second: "10s", 3600*time.Second + 5*time.Second: "1h0m5s", 10 * time.Minute: "10m", 20 * time.Hour: "20h",
	} {
		require.Equal(t, want, Duration(d))
	}
}
