package access

import (
	"crypto/tls"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
	"github.com/weir-edge/weir/pkg/certs"
)

const good = `
listen: 127.0.0.1:8443
public: https://weir.example.com
proxy: {from: [10.0.0.5/32, "2001:db8::/48"], header: X-Forwarded-User, groups_header: X-Forwarded-Groups}
roles: {reader: {groups: ["*"]}, operator: {groups: [sre]}, admin: {users: [ana@example.com]}}
`

func load(t *testing.T, text string) (*Config, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "console.yaml")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return Load(file)
}

func TestRolesOfPeople(t *testing.T) {
	c, err := load(t, good)
	require.NoError(t, err)
	require.Equal(t, "https://weir.example.com", c.Origin())
	f := func(want Role, name string, groups ...string) {
		t.Helper()
		require.Equal(t, want, c.Roles.of(name, groups))
	}
	f(Reader, "bob@example.com")
	f(Operator, "bob@example.com", "others", "sre")
	f(Admin, "ana@example.com", "sre")
	f(Reader, "sre")                                // a person's name is no group
	f(Reader, "bob@example.com", "ana@example.com") // nor a group a person
	c.Roles.Reader.Groups = nil
	f(None, "bob@example.com", "*")
}

// Every fault names its field.
func TestFaults(t *testing.T) {
	for text, saying := range map[string]string{
		"": "is empty", "listen: 127.0.0.1:8090\nuser: x": "user: unknown field", "public: https://x": "listen: is required",
		"listen: everywhere": "listen: must be an address and a port", "listen: 0.0.0.0:8090": "proxy: is required",
		"listen: 127.0.0.1:8090\nroles: {admin: {users: [ana]}}":                                                                    "roles: have no effect",
		"listen: 127.0.0.1:8090\npublic: https://x.example":                                                                         "public: has no effect",
		"listen: 0.0.0.0:1\npublic: https://x\nproxy: {from: [10.0.0.5/32], header: X-User}\nroles: {admin: {users: [a]}}":          "tls: is required",
		"listen: 127.0.0.1:1\nproxy: {from: [10.0.0.5/32], header: X-User}\nroles: {admin: {users: [a]}}":                           "public: is required",
		"listen: 127.0.0.1:1\npublic: http://x\nproxy: {from: [10.0.0.5/32], header: X-User}\nroles: {admin: {users: [a]}}":         "public: must be https://",
		"listen: 127.0.0.1:1\npublic: https://x/weir\nproxy: {from: [10.0.0.5/32], header: X-User}\nroles: {admin: {users: [a]}}":   "public: must be https://",
		"listen: 127.0.0.1:1\npublic: https://x\nproxy: {header: X-User}\nroles: {admin: {users: [a]}}":                             "proxy.from: is required",
		"listen: 127.0.0.1:1\npublic: https://x\nproxy: {from: [], header: X-User}\nroles: {admin: {users: [a]}}":                   "proxy.from: must name at least one",
		"listen: 127.0.0.1:1\npublic: https://x\nproxy: {from: [0.0.0.0/0], header: X-User}\nroles: {admin: {users: [a]}}":          "proxy.from[0]: is too wide",
		"listen: 127.0.0.1:1\npublic: https://x\nproxy: {from: [10.0.0.5/8], header: X-User}\nroles: {admin: {users: [a]}}":         "proxy.from[0]: must be the first address of its network; write 10.0.0.0/8",
		"listen: 127.0.0.1:1\npublic: https://x\nproxy: {from: [10.0.0.5], header: X-User}\nroles: {admin: {users: [a]}}":           "proxy.from[0]: must be a network",
		"listen: 127.0.0.1:1\npublic: https://x\nproxy: {from: [10.0.0.5/32]}\nroles: {admin: {users: [a]}}":                        "proxy.header: is required",
		"listen: 127.0.0.1:1\npublic: https://x\nproxy: {from: [10.0.0.5/32], header: X User}\nroles: {admin: {users: [a]}}":        "proxy.header: must be the name of a header",
		"listen: 127.0.0.1:1\npublic: https://x\nproxy: {from: [10.0.0.5/32], header: X_User}\nroles: {admin: {users: [a]}}":        "proxy.header: must be the name of a header",
		"listen: 127.0.0.1:1\npublic: https://x\nproxy: {from: [10.0.0.5/32], header: user-agent}\nroles: {admin: {users: [a]}}":    "proxy.header: must be a header that only the proxy sets",
		"listen: 127.0.0.1:1\npublic: https://x\nproxy: {from: [10.0.0.5/32], header: X-User, groups_header: x-user}\nroles: {}":    "proxy.groups_header: must differ",
		"listen: 127.0.0.1:1\npublic: https://x\nproxy: {from: [10.0.0.5/32], header: X-User}":                                      "roles: must give somebody a role",
		"listen: 127.0.0.1:1\npublic: https://x\nproxy: {from: [10.0.0.5/32], header: X-User}\nroles: {admin: {users: [\"*\"]}}":    "roles.admin.users[0]: must be the name of a person",
		"listen: 127.0.0.1:1\npublic: https://x\nproxy: {from: [10.0.0.5/32], header: X-User}\nroles: {root: {users: [ana]}}":       "roles.root: unknown field",
		"listen: 127.0.0.1:1\npublic: https://x\ntls: {cert_file: no.pem}\nproxy: {from: [10.0.0.5/32], header: X-User}\nroles: {}": "tls: must name both",
	} {
		_, err := load(t, text)
		require.ErrorContains(t, err, saying, "%s", text)
		require.ErrorContains(t, err, "console.yaml")
	}
}

// The listener speaks TLS with the certificate of the file, whose name is relative to it.
func TestTLS(t *testing.T) {
	files := testenv.Certificates(t)
	folder := t.TempDir()
	for from, to := range map[string]string{files.CertFile: "weir.pem", files.KeyFile: "weir.key"} {
		text, err := os.ReadFile(from)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(folder, to), text, 0o600))
	}
	file := filepath.Join(folder, "console.yaml")
	require.NoError(t, os.WriteFile(file, []byte(strings.Replace(good, "proxy:", "tls: {cert_file: weir.pem, key_file: weir.key}\nproxy:", 1)), 0o600))
	c, err := Load(file)
	require.NoError(t, err)
	a, err := New(c, "console")
	require.NoError(t, err)
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ln := a.Listen(plain)
	defer func() { _ = ln.Close() }()
	served := make(chan error, 1)
	go func() {
		conn, err := ln.Accept()
		if err == nil {
			err = errors.Join(conn.(*tls.Conn).Handshake(), conn.Close())
		}
		served <- err
	}()
	pool, err := certs.Pool(files.CAFile)
	require.NoError(t, err)
	conn, err := tls.Dial("tcp", ln.Addr().String(), &tls.Config{RootCAs: pool, ServerName: "localhost"})
	require.NoError(t, err)
	require.NoError(t, <-served)
	require.NoError(t, conn.Close())
	require.NoError(t, a.Reload())
	require.NoError(t, os.Remove(filepath.Join(folder, "weir.pem")))
	require.ErrorContains(t, a.Reload(), "weir.pem")
}
