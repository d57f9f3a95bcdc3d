package proxy

import "github.com/valyala/fasthttp"

// Cookie returns the first value of a cookie, and how many times it occurs.
func Cookie(h *fasthttp.RequestHeader, name string) (value []byte, n int) {
	for k, v := range h.Cookies() {
		if string(k) == name {
			if n++; n == 1 {
				value = v
			}
		}
	}
	return value, n
}
