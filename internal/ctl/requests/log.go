package requests

import (
	"fmt"
	"strings"
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
