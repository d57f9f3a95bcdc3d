package testenv

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
)

// Issuer starts an OpenID Connect provider (tools/issuer), and returns its address. The client
// is weir, its secret "secret"; ana, bob, carol and eve have the password "password".
func Issuer(t testing.TB, callback string) string {
	t.Helper()
	program := build(t, filepath.Join(moduleDir(), "tools", "issuer"), "issuer", "go", "build", ".")
	addr, log := fmt.Sprintf("127.0.0.1:%d", FreePorts(t, 1)[0]), filepath.Join(t.TempDir(), "issuer.log")
	proc, err := startProcess(t.TempDir(), log, program, "-listen", addr, "-callback", callback)
	if err != nil {
		t.Fatalf("testenv: start issuer: %v", err)
	}
	t.Cleanup(proc.kill)
	err = poll(Patience, func() error {
		if proc.gone() {
			return errGone
		}
		resp, err := http.Get("http://" + addr + "/.well-known/openid-configuration")
		if err != nil {
			return err
		}
		return resp.Body.Close()
	})
	if err != nil {
		text, _ := os.ReadFile(log)
		t.Fatalf("testenv: the issuer does not start: %v\n%s", err, text)
	}
	return "http://" + addr
}
