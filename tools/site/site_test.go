package main

import (
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

func TestFaultsOfASite(t *testing.T) {
	const policy = `<meta http-equiv="Content-Security-Policy" content="default-src 'self'">`
	f := func(text, want string) {
		t.Helper()
		_, err := check(fstest.MapFS{
			"index.html":  {Data: []byte(`<head>` + policy + `</head><h2 id="here">`)},
			"a/page.html": {Data: []byte(text)},
			"a/x.png":     {},
		})
		if want == "" {
			require.NoError(t, err)
			return
		}
		require.EqualError(t, err, want)
	}
	f(policy+`<h2 id="a"><a href="#a"></a><a href="../index.html#here"></a><a href=".."></a><a href="https://example.com/x#y"></a><img src="x.png">`, "")
	f(policy+`<a href="gone.html">`, "a/page.html: gone.html: no such file")
	f(policy+`<a href="#gone"></a><a href="..#gone">`, "a/page.html: #gone: no such heading\na/page.html: ..#gone: no such heading")
	f(policy+`<a href="../../above.html">`, "a/page.html: ../../above.html: no such file")
	f(policy+`<a href="/index.html">`, "a/page.html: /index.html: is not within the site")
	f(policy+`<script src="https://example.com/x.js"></script>`, "a/page.html: https://example.com/x.js: is not within the site")
	f(policy+`<link rel="stylesheet" href="//example.com/x.css">`, "a/page.html: //example.com/x.css: is not within the site")
	f(policy+`<style>a { background: url("https://example.com/x.png") }</style>`, `a/page.html: loads url("https://example.com/x.png`)
	f(policy+`<p>| a | b |</p>`, "a/page.html: is not HTML: | a | b |")
	f(`<p>text</p>`, "a/page.html: its Content-Security-Policy lets it load from other sites")
}
