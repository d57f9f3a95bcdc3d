//go:build unix

package term

import "golang.org/x/sys/unix"

// terminalColumns asks the terminal how wide it is; 0 if it does not say.
func terminalColumns(fd uintptr) int {
	size, err := unix.IoctlGetWinsize(int(fd), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return int(size.Col)
}
