package weir

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/grafana/sobek"
	"go.k6.io/k6/js/common"
	"go.k6.io/k6/lib"
	"go.k6.io/k6/lib/netext/httpext"

	"github.com/weir-edge/weir/loadtest/xk6-weir/oracle"
	"github.com/weir-edge/weir/loadtest/xk6-weir/resolve"
)

type site struct {
	Region string `json:"region"`
	Pop    string `json:"pop"`
}

type clientOptions struct {
	Region         string          `json:"region"`
	DNS            string          `json:"dns"`
	Subnet         string          `json:"subnet"`
	IPv6           bool            `json:"ipv6"`
	HTTP2          bool            `json:"http2"`
	Pops           map[string]site `json:"pops"`
	Timeout        duration        `json:"timeout"`
	ConnectTimeout duration        `json:"connectTimeout"`
	DNSTimeout     duration        `json:"dnsTimeout"`
	IdleTimeout    duration        `json:"idleTimeout"`
}

// Client is one client in a virtual region. It belongs to one VU.
type Client struct {
	m        *Module
	options  clientOptions
	resolver *resolve.Resolver
	// conns keeps the connections to each address, by host name and address.
	conns map[target]*http.Transport
	last  map[string]netip.Addr // by host, the address that the client last talked to
}

type target struct{ host, address string }

func newClient(m *Module, v sobek.Value) (*Client, error) {
	o := clientOptions{
		Timeout: duration(30 * time.Second), ConnectTimeout: duration(3 * time.Second),
		DNSTimeout: duration(2 * time.Second), IdleTimeout: duration(90 * time.Second),
	}
	if err := decode(v, "client", &o); err != nil {
		return nil, err
	}
	for name, d := range map[string]duration{
		"timeout": o.Timeout, "connectTimeout": o.ConnectTimeout, "dnsTimeout": o.DNSTimeout, "idleTimeout": o.IdleTimeout,
	} {
		if d == 0 {
			return nil, fmt.Errorf("client: %s: must be over 0", name)
		}
	}
	c := &Client{m: m, options: o, conns: map[target]*http.Transport{}, last: map[string]netip.Addr{}}
	var subnet netip.Prefix
	if o.Subnet != "" {
		var err error
		if subnet, err = netip.ParsePrefix(o.Subnet); err != nil {
			return nil, fmt.Errorf("client: subnet: %w", err)
		}
	}
	if o.DNS == "" {
		if o.Subnet != "" {
			return nil, errors.New("client: subnet: is sent to the DNS server; give dns too")
		}
		return c, nil
	}
	if _, _, err := net.SplitHostPort(o.DNS); err != nil {
		return nil, fmt.Errorf("client: dns: must be host:port: %w", err)
	}
	c.resolver = resolve.New(resolve.Config{
		Server: o.DNS, Subnet: subnet, IPv6: o.IPv6, Timeout: time.Duration(o.DNSTimeout),
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			return m.vu.State().Dialer.DialContext(ctx, network, address)
		},
	})
	return c, nil
}

// candidates returns the addresses to try for a host, in order: first the one with a
// connection, if it is still in the answer. It closes connections to addresses that are
// not.
func (c *Client) candidates(ctx context.Context, host, port string) ([]string, error) {
	if _, err := netip.ParseAddr(host); err == nil || c.resolver == nil {
		return []string{net.JoinHostPort(host, port)}, nil
	}
	before, began := c.resolver.Queries, time.Now()
	answer, err := c.resolver.Lookup(ctx, host)
	if c.resolver.Queries > before {
		c.m.emit(c.m.metrics.dnsDuration, float64(time.Since(began))/1e6, map[string]string{"region": c.options.Region}, nil)
	}
	if err != nil {
		c.drop(host, nil)
		return nil, err
	}
	in := map[string]bool{}
	var list []string
	last, known := c.last[host]
	for _, a := range answer.Addresses {
		address := net.JoinHostPort(a.String(), port)
		in[address] = true
		if known && a == last {
			list = append([]string{address}, list...)
		} else {
			list = append(list, address)
		}
	}
	c.drop(host, in)
	return list, nil
}

// drop closes a host's connections to addresses that are not among these.
func (c *Client) drop(host string, in map[string]bool) {
	for t, transport := range c.conns {
		if t.host == host && !in[t.address] {
			transport.CloseIdleConnections()
			delete(c.conns, t)
		}
	}
}

func (c *Client) transport(state *lib.State, host, address string) *http.Transport {
	t := target{host, address}
	if transport := c.conns[t]; transport != nil {
		return transport
	}
	config := &tls.Config{}
	if state.TLSConfig != nil {
		config = state.TLSConfig.Clone()
	}
	config.ServerName = host
	transport := &http.Transport{
		TLSClientConfig: config, TLSHandshakeTimeout: time.Duration(c.options.ConnectTimeout),
		IdleConnTimeout: time.Duration(c.options.IdleTimeout), DisableCompression: true, MaxIdleConnsPerHost: 16, ForceAttemptHTTP2: c.options.HTTP2,
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(ctx, time.Duration(c.options.ConnectTimeout))
			defer cancel()
			return state.Dialer.DialContext(ctx, network, address)
		},
	}
	c.conns[t] = transport
	return transport
}

// where returns the region and PoP behind an address; known is false if pops lists
// addresses without this one.
func (c *Client) where(address string) (at site, known bool) {
	if p, ok := c.options.Pops[address]; ok {
		return p, true
	}
	if host, _, err := net.SplitHostPort(address); err == nil {
		if p, ok := c.options.Pops[host]; ok {
			return p, true
		}
	}
	return site{Region: c.options.Region}, len(c.options.Pops) == 0
}

// Get sends a GET request.
func (c *Client) Get(address string, params sobek.Value) *Response {
	return c.Request(http.MethodGet, address, nil, params)
}

// Post sends a POST request.
func (c *Client) Post(address string, body, params sobek.Value) *Response {
	return c.Request(http.MethodPost, address, body, params)
}

// Close closes idle connections.
func (c *Client) Close() {
	for t, transport := range c.conns {
		transport.CloseIdleConnections()
		delete(c.conns, t)
	}
}

// Request sends a request and waits for its answer. A network error is a response with
// status 0, as in k6/http; a mistake in the call is thrown.
func (c *Client) Request(method, address string, body, params sobek.Value) *Response {
	state := c.m.vu.State()
	if state == nil {
		common.Throw(c.m.vu.Runtime(), errors.New("requests cannot be sent in the init context"))
	}
	r, err := c.prepare(state, method, address, body, params)
	if err != nil {
		common.Throw(c.m.vu.Runtime(), err)
	}
	return r.send()
}

// request is one request of a client.
type request struct {
	c      *Client
	state  *lib.State
	method string
	url    *url.URL
	body   string
	params params

	mu      sync.Mutex
	tickets [][]ticket // for each time that it was written to a connection
}

type ticket struct {
	rule string
	*oracle.Ticket
}

func (r *request) send() *Response {
	ctx, cancel := context.WithTimeout(r.c.m.vu.Context(), r.timeout())
	defer cancel()
	if limit := r.state.RPSLimit; limit != nil {
		if err := limit.Wait(ctx); err != nil {
			return r.failed(nil, site{Region: r.c.options.Region}, "", err)
		}
	}
	host, port := r.url.Hostname(), r.url.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[r.url.Scheme]
	}
	list, err := r.c.candidates(ctx, host, port)
	if err != nil {
		return r.failed(nil, site{Region: r.c.options.Region}, "", err)
	}
	for i, address := range list {
		at, known := r.c.where(address)
		if !known && len(r.params.limits) > 0 { // another region would count it
			return r.failed(nil, at, address, fmt.Errorf("pops does not say which region is behind %s", address))
		}
		tracer := &httpext.Tracer{}
		answer, body, err := r.attempt(ctx, tracer, host, address, at)
		trail := tracer.Done()
		sent := len(r.tickets) > 0
		if err != nil && !sent {
			r.c.m.emit(r.c.m.metrics.connectErrors, 1, map[string]string{"region": r.c.options.Region, "pop": at.Pop}, nil)
			if i+1 < len(list) && ctx.Err() == nil {
				continue
			}
		}
		if err != nil {
			return r.failed(trail, at, address, err)
		}
		if h, _, err := net.SplitHostPort(address); err == nil {
			r.c.last[host], _ = netip.ParseAddr(h)
		}
		return r.answered(trail, at, address, answer, body)
	}
	return r.failed(nil, site{Region: r.c.options.Region}, "", errors.New("no address"))
}

// attempt sends the request to one address and reads the whole answer. The oracle
// learns of the request just before it is written to a connection.
func (r *request) attempt(ctx context.Context, tracer *httpext.Tracer, host, address string, at site) (*http.Response, []byte, error) {
	var failed error
	ctx = httptrace.WithClientTrace(ctx, tracer.Trace())
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) {
		r.mu.Lock()
		defer r.mu.Unlock()
		var tickets []ticket
		for _, l := range r.params.limits {
			t, err := r.c.m.root.judge().Begin(at.Region, l.rule, l.key, *l.cost)
			failed = errors.Join(failed, err)
			tickets = append(tickets, ticket{l.rule, t})
		}
		r.tickets = append(r.tickets, tickets)
	}})
	var body io.Reader
	if r.body != "" {
		body = strings.NewReader(r.body)
	}
	q, err := http.NewRequestWithContext(ctx, r.method, r.url.String(), body)
	if err != nil {
		return nil, nil, err
	}
	q.Header = r.params.header.Clone()
	if h := q.Header.Get("Host"); h != "" {
		q.Host = h
		q.Header.Del("Host")
	}
	answer, err := r.c.transport(r.state, host, address).RoundTrip(q)
	if err != nil {
		return nil, nil, errors.Join(err, failed)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return answer, text, errors.Join(err, failed)
}

func (r *request) timeout() time.Duration {
	if r.params.Timeout > 0 {
		return time.Duration(r.params.Timeout)
	}
	return time.Duration(r.c.options.Timeout)
}
