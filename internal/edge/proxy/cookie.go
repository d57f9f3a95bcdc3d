package proxy

import (
	"github.com/valyala/fasthttp"

	"github.com/weir-edge/weir/pkg/limiter/rules"
)

// Cookie returns the first value of a cookie, and how many times it occurs. It reads the
// header as received: fasthttp's own Cookies removes quotes, and cookies that it takes for
// malformed, from what the origin gets.
func Cookie(h *fasthttp.RequestHeader, name string) (value []byte, n int) {
	for _, line := range h.PeekAll(fasthttp.HeaderCookie) {
		value, n = rules.FindCookie(line, name, value, n)
	}
	return value, n
}
