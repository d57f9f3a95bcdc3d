package redirect

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Redis writes IPv6 addresses without brackets.
func TestDialable(t *testing.T) {
	for addr, want := range map[string]string{
		"127.0.0.1:6379": "127.0.0.1:6379", "redis-1.example:6379": "redis-1.example:6379", ":6379": ":6379",
		"2001:db8::1:6381": "[2001:db8::1]:6381", "[2001:db8::1]:6381": "[2001:db8::1]:6381",
	} {
		require.Equal(t, want, dialable(addr))
	}
}
