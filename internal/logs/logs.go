// Package logs makes the loggers of both programs, whose times are UTC.
package logs

import (
	"io"
	"log/slog"
)

// JSON returns a logger that writes a JSON object a line.
func JSON(w io.Writer, level slog.Level) *slog.Logger {
	return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level, ReplaceAttr: utc}))
}

// Text returns a logger for a person at a terminal.
func Text(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{ReplaceAttr: utc}))
}

// utc makes the lines of nodes in several time zones comparable as text.
func utc(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && a.Key == slog.TimeKey && a.Value.Kind() == slog.KindTime {
		a.Value = slog.TimeValue(a.Value.Time().UTC())
	}
	return a
}
