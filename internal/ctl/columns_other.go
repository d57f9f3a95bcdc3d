//go:build !unix

package ctl

// terminalColumns is not known here.
func terminalColumns(uintptr) int { return 0 }
