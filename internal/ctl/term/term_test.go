package term

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSettle(t *testing.T) {
	alive := context.Background()
	ended, cancel := context.WithCancel(alive)
	cancel()
	f := func(ctx context.Context, err error, want int) {
		t.Helper()
		require.Equal(t, want, ExitStatus(Settle(ctx, err)))
	}
	f(alive, nil, 0)
	f(alive, errors.New("x"), StatusFailed)
	f(alive, Failed("x"), StatusFailed)
	f(alive, Misused("x"), StatusUsage)
	f(alive, Partial("x"), StatusPartial)
	f(alive, Conflict("x"), StatusConflict)
	f(alive, context.Canceled, StatusFailed)
	f(ended, fmt.Errorf("consul: %w", context.Canceled), StatusInterrupted)
	f(ended, Failed("consul: %w", context.Canceled), StatusInterrupted)
	f(ended, Conflict("consul: %w", context.Canceled), StatusConflict)
	f(ended, errors.New("x"), StatusFailed)
	f(ended, nil, 0)
	require.Equal(t, "exit status 1", (&Failure{Status: 1}).Error())
}

func TestText(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for d, want := range map[time.Duration]string{
		0: "0s", -time.Hour: "0s", 59 * time.Second: "59s", 5 * time.Minute: "5m", 3*time.Hour + 5*time.Minute: "3h5m", 72 * time.Hour: "3d",
	} {
		require.Equal(t, want, Ago(now, now.Add(-d)))
	}
	require.Equal(t, 5, width("\x1b[31mgrün!\x1b[0m"))
	require.Equal(t, "ab…", Clip("abcd", 3))
	require.Equal(t, "a?b?c?", Printable("a\x1bb\nc\xff"))
	require.Equal(t, "-", OrDash(""))
	require.Equal(t, "1 rule, 2 rules", Plural(1, "rule")+", "+Plural(2, "rule"))
}

func TestProgress(t *testing.T) {
	var b bytes.Buffer
	l := &lines{w: &b}
	l.Update([]string{"a 1", ""})
	l.Update([]string{"a 1", "b 1"})
	l.Update([]string{"a 2", "b 1"})
	require.Equal(t, "a 1\nb 1\na 2\n", b.String(), "elsewhere each line is written when it changes")
	b.Reset()
	l = &lines{w: &b, live: true, width: 10}
	l.Update([]string{"a", "b"})
	l.Update([]string{"0123456789abc", "b"})
	require.Equal(t, "\r\x1b[Ka\n\r\x1b[Kb\n\x1b[2A\r\x1b[K01234567…\n\r\x1b[Kb\n", b.String())
}

func TestColors(t *testing.T) {
	p := &Terminal{Live: true}
	t.Setenv("TERM", "xterm")
	require.True(t, p.ErrStyle().On)
	p.NoColor = true
	require.False(t, p.ErrStyle().On)
	p.NoColor = false
	t.Setenv("NO_COLOR", "1")
	require.False(t, p.ErrStyle().On)
	require.Equal(t, "x", Style{}.Red("x"))
}
