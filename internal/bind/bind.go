// Package bind listens on addresses, and says what to do if that fails.
package bind

import (
	"errors"
	"fmt"
	"net"
	"syscall"
)

// TCP listens on an address. Its errors are those of Error.
func TCP(addr string) (net.Listener, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, Error(err)
	}
	return l, nil
}

// Error adds the remedy to an error of listening. Callers put the setting before it.
func Error(err error) error {
	switch {
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		return fmt.Errorf("%w; a port below 1024 needs a privilege: give the program cap_net_bind_service (deploy/systemd does; or setcap cap_net_bind_service=+ep on it), or use a port above 1023", err)
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("%w; stop the program that uses it (ss -lnutp shows which; for port 53 it is often systemd-resolved), or use another address", err)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Errorf("%w; this host does not have that address (ip address shows which it has): use one of those", err)
	}
	return err
}
