package rules

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// nginx accepts anything behind the padding, Python anything between the digits, and most
// decoders any bits after the last byte.
func TestBasicCredentialsInAnyForm(t *testing.T) {
	hash := func(value string) string { return HashOf("header:Authorization", value) }
	for _, same := range [][]string{
		{"Basic YTpi", "basic  YTpi", "Basic YTpi="},
		{"Basic YWw6Yg==", "Basic YWw6Yg", "Basic YWw6Yg=", "Basic YWw6Yh==", "Basic YWw6Yv"},
		{"Basic YWw6YmI=", "Basic YWw6YmI", "Basic YWw6YmJ=", "Basic YWw6YmL="},
		{"Basic YTpi=1", "Basic YTpi==zz", "Basic Y.T.p.i", "Basic YT pi", "Basic YTpi\xff", "Basic -_"},
	} {
		for _, form := range same {
			require.Equal(t, hash(same[0]), hash(form), form)
		}
	}
	require.Equal(t, HashOf("header:X-Api-Key", "Basic YWw6Yg=="), hash("Basic YWw6Yg=="), "the correct form keeps its count")
	for _, other := range []string{"Basic YWw6Yw==", "Basic YTpi", "Basic ywW6yG==", "Bearer YWw6Yg=="} {
		require.NotEqual(t, hash("Basic YWw6Yg=="), hash(other), other)
	}
	require.NotEqual(t, hash("Bearer YWw6Yg=="), hash("Bearer YWw6Yg"), "tokens have no other form")
}
