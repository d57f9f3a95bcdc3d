package consul

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/pkg/certs"
	"github.com/weir-edge/weir/pkg/field"
)

// Config describes how to reach a Consul agent or server.
type Config struct {
	// Addr is host:port or https://host:port; absent: 127.0.0.1:8500. TLS is
	// used with https://, and whenever a field of tls is set.
	Addr string `yaml:"addr" json:"addr"`
	// Datacenter is the one that holds the keys and nodes; absent: the agent's own. Registration
	// always goes to the agent.
	Datacenter string `yaml:"datacenter" json:"datacenter,omitempty"`
	// TokenFile is the file that holds the ACL token. It is read for each request, so the token
	// may change while the program runs.
	TokenFile string `yaml:"token_file" json:"token_file,omitempty"`
	// TLS is how to verify Consul, and the certificate to show it.
	TLS *certs.Client `yaml:"tls" json:"tls,omitempty"`
	// Prefix is the prefix of all keys; absent: weir.
	Prefix string `yaml:"prefix" json:"prefix,omitempty"`
	// Dial, if not nil, replaces the network.
	Dial Dialer `yaml:"-" json:"-"`
	// Guard, if not nil, is called before each write; its error prevents the write.
	Guard func(context.Context) error `yaml:"-" json:"-"`
}

// Dialer opens a connection, as net.Dialer.DialContext does.
type Dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

// Validate returns every fault as field.Errors, or nil. Named files must exist.
func (c *Config) Validate() error {
	f := &field.Errors{}
	_, addr := c.Endpoint()
	if strings.Contains(addr, "://") {
		f.Add("addr", "must be host:port or https://host:port (got %q)", c.Addr)
	} else if host, port, err := net.SplitHostPort(addr); err != nil || host == "" || strings.ContainsAny(addr, "/?#@ ") {
		f.Add("addr", "must be host:port or https://host:port (got %q)", c.Addr)
	} else if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		f.Add("addr", "port must be between 1 and 65535 (got %q)", port)
	} else if strings.HasPrefix(c.Addr, "http://") && c.secured() {
		f.Add("addr", "must begin with https:// when tls is set (got %q)", c.Addr)
	}
	if c.Datacenter != "" && !cleanPart(c.Datacenter) {
		f.Add("datacenter", "must be a datacenter's name in letters, digits, _ and - (got %q)", c.Datacenter)
	}
	f.File("token_file", c.TokenFile)
	if c.Prefix != "" && (!cleanPath(c.Prefix) || strings.Contains(c.Prefix, ":")) {
		f.Add("prefix", "must be names of letters, digits and . _ - separated by / (got %q)", c.Prefix)
	}
	f.Take("tls", c.TLS.Validate())
	return f.Err()
}

// Endpoint returns the scheme and host:port to use.
func (c *Config) Endpoint() (scheme, addr string) {
	scheme, addr = "http", c.Addr
	if c.secured() {
		scheme = "https"
	}
	if rest, ok := strings.CutPrefix(addr, "https://"); ok {
		scheme, addr = "https", rest
	} else if rest, ok := strings.CutPrefix(addr, "http://"); ok {
		addr = rest
	}
	addr = strings.TrimSuffix(addr, "/")
	if c.Addr == "" {
		addr = DefaultAddr
	}
	return scheme, addr
}

func cleanPart(name string) bool {
	return cleanPath(name) && !strings.ContainsAny(name, "/.:") && len(name) <= 64
}

func (c *Config) secured() bool { return c.TLS != nil && *c.TLS != certs.Client{} }

// readToken returns the token in a file, or "" if no file is named.
func readToken(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("token_file: %w", err)
	}
	token := strings.TrimSpace(string(data))
	if token == "" {
		return "", fmt.Errorf("token_file: %s is empty; write the token into it", file)
	}
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return "", fmt.Errorf("token_file: %s contains more than one word; write only the token into it", file)
	}
	return token, nil
}

// authorized adds the file's current token to each request.
type authorized struct {
	next      http.RoundTripper
	tokenFile string
	clock     *clock
	most      int64 // bytes of an answer
	abandoned atomic.Pointer[abandoned]
}

// abandoned is why a client sends no more requests.
type abandoned struct{ error }

// tokenOf is the context key for a Config whose token a request carries instead of the
// client's own.
type tokenOf struct{}

// RoundTrip sends one request.
func (a *authorized) RoundTrip(r *http.Request) (*http.Response, error) {
	if over := a.abandoned.Load(); over != nil {
		return nil, over
	}
	file := a.tokenFile
	if c, ok := r.Context().Value(tokenOf{}).(*Config); ok {
		file = c.TokenFile
	}
	token, err := readToken(file)
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // a buffer; Close cannot fail
		}
		return nil, err
	}
	// The client library reads these from the environment.
	r = r.Clone(r.Context())
	r.Header.Del("X-Consul-Token")
	if token != "" {
		r.Header.Set("X-Consul-Token", token)
	}
	if q := r.URL.Query(); q.Has("ns") || q.Has("partition") {
		q.Del("ns")
		q.Del("partition")
		r.URL.RawQuery = q.Encode()
	}
	resp, err := a.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	a.clock.hear(resp.Header.Get("Date"), time.Now())
	resp.Body = http.MaxBytesReader(nil, resp.Body, a.most)
	// Any web server can answer 404. Reading that as a missing key would turn a wrong
	// address into an answer.
	if resp.StatusCode == http.StatusNotFound && strings.HasPrefix(r.URL.Path, "/v1/kv/") && resp.Header.Get("X-Consul-Index") == "" {
		_ = resp.Body.Close() // the body does not matter
		return nil, errors.New("answered 404 without X-Consul-Index; this is not Consul, correct addr")
	}
	return resp, nil
}
