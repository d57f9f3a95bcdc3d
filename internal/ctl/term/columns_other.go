//go:build !unix

package term

// terminalColumns is unknown on this platform.
func terminalColumns(uintptr) int { return 0 }
