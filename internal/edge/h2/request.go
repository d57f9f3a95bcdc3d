package h2

import (
	"errors"
	"net/http"
	"strconv"

	"github.com/valyala/fasthttp"
	"golang.org/x/net/http/httpguts"
)

// The faults of a request that another program might read in another way.
var (
	errMethod  = errors.New("the method is not one of HTTP's")
	errLength  = errors.New("the Content-Length is not the length of the body")
	errConnect = errors.New("CONNECT: this is not a forward proxy")
)

// appendHead appends the request's head in the form of HTTP/1.1. The http2 package has
// checked the names and values of header fields (none has a line break), and that the path
// begins with / or is *; it has joined the crumbs of cookies. A head of more than most bytes is an
// error.
func appendHead(b []byte, req *http.Request, most int) ([]byte, error) {
	switch {
	case req.Method == http.MethodConnect:
		return b, errConnect
	case !validMethod(req.Method):
		return b, errMethod
	}
	b = append(append(b, req.Method...), ' ')
	b = append(append(b, req.RequestURI...), " HTTP/1.1\r\nHost: "...)
	b = append(append(b, req.Host...), "\r\n"...)
	for name, values := range req.Header {
		if name == "Content-Length" {
			if len(values) != 1 || values[0] != strconv.FormatInt(req.ContentLength, 10) {
				return b, errLength
			}
			continue // it is written below
		}
		for _, v := range values {
			if len(b)+len(name)+len(v) > most { // do not copy more
				return b, &fasthttp.ErrSmallBuffer{}
			}
			b = append(append(b, name...), ": "...)
			b = append(append(b, v...), "\r\n"...)
		}
	}
	switch {
	case req.ContentLength > 0 || len(req.Header["Content-Length"]) > 0:
		b = append(b, "Content-Length: "...)
		b = append(strconv.AppendInt(b, req.ContentLength, 10), "\r\n"...)
	case req.ContentLength < 0:
		b = append(b, "Transfer-Encoding: chunked\r\n"...)
	}
	if b = append(b, "\r\n"...); len(b) > most {
		return b, &fasthttp.ErrSmallBuffer{}
	}
	return b, nil
}

// validMethod reports whether a method is a token: with a space in it, its line would have
// another target.
func validMethod(method string) bool { return httpguts.ValidHeaderFieldName(method) }
