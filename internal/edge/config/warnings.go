package config

import (
	"fmt"
	"syscall"
	"time"
)

// reservedFiles are the open files of a node besides its clients and, for each of them, a
// connection to an upstream: the admin side, the store, Consul, logs.
const reservedFiles = 1000

// Warnings returns what is likely not meant in a configuration that works.
func (c *Config) Warnings() (list []string) {
	if l := &c.Listen; l.AdminTokenFile != "" && l.AdminTLS == nil && l.outside() {
		list = append(list, "listen.admin: the token travels in the clear to "+l.Admin+"; set listen.admin_tls")
	}
	if s, err := c.Listen.Certificates(); err == nil {
		s.Each(func(listener, file string, expires time.Time) {
			if time.Now().After(expires) {
				at := map[string]string{"public": "listen.tls", "admin": "listen.admin_tls", "decide": "listen.decide.tls", "spoe": "listen.spoe.tls", "rls": "listen.rls.tls", "peer": "listen.peer.tls"}[listener]
				list = append(list, fmt.Sprintf("%s: %s expired at %s, so clients refuse it; replace it and its key", at, file, expires.UTC().Format(time.RFC3339)))
			}
		})
	}
	for _, w := range c.Shedder.Settings().Warnings() {
		list = append(list, "shedder."+w)
	}
	list = append(list, c.routeWarnings()...)
	list = append(list, c.trustWarnings()...)
	var files syscall.Rlimit
	needs := 2*uint64(c.Server.MaxConnections) + reservedFiles
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files) == nil && files.Cur < needs {
		list = append(list, fmt.Sprintf("server.max_connections: %d connections need %d open files, and this process may open %d; lower it, or raise the limit (LimitNOFILE= in a systemd unit, ulimit -n in a shell)",
			c.Server.MaxConnections, needs, files.Cur))
	}
	return list
}
