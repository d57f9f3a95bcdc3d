package logs

import (
	"bytes"
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTimesAreUTC(t *testing.T) {
	at := time.Date(2026, 11, 22, 1, 30, 0, 0, time.FixedZone("somewhere", 2*3600))
	for name, open := range map[string]func(*bytes.Buffer) *slog.Logger{
		`{"time":"2026-11-21T23:30:00Z","level":"INFO","msg":"m","n":1}` + "\n": func(b *bytes.Buffer) *slog.Logger { return JSON(b, slog.LevelInfo) },
		"time=2026-11-21T23:30:00.000Z level=INFO msg=m n=1\n":                  func(b *bytes.Buffer) *slog.Logger { return Text(b) },
	} {
		var out bytes.Buffer
		log := open(&out)
		line := slog.NewRecord(at, slog.LevelInfo, "m", 0)
		line.Add("n", 1)
		require.NoError(t, log.Handler().Handle(context.Background(), line))
		require.Equal(t, name, out.String())
	}
}

func TestLevel(t *testing.T) {
	var out bytes.Buffer
	JSON(&out, slog.LevelWarn).Info("unseen")
	require.Empty(t, out.String())
}
