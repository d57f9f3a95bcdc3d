package region

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"unicode"

	"github.com/hashicorp/consul/api"
)

// errHidden says that an answer is incomplete, which Consul reports only in
// passing: a list without the rest looks like a list.
var errHidden = errors.New("some entries are hidden from this token; add them to its policies")

// failure says what could not be done, with whom, and what to do. ctx is that of
// the request.
func (c *Consul) failure(ctx context.Context, what string, err error) error {
	var outer *url.Error
	if errors.As(err, &outer) {
		err = outer.Err // the rest of it is in what
	}
	var status api.StatusError
	var large *http.MaxBytesError
	switch {
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case errors.As(err, &large):
		err = fmt.Errorf("answer is longer than %d bytes; is this Consul?", large.Limit)
	case errors.As(err, &status):
		err = &StatusError{Code: status.Code, Text: shorten(status.Body), hint: c.hint(status.Code)}
	}
	return fmt.Errorf("%s: %s: %w", c.name, what, err)
}

func (c *Consul) hint(code int) string {
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

// StatusError is an answer of Consul that refuses a request. A denied or unknown
// token is Code 403.
type StatusError struct {
	Code int
	Text string
	hint string
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("answered %d (%s)%s", e.Code, e.Text, e.hint)
}

// shorten keeps a page of HTML out of an error, and what a terminal would obey: a
// refusal may repeat what others sent.
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
