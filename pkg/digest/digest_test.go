package digest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAppend(t *testing.T) {
	for _, value := range []string{"", "a", string(make([]byte, 5000))} {
		sum := sha256.Sum256([]byte(value))
		require.Equal(t, "k:~"+hex.EncodeToString(sum[:8]), string(Append([]byte("k:"), []byte(value), 8)))
	}
}

func TestAppendOverItsValue(t *testing.T) {
	buf := append(make([]byte, 0, 100), "k:secret"...)
	want := Append([]byte("k:"), []byte("secret"), 16)
	require.Equal(t, string(want), string(Append(buf[:2], buf[2:], 16)))
}

func TestAppendAllocatesNothing(t *testing.T) {
	value, buf := bytes.Repeat([]byte("v"), 300), make([]byte, 0, 100)
	require.LessOrEqual(t, testing.AllocsPerRun(1000, func() { buf = Append(buf[:0], value, 16) }), dropped)
}
