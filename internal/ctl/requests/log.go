package requests

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/weir-edge/weir/internal/ctl/command"
	"github.com/weir-edge/weir/internal/ctl/term"
)

// ProgressBar shows how much of a log has been read; the size of a pipe is unknown.
func ProgressBar(bytes, size, lines int64) string {
	if size <= 0 {
		return fmt.Sprintf("%d lines, %d MB", lines, bytes>>20)
	}
	const columns = 40
	done := int(min(columns, bytes*columns/size))
	return fmt.Sprintf("[%s%s] %3d%%, %d lines", strings.Repeat("=", done), strings.Repeat(" ", columns-done), min(100, bytes*100/size), lines)
}

// OpenLog opens a log to replay, "-" for standard input, and returns its size, 0 if it has none.
func OpenLog(p *command.Program, name string) (in io.ReadCloser, size int64, err error) {
	if name == "-" {
		return io.NopCloser(p.In), 0, nil
	}
	log, err := os.Open(name)
	if err != nil {
		return nil, 0, term.Misused("%w", err)
	}
	if info, err := log.Stat(); err == nil && info.Mode().IsRegular() {
		size = info.Size()
	}
	return log, size, nil
}
