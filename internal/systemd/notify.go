// Package systemd reports the state of a program to the service manager that started it.
package systemd

import (
	"log/slog"
	"net"
	"os"
)

// Notify sends a state, such as READY=1, as sd_notify(3) does. Without systemd it does nothing. An error is logged:
// systemd stops a service that does not report READY=1 within TimeoutStartSec.
func Notify(log *slog.Logger, state string) {
	socket := os.Getenv("NOTIFY_SOCKET")
	if socket == "" {
		return
	}
	conn, err := net.Dial("unixgram", socket)
	if err == nil {
		defer conn.Close()
		_, err = conn.Write([]byte(state))
	}
	if err != nil {
		log.Error("cannot notify systemd, which stops services that do not become ready; check NOTIFY_SOCKET", "state", state, "error", err.Error())
	}
}
