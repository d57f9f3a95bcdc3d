package testenv

import (
	"path/filepath"
	"testing"
)

// Issuer starts an OpenID Connect provider (tools/issuer), and returns its address. The client
// is weir, its secret "secret"; ana, bob, carol and eve have the password "password".
func Issuer(t testing.TB, callback string) string {
	t.Helper()
	program := build(t, filepath.Join(moduleDir(), "tools", "issuer"), "issuer", "go", "build", ".")
	port := FreePorts(t, 1)[0]
	Serve(t, []int{port}, program, "-listen", address(port), "-callback", callback)
	return "http://" + address(port)
}
