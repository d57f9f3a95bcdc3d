package proxy

import (
	"bufio"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"
)

func parsedHeader(t *testing.T, text string) *fasthttp.RequestHeader {
	h := &fasthttp.RequestHeader{}
	require.NoError(t, h.Read(bufio.NewReader(strings.NewReader(text))))
	return h
}

// A header that DefinitelyLacks denies is one that fasthttp does not have.
func TestLacks(t *testing.T) {
	const all = "GET / HTTP/1.0\r\nhost: a\r\nX-API-KEY: k\r\nx_odd: 1\r\nCoOkIe: a=b\r\nUSER-agent: u\r\ncontent-type: t\r\nE: 1\r\n\r\n"
	asked := []string{
		"Host", "X-Api-Key", "X_odd", "X-Odd", "Cookie", "User-Agent", "Content-Type", "E", "Accept", "Accept-Encoding", "Authorization",
		"X-Forwarded-For", "X-Weir-Class", "Connection", "Content-Length", "Trailer", "Te", "X", "",
	}
	for _, text := range []string{all, "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n", "GET / HTTP/1.1\r\nConnection: close\r\nHost: a\r\n\r\n"} {
		h := parsedHeader(t, text)
		form, err := CheckFraming(h)
		require.NoError(t, err)
		require.Nil(t, OriginForm(h, "b"))
		for _, name := range asked {
			if form.DefinitelyLacks(name) {
				require.Empty(t, h.PeekAll(name), "%s of %q", name, text)
			}
		}
	}
	form, err := CheckFraming(parsedHeader(t, all))
	require.NoError(t, err)
	require.True(t, form.DefinitelyLacks("X-Weir-Class"))
	require.True(t, form.DefinitelyLacks("Accept"))
	require.False(t, HeaderScan{}.DefinitelyLacks("Accept"), "not checked")

	form, err = CheckFraming(parsedHeader(t, "GET / HTTP/1.1\r\nHost: a\r\nX-A: 1\r\n 2\r\nAccept: a\r\n\r\n"))
	require.Error(t, err)
	require.False(t, form.DefinitelyLacks("Accept"), "it comes after the fault")

	form, err = CheckFraming(&fasthttp.RequestHeader{})
	require.NoError(t, err)
	require.False(t, form.DefinitelyLacks("Accept"), "made by hand")
}

// What may have to be removed one by one, each at the cost of all headers, is bounded: otherwise a
// header of 1 MiB would take its square.
func TestFewHeadersAreRemovedOneByOne(t *testing.T) {
	for _, c := range []struct {
		name string
		text func(n int) string
	}{
		{"named on a line", func(n int) string { return "Connection: close" + strings.Repeat(",a", n) + "\r\n" }},
		{"named on lines", func(n int) string { return strings.Repeat("connection: a, keep-alive\r\n", n) }},
		{"unusual", func(n int) string { return strings.Repeat("x_a: 1\r\n", n) }},
	} {
		_, err := CheckFraming(parsedHeader(t, "GET / HTTP/1.1\r\nHost: a\r\n"+c.text(maxOdd)+"\r\n"))
		require.NoError(t, err, c.name)
		_, err = CheckFraming(parsedHeader(t, "GET / HTTP/1.1\r\nHost: a\r\n"+c.text(maxOdd+1)+"\r\n"))
		require.ErrorIs(t, err, errOdd, c.name)
	}
}
