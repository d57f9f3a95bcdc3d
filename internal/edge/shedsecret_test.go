package edge

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/edge/config"
)

const secretText = "0123456789abcdef0123456789abcdef"

func TestSecretIsReadAgainAndNeverShown(t *testing.T) {
	file := filepath.Join(t.TempDir(), "shedder-secret")
	write := func(text string) {
		t.Helper()
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	}
	write(secretText + "\n")
	n := start(t, setup{config: func(c *config.Config) { c.Shedder.SecretFile = file }})
	first := n.secret.Active()
	require.EqualValues(t, 1, n.metric(`weir_shedder_secret_info{fingerprint="`+first.Fingerprint()+`"}`))

	write("too short")
	eventually(t, "the fault is in the log", func() bool { return len(n.logs.lines(t, "reload shedder secret")) == 1 })
	require.Same(t, first, n.secret.Active(), "the active secret stays")
	require.NoError(t, os.Remove(file))
	eventually(t, "so is the next", func() bool { return len(n.logs.lines(t, "reload shedder secret")) == 2 })
	require.Same(t, first, n.secret.Active())

	next := strings.Repeat("fedcba9876543210", 2)
	write(next)
	eventually(t, "the new secret is active", func() bool { return n.secret.Active() != first })
	require.EqualValues(t, 1, n.metric(`weir_shedder_secret_info{fingerprint="`+n.secret.Active().Fingerprint()+`"}`))
	_, known := n.series(`weir_shedder_secret_info{fingerprint="` + first.Fingerprint() + `"}`)
	require.False(t, known)

	shown := n.logs.String()
	for _, path := range []string{"/v1/shedder", "/v1/rules", "/v1/node", "/readyz", "/metrics", "/v1/explain?client=127.0.0.1&path=/"} {
		shown += n.operate("GET", path).body
	}
	for _, text := range []string{secretText, next, "too short"} {
		require.NotContains(t, shown, text)
	}
}

func TestSecretOfANodeThatCountsAlone(t *testing.T) {
	n := start(t, setup{})
	require.NotNil(t, n.secret.Active())
	require.EqualValues(t, 1, n.metric(`weir_shedder_secret_info{fingerprint="own"}`))
}

func TestSecretIsChecked(t *testing.T) {
	file := filepath.Join(t.TempDir(), "shedder-secret")
	require.NoError(t, os.WriteFile(file, []byte("  short\n"), 0o600))
	c := config.Dev("127.0.0.1:1")
	c.Rules.File, c.Shedder.SecretFile = filepath.Join(t.TempDir(), "rules.yaml"), file
	require.NoError(t, os.WriteFile(c.Rules.File, []byte("rules: []"), 0o600))
	require.NoError(t, c.Validate())
	want := "shedder.secret_file: " + file + " must hold a secret of at least 16 bytes, as of: openssl rand -hex 32 (got 5)"
	_, err := config.Check(c)
	require.EqualError(t, err, want)
	_, err = New(c, "rules: []", discard())
	require.EqualError(t, err, want)
}
