package recent

import (
	"fmt"

	"github.com/weir-edge/weir/internal/edge/accesslog"
)

// Config says which recent requests are kept.
type Config struct {
	Keep int `yaml:"keep"` // how many requests to keep, 512 bytes each: 0, or 100 to 200000
	// Share is the part of the clients whose requests are kept, over 0 to 1, the same on all nodes:
	// all requests of a client, so that rules that count by client can be replayed.
	Share       float64  `yaml:"share"`
	Headers     []string `yaml:"headers"`       // request headers to keep, at most 8
	HashKeyFile string   `yaml:"hash_key_file"` // as access_log.hash_key_file
}

const (
	fewest      = 100
	most        = 200_000
	mostHeaders = 8
)

// Validate reports faults by calling fault with a path below recent.
func (c *Config) Validate(fault func(path, format string, args ...any)) {
	if c.Keep != 0 && (c.Keep < fewest || c.Keep > most) {
		fault("keep", "must be 0, or between %d and %d (got %d)", fewest, most, c.Keep)
	}
	if !(c.Share > 0 && c.Share <= 1) {
		fault("share", "must be over 0, and at most 1 (got %v)", c.Share)
	}
	if len(c.Headers) > mostHeaders {
		fault("headers", "must be at most %d (got %d)", mostHeaders, len(c.Headers))
	}
	for i, name := range c.Headers {
		if !accesslog.ValidHeader(name) {
			fault(fmt.Sprintf("headers[%d]", i), "must be the name of a header (got %q)", name)
		}
	}
	if c.HashKeyFile != "" {
		if _, err := accesslog.NewRedactor(c.HashKeyFile, nil); err != nil {
			fault("hash_key_file", "%v", err)
		}
	}
}
