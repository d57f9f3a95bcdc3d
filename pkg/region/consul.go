// Package region knows a region's Consul: what is published there, which edge
// nodes are registered, and how to follow both while Consul comes and goes.
//
// Everything a node needs to keep working is a callback with facts: this package
// decides nothing for its caller, keeps nothing on disk and logs nothing.
package region

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hashicorp/consul/api"
)

const (
	// DefaultAddr is what an empty ConsulConfig.Addr means.
	DefaultAddr = "127.0.0.1:8500"
	// DefaultPrefix is what an empty ConsulConfig.Prefix means.
	DefaultPrefix = "weir"

	dialTimeout = 2 * time.Second
	// answerTimeout bounds what Consul can answer at once.
	answerTimeout = 5 * time.Second
	// blockFor is how long Consul holds a blocking query; it adds up to a
	// sixteenth of its own so that not all of them end together.
	blockFor = 10 * time.Second
	// leeway is what a watch allows beyond that. It is longer than the 7 s for
	// which Consul holds a request while it elects a leader.
	leeway = 10 * time.Second

	// maxAnswer bounds what is read of one answer: some 20,000 changes of the
	// history, or 4,000 nodes.
	maxAnswer = 16 << 20
)

// Consul is one datacenter's Consul, reached through one agent or server. It is
// safe for concurrent use.
type Consul struct {
	config    ConsulConfig
	name      string // for messages
	prefix    string
	api       *api.Client
	transport *http.Transport
	lookEvery time.Duration // for a registration that was forgotten; tests shorten it
}

// OpenConsul returns a client of the Consul that c names. It reads the
// certificates but connects to nothing yet. Nothing in the environment changes
// what it does: CONSUL_HTTP_TOKEN and its like are ignored.
func OpenConsul(c ConsulConfig) (*Consul, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	scheme, addr := c.address()
	secure := (*tls.Config)(nil)
	if scheme == "https" {
		var err error
		if secure, err = c.TLS.load(); err != nil {
			return nil, err
		}
	}
	transport := &http.Transport{
		DialContext: (&net.Dialer{
			Timeout: dialTimeout,
			// A blocking query is silent for seconds. Without probes a network that
			// swallows packets would go unnoticed until it is given up.
			KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 5 * time.Second, Count: 3},
		}).DialContext,
		TLSClientConfig:     secure,
		TLSHandshakeTimeout: answerTimeout,
		// HTTP/1.1 only, so that one dead connection fails one request.
		TLSNextProto:        map[string]func(string, *tls.Conn) http.RoundTripper{},
		MaxIdleConnsPerHost: 8,
		IdleConnTimeout:     90 * time.Second,
	}
	client, err := api.NewClient(&api.Config{
		Address: addr, Scheme: scheme, Datacenter: c.Datacenter,
		// Without one, the library looks for a token in the environment.
		Token: "replaced by authorized",
		HttpClient: &http.Client{
			Transport: &authorized{next: transport, tokenFile: c.TokenFile},
			// Following one would show the token to whoever it leads to.
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
	prefix := c.Prefix
	if prefix == "" {
		prefix = DefaultPrefix
	}
	return &Consul{config: c, name: name, prefix: prefix, api: client, transport: transport, lookEvery: lookEvery}, nil
}

// Close closes the connections that nobody uses. Requests under way, and watches,
// end with their contexts.
func (c *Consul) Close() { c.transport.CloseIdleConnections() }

// Key is the path of a key under the prefix: Key("rules", "current") is
// weir/rules/current.
func (c *Consul) Key(parts ...string) string {
	return c.prefix + "/" + strings.Join(parts, "/")
}

// Entry is one key as Consul holds it. A key that is present with no content has
// an empty Value; a key that is missing has no Entry.
type Entry struct {
	Key         string
	Value       []byte
	ModifyIndex uint64
}

// query says how to ask. The zero query is answered at once.
type query struct {
	index      uint64 // block until there is something newer, if above 0
	consistent bool   // have the leader ask its peers whether it still is one
}

// bound is how long an answer to q may take.
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

// get reads one key, and the index to wait for news with.
func (c *Consul) get(ctx context.Context, key string, q query, bound time.Duration) (*Entry, uint64, error) {
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

// list reads all keys under a prefix.
func (c *Consul) list(ctx context.Context, prefix string) ([]Entry, error) {
	ctx, cancel := within(ctx, answerTimeout)
	defer cancel()
	pairs, meta, err := c.api.KV().List(prefix, query{}.options(ctx))
	if err == nil && meta.ResultsFilteredByACLs {
		err = errHidden
	}
	if err != nil {
		return nil, c.failure(ctx, "list "+prefix, err)
	}
	entries := make([]Entry, len(pairs))
	for i, p := range pairs {
		entries[i] = Entry{Key: p.Key, Value: p.Value, ModifyIndex: p.ModifyIndex}
	}
	return entries, nil
}

// keys names all keys under a prefix.
func (c *Consul) keys(ctx context.Context, prefix string) ([]string, error) {
	ctx, cancel := within(ctx, answerTimeout)
	defer cancel()
	keys, meta, err := c.api.KV().Keys(prefix, "", query{}.options(ctx))
	if err == nil && meta.ResultsFilteredByACLs {
		err = errHidden
	}
	if err != nil {
		return nil, c.failure(ctx, "list "+prefix, err)
	}
	return keys, nil
}

// put writes a key whatever it holds.
func (c *Consul) put(ctx context.Context, key string, value []byte) error {
	return c.write(ctx, "write "+key, key, func(o *api.WriteOptions) error {
		_, err := c.api.KV().Put(&api.KVPair{Key: key, Value: value}, o)
		return err
	})
}

// cas writes a key if its ModifyIndex is index still, or if it is missing when
// index is 0.
func (c *Consul) cas(ctx context.Context, key string, value []byte, index uint64) (done bool, err error) {
	err = c.write(ctx, "write "+key, key, func(o *api.WriteOptions) (err error) {
		done, _, err = c.api.KV().CAS(&api.KVPair{Key: key, Value: value, ModifyIndex: index}, o)
		return err
	})
	return done, err
}

// swap is cas that looks after a failure whether the value was written all the same: an
// answer may be lost where the write was not. Its error may be of a write that is still on
// its way, unless it is a StatusError below 500.
func (c *Consul) swap(ctx context.Context, key string, value []byte, index uint64) (bool, error) {
	done, err := c.cas(ctx, key, value, index)
	var status *StatusError
	if err == nil || errors.As(err, &status) && status.Code < 500 {
		return done, err
	}
	entry, _, again := c.get(ctx, key, query{consistent: true}, answerTimeout)
	if again == nil && entry != nil && bytes.Equal(entry.Value, value) {
		return true, nil
	}
	return false, err
}

// removeCAS deletes a key if its ModifyIndex is index still; that there is none is
// no obstacle.
func (c *Consul) removeCAS(ctx context.Context, key string, index uint64) (done bool, err error) {
	err = c.write(ctx, "delete "+key, key, func(o *api.WriteOptions) (err error) {
		done, _, err = c.api.KV().DeleteCAS(&api.KVPair{Key: key, ModifyIndex: index}, o)
		return err
	})
	return done, err
}

// remove deletes a key whatever it holds.
func (c *Consul) remove(ctx context.Context, key string) error {
	return c.write(ctx, "delete "+key, key, func(o *api.WriteOptions) error {
		_, err := c.api.KV().Delete(key, o)
		return err
	})
}

func (c *Consul) write(ctx context.Context, what, key string, send func(*api.WriteOptions) error) error {
	ctx, cancel := within(ctx, answerTimeout)
	defer cancel()
	err := c.checkKey(key)
	if err == nil {
		err = send((&api.WriteOptions{}).WithContext(ctx))
	}
	if err != nil {
		return c.failure(ctx, what, err)
	}
	return nil
}

// within bounds a request, and has its failure say so.
func within(ctx context.Context, bound time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, bound, fmt.Errorf("no answer within %s", bound))
}

// within bounds the request for q. A blocking query is sent once: net/http
// repeats what it sent over a connection that was closed, and the Consul that
// comes back may have lost its data, count from a lower index, and hold the
// query for its full time although it has news.
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

// checkKey keeps every request under the prefix, whatever its parts were made of.
func (c *Consul) checkKey(key string) error {
	rest, ok := strings.CutPrefix(key, c.prefix+"/")
	if !ok || !cleanPath(rest) {
		return fmt.Errorf("not a key under %s/; name it with letters, digits and . _ : - only", c.prefix)
	}
	return nil
}

// cleanPath reports whether a path has no part that a server could read as
// another path.
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
