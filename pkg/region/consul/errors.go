package consul

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"unicode"

	"github.com/hashicorp/consul/api"
)

// hidden reports an incomplete answer. Consul reports that only in a header; the
// shortened list looks complete.
func hidden(permission, on string) error {
	return fmt.Errorf("some entries are hidden from this token, which lacks permission '%s' on %q; add that to its policies", permission, on)
}

// errNull reports an answer that no Consul gives.
var errNull = errors.New("answer has null in place of an entry; is this Consul?")

// failure wraps err with the Consul's name, the failed action and a remedy. ctx is the
// request's context.
func (c *Client) failure(ctx context.Context, what string, err error) error {
	var outer *url.Error
	if errors.As(err, &outer) {
		err = outer.Err // the outer error already says the rest
	}
	var status api.StatusError
	var large *http.MaxBytesError
	var over *abandoned
	switch {
	case errors.As(err, &over):
		return over.error
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case endedWithoutAnswer(err):
		err = fmt.Errorf("the connection ended without an HTTP answer (%w); is this address Consul's HTTP port?", err)
	case errors.As(err, &large):
		err = fmt.Errorf("answer is longer than %d bytes; is this Consul?", large.Limit)
	case errors.As(err, &status):
		err = &StatusError{Code: status.Code, Text: shorten(status.Body), hint: c.hint(status.Code)}
	}
	return fmt.Errorf("%s: %s: %w", c.name, what, err)
}

// endedWithoutAnswer reports whether the server closed the connection or sent something
// other than HTTP. net/http has no types for most such errors; which one it returns
// depends on whether the connection ended before or after the request.
func endedWithoutAnswer(err error) bool {
	text := err.Error()
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) ||
		strings.Contains(text, "malformed HTTP") || strings.Contains(text, "server closed idle connection") ||
		strings.Contains(text, "readLoopPeekFailLocked")
}

func (c *Client) hint(code int) string {
	switch {
	case code == http.StatusForbidden && c.config.TokenFile == "":
		return "; name a file with a token in token_file"
	case code == http.StatusForbidden:
		return "; put a token whose policies allow this into " + c.config.TokenFile
	case code == http.StatusRequestEntityTooLarge:
		return "; write less, or raise limits.kv_max_value_size of Consul"
	}
	return ""
}

// StatusError is an answer in which Consul refuses a request. A denied or unknown token
// yields Code 403.
type StatusError struct {
	Code int
	Text string
	hint string
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("answered %d (%s)%s", e.Code, e.Text, e.hint)
}

// shorten keeps HTML pages and terminal control characters out of an error: a refusal may
// repeat others' data.
func shorten(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && !unicode.IsSpace(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(text[:min(len(text), 4096)], ""))
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > 300 {
		text = strings.ToValidUTF8(text[:300], "") + "…"
	}
	if text == "" {
		return "without a reason"
	}
	return text
}
