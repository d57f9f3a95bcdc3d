// Package consul is the client of a region's Consul: it reads and publishes documents,
// registers and lists edge nodes, and follows both through outages.
//
// It reports changes and failures through callbacks. It makes no decisions for its
// caller, stores nothing on disk and logs nothing.
package consul

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hashicorp/consul/api"
)

const (
	// DefaultAddr replaces an empty Config.Addr.
	DefaultAddr = "127.0.0.1:8500"
	// DefaultPrefix replaces an empty Config.Prefix.
	DefaultPrefix = "weir"

	dialTimeout = 2 * time.Second
	// answerTimeout bounds queries that do not block.
	answerTimeout = 5 * time.Second
	// blockFor is how long Consul holds a blocking query; Consul adds up to a sixteenth
	// so that queries do not all end together.
	blockFor = 10 * time.Second
	// leeway is how much longer a watch waits. It exceeds the 7 s for which Consul holds
	// a request while it elects a leader.
	leeway = 10 * time.Second

	// maxAnswer bounds one answer: about 20,000 history entries or 8,000 nodes.
	maxAnswer = 16 << 20
)

// Client talks to one datacenter's Consul through one agent or server. It is safe for
// concurrent use.
type Client struct {
	config    Config
	name      string // for messages
	prefix    string
	api       *api.Client
	transport *http.Transport
	sender    *authorized
	clock     *clock
	lookEvery time.Duration // how often to check for a lost registration; tests shorten it
	holdFor   time.Duration // how long another node's check must fail; tests shorten it
}

// Open returns a client for the Consul that c names. It reads the certificates but does
// not connect yet. It ignores environment variables such as CONSUL_HTTP_TOKEN.
func Open(c Config) (*Client, error) { return openBounded(c, maxAnswer) }

// openBounded is Open for answers of at most that many bytes.
func openBounded(c Config, most int64) (*Client, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	scheme, addr := c.Endpoint()
	secure := (*tls.Config)(nil)
	if scheme == "https" {
		var err error
		if secure, err = c.TLS.Load(); err != nil {
			return nil, fmt.Errorf("tls.%w", err)
		}
	}
	transport := &http.Transport{
		DialContext: (&net.Dialer{
			Timeout: dialTimeout,
			// A blocking query is silent for seconds. Without probes, a network that
			// drops packets would go unnoticed until the query times out.
			KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 5 * time.Second, Count: 3},
		}).DialContext,
		TLSClientConfig:     secure,
		TLSHandshakeTimeout: answerTimeout,
		// HTTP/1.1 only, so that a dead connection fails only one request.
		TLSNextProto:        map[string]func(string, *tls.Conn) http.RoundTripper{},
		MaxIdleConnsPerHost: 8,
		IdleConnTimeout:     90 * time.Second,
	}
	if c.Dial != nil {
		transport.DialContext = c.Dial
	}
	clock := &clock{}
	sender := &authorized{next: transport, tokenFile: c.TokenFile, clock: clock, most: most}
	client, err := api.NewClient(&api.Config{
		Address: addr, Scheme: scheme, Datacenter: c.Datacenter,
		// Without one, the library looks for a token in the environment.
		Token: "replaced by authorized",
		HttpClient: &http.Client{
			Transport: sender,
			// Following a redirect would reveal the token to its target.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	})
	if err != nil {
		return nil, fmt.Errorf("addr: %w", err)
	}
	name := "consul " + addr
	if c.Datacenter != "" {
		name += " (" + c.Datacenter + ")"
	}
	return &Client{config: c, name: name, prefix: cmp.Or(c.Prefix, DefaultPrefix), api: client, transport: transport, sender: sender, clock: clock, lookEvery: lookEvery, holdFor: holdFor}, nil
}

// Close closes idle connections. Requests in progress and watches end with their
// contexts.
func (c *Client) Close() { c.transport.CloseIdleConnections() }

// Abandon makes all later requests fail at once with err, so that a Consul that does not
// answer costs its caller one timeout.
func (c *Client) Abandon(err error) { c.sender.abandoned.Store(&abandoned{err}) }

// Pulse returns an error if Consul does not answer within bound or has no leader.
func (c *Client) Pulse(ctx context.Context, bound time.Duration) error {
	ctx, cancel := within(ctx, bound)
	defer cancel()
	leader, err := c.api.Status().LeaderWithQueryOptions(query{}.options(ctx))
	if err == nil && leader == "" {
		err = errors.New("none is elected")
	}
	if err != nil {
		return c.failure(ctx, "find the leader", err)
	}
	return nil
}

// String names the agent or server, and the datacenter if one is configured.
func (c *Client) String() string { return c.name }

// Prefix returns the prefix of all keys.
func (c *Client) Prefix() string { return c.prefix }

// Datacenter returns the configured datacenter; empty means the agent's own.
func (c *Client) Datacenter() string { return c.config.Datacenter }

// Key returns the path of a key under the prefix: Key("rules", "current") is
// weir/rules/current.
func (c *Client) Key(parts ...string) string {
	return c.prefix + "/" + strings.Join(parts, "/")
}

// Entry is one key in Consul. A key without content has an empty Value; a missing key
// has no Entry.
type Entry struct {
	Key         string
	Value       []byte
	ModifyIndex uint64
}

// query holds the options of a read. The zero query does not block.
type query struct {
	index      uint64 // if above 0, block until there is something newer
	consistent bool   // the leader first verifies with its peers that it still leads
}

// bound returns how long an answer to q may take.
func (q query) bound() time.Duration {
	if q.index == 0 {
		return leeway
	}
	return blockFor + blockFor/16 + leeway
}

func (q query) options(ctx context.Context) *api.QueryOptions {
	o := &api.QueryOptions{WaitIndex: q.index, RequireConsistent: q.consistent}
	if q.index > 0 {
		o.WaitTime = blockFor
	}
	return o.WithContext(ctx)
}

// get reads one key and returns the index for the next blocking query.
func (c *Client) get(ctx context.Context, key string, q query, bound time.Duration) (*Entry, uint64, error) {
	what := "read " + key
	ctx, cancel := q.within(ctx, bound)
	defer cancel()
	if err := c.checkKey(key); err != nil {
		return nil, 0, c.failure(ctx, what, err)
	}
	pair, meta, err := c.api.KV().Get(key, q.options(ctx))
	if err != nil {
		return nil, 0, c.failure(ctx, what, err)
	}
	if pair == nil {
		return nil, meta.LastIndex, nil
	}
	return &Entry{Key: pair.Key, Value: pair.Value, ModifyIndex: pair.ModifyIndex}, meta.LastIndex, nil
}

// Get reads one key, or nil if it is missing.
func (c *Client) Get(ctx context.Context, key string) (*Entry, error) {
	entry, _, err := c.get(ctx, key, query{}, answerTimeout)
	return entry, err
}

// List reads all keys under a prefix.
func (c *Client) List(ctx context.Context, prefix string) ([]Entry, error) {
	entries, _, err := c.list(ctx, prefix, query{}, answerTimeout)
	return entries, err
}

func (c *Client) list(ctx context.Context, prefix string, q query, bound time.Duration) ([]Entry, uint64, error) {
	ctx, cancel := q.within(ctx, bound)
	defer cancel()
	pairs, meta, err := c.api.KV().List(prefix, q.options(ctx))
	if err == nil && meta.ResultsFilteredByACLs {
		err = hidden("key:read", prefix)
	}
	if err == nil && slices.Contains(pairs, nil) {
		err = errNull
	}
	if err != nil {
		return nil, 0, c.failure(ctx, "list "+prefix, err)
	}
	entries := make([]Entry, len(pairs))
	for i, p := range pairs {
		entries[i] = Entry{Key: p.Key, Value: p.Value, ModifyIndex: p.ModifyIndex}
	}
	return entries, meta.LastIndex, nil
}

// Keys lists the names of all keys under a prefix.
func (c *Client) Keys(ctx context.Context, prefix string) ([]string, error) {
	return c.keys(ctx, prefix, "")
}

// keys lists the names of all keys under a prefix. With a separator, keys that contain it
// after the prefix are grouped under their part up to and including it.
func (c *Client) keys(ctx context.Context, prefix, separator string) ([]string, error) {
	ctx, cancel := within(ctx, answerTimeout)
	defer cancel()
	keys, meta, err := c.api.KV().Keys(prefix, separator, query{}.options(ctx))
	if err == nil && meta.ResultsFilteredByACLs {
		err = hidden("key:read", prefix)
	}
	if err != nil {
		return nil, c.failure(ctx, "list "+prefix, err)
	}
	return keys, nil
}

// Put writes a key unconditionally.
func (c *Client) Put(ctx context.Context, key string, value []byte) error {
	return c.write(ctx, "write "+key, key, func(o *api.WriteOptions) error {
		_, err := c.api.KV().Put(&api.KVPair{Key: key, Value: value}, o)
		return err
	})
}

// cas writes a key if its ModifyIndex is still index, or, if index is 0, if the key is
// missing.
func (c *Client) cas(ctx context.Context, key string, value []byte, index uint64) (done bool, err error) {
	err = c.write(ctx, "write "+key, key, func(o *api.WriteOptions) (err error) {
		done, _, err = c.api.KV().CAS(&api.KVPair{Key: key, Value: value, ModifyIndex: index}, o)
		return err
	})
	return done, err
}

// CompareAndSwap is cas that checks after a failure whether the value was written anyway: the
// answer may be lost after a successful write. Unless its error is a StatusError below
// 500, the write may still take effect.
func (c *Client) CompareAndSwap(ctx context.Context, key string, value []byte, index uint64) (bool, error) {
	done, err := c.cas(ctx, key, value, index)
	if err == nil || refused(err) || !c.holds(ctx, key, value) {
		return done, err
	}
	return true, nil
}

func refused(err error) bool {
	var status *StatusError
	return errors.As(err, &status) && status.Code < 500
}

func (c *Client) holds(ctx context.Context, key string, value []byte) bool {
	entry, _, err := c.get(ctx, key, query{consistent: true}, answerTimeout)
	return err == nil && entry != nil && bytes.Equal(entry.Value, value)
}

// removeCAS deletes a key if its ModifyIndex is still index; a missing key is not an
// error.
func (c *Client) removeCAS(ctx context.Context, key string, index uint64) (done bool, err error) {
	err = c.write(ctx, "delete "+key, key, func(o *api.WriteOptions) (err error) {
		done, _, err = c.api.KV().DeleteCAS(&api.KVPair{Key: key, ModifyIndex: index}, o)
		return err
	})
	return done, err
}

// Remove deletes a key unconditionally.
func (c *Client) Remove(ctx context.Context, key string) error {
	return c.write(ctx, "delete "+key, key, func(o *api.WriteOptions) error {
		_, err := c.api.KV().Delete(key, o)
		return err
	})
}

func (c *Client) write(ctx context.Context, what, key string, send func(*api.WriteOptions) error) error {
	ctx, cancel := within(ctx, answerTimeout)
	defer cancel()
	if err := c.guarded(ctx); err != nil {
		return err
	}
	err := c.checkKey(key)
	if err == nil {
		err = send((&api.WriteOptions{}).WithContext(ctx))
	}
	if err != nil {
		return c.failure(ctx, what, err)
	}
	return nil
}

func (c *Client) guarded(ctx context.Context) error {
	if c.config.Guard == nil {
		return nil
	}
	return c.config.Guard(ctx)
}

// within bounds a request and names the bound in its error.
func within(ctx context.Context, bound time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, bound, fmt.Errorf("no answer within %s", bound))
}

// within bounds the request for q. A blocking query must be sent only once: net/http
// would repeat it after a closed connection, and a Consul that returns without its data
// counts from a lower index and would hold the query for its full time despite changes.
func (q query) within(ctx context.Context, bound time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := within(ctx, bound)
	if q.index == 0 {
		return ctx, cancel
	}
	ctx, fail := context.WithCancelCause(ctx)
	var sent atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) {
		if sent.Swap(true) {
			fail(errConnectionLost)
		}
	}})
	return ctx, func() { fail(nil); cancel() }
}

var errConnectionLost = errors.New("connection was closed before the answer")

// checkKey keeps every request under the prefix, whatever the parts of its key contain.
func (c *Client) checkKey(key string) error {
	rest, ok := strings.CutPrefix(key, c.prefix+"/")
	if !ok || !cleanPath(rest) {
		return fmt.Errorf("not a key under %s/; name it with letters, digits and . _ : - only", c.prefix)
	}
	return nil
}

// cleanPath reports whether no part of a path could be read as another path by a
// server.
func cleanPath(path string) bool {
	for part := range strings.SplitSeq(path, "/") {
		if part == "" || part == "." || part == ".." {
			return false
		}
		for _, b := range []byte(part) {
			if !(b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || strings.IndexByte("._:-", b) >= 0) {
				return false
			}
		}
	}
	return true
}
