package peer

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"
)

// link is the connection to one node.
type link struct {
	links *Links
	node  Node
	base  url.URL

	mu          sync.Mutex
	carrier     *http.Transport
	own         *tls.Certificate // that this node presents
	authorities *x509.CertPool   // for verifying the peer

	inFlight int
	used     time.Time
	failures int  // consecutive
	down     bool // and being probed
	until    time.Time
	err      *CallError // returned for calls until the pause ends
	version  int        // 0: the newest
	believed time.Time  // since when the version is believed
}

func newLink(l *Links, to Node) *link {
	k := &link{links: l, node: to, base: url.URL{Scheme: "https", Host: to.Addr}, used: time.Now()}
	if l.config.Certificates == nil {
		k.base.Scheme = "http"
	}
	return k
}

// transport returns the transport for requests. A change of certificate or authorities
// needs a new one: connections present the one and are verified by the others.
func (k *link) transport() *http.Transport {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := k.links.config.Certificates
	if s == nil {
		if k.carrier == nil {
			k.carrier = k.newTransport()
		}
		return k.carrier
	}
	own, authorities := s.Current()
	if k.carrier == nil || own != k.own || authorities != k.authorities {
		if k.carrier != nil {
			k.carrier.CloseIdleConnections() // others close after being idle
		}
		k.carrier, k.own, k.authorities = k.newTransport(), own, authorities
	}
	return k.carrier
}

func (k *link) newTransport() *http.Transport {
	l := k.links
	protocols := &http.Protocols{}
	protocols.SetHTTP2(l.config.Certificates != nil)
	protocols.SetUnencryptedHTTP2(l.config.Certificates == nil)
	dialer := net.Dialer{Timeout: probeTimeout}
	t := &http.Transport{
		Protocols: protocols,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			defer context.AfterFunc(l.ctx, cancel)()
			c, err := dialer.DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return &dialed{c, context.AfterFunc(l.ctx, func() { _ = c.Close() })}, nil
		},
		TLSHandshakeTimeout:    probeTimeout,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: maxHeaders,
		DisableCompression:     true,
		HTTP2: &http.HTTP2Config{
			StrictMaxConcurrentRequests: true, MaxDecoderHeaderTableSize: 4 << 10, MaxReadFrameSize: 64 << 10,
			MaxReceiveBufferPerConnection: 1 << 20, MaxReceiveBufferPerStream: 1 << 20,
			SendPingTimeout: probeAfter, PingTimeout: probeTimeout, WriteByteTimeout: answerWithin,
		},
	}
	if s := l.config.Certificates; s != nil {
		t.TLSClientConfig = dialing(s, k.node)
	}
	return t
}

// dialed is a connection that ends with its Links, even with calls pending.
type dialed struct {
	net.Conn
	ended func() bool
}

func (d *dialed) Close() error {
	d.ended()
	return d.Conn.Close()
}

func (k *link) close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.carrier != nil {
		k.carrier.CloseIdleConnections()
	}
}

// begin admits a call, or returns why not.
func (k *link) begin(now time.Time) *CallError {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.used = now
	if wait := k.until.Sub(now); wait > 0 {
		e := *k.err
		e.RetryAfter = wait
		return &e
	}
	if k.inFlight >= maxInFlight {
		return &CallError{k.node, ErrBusy, fmt.Sprintf("%d calls are waiting for it", maxInFlight), 0}
	}
	k.inFlight++
	return nil
}

func (k *link) end() {
	k.mu.Lock()
	k.inFlight--
	k.mu.Unlock()
}

// note records an outcome. It reports whether the node counts as gone, and whether that is
// new.
func (k *link) note(failed *CallError, now time.Time) (down, changed bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	was := k.down
	switch {
	case failed == nil:
		k.failures, k.down, k.until = 0, false, time.Time{}
	case failed.Kind == ErrBusy || failed.Kind == ErrVersion:
		k.failures, k.down = 0, false
		k.err, k.until = failed, now.Add(failed.RetryAfter)
	case failed.Kind == ErrUnreachable || failed.RetryAfter > 0: // or is not trusted
		k.failures++
		k.err, k.until = failed, now.Add(backoff(k.failures))
		k.down = k.down || k.failures >= downAfter
	default:
		k.failures, k.down = 0, false // it answers
	}
	return k.down, k.down != was
}

func (k *link) idle(now time.Time) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.inFlight == 0 && !k.down && now.Sub(k.used) > forgetAfter
}

func (k *link) unwanted(now time.Time) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return now.Sub(k.used) > forgetAfter
}

func (k *link) isDown() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.down
}

func (k *link) revive() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.failures, k.down = 0, false
}

func (k *link) pause() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	return backoff(k.failures)
}

// speaks returns the version in which to write.
func (k *link) speaks(now time.Time) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.version == 0 || now.Sub(k.believed) > versionFor {
		return slices.Max(k.links.versions)
	}
	return k.version
}

func (k *link) believe(version int, now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.version, k.believed = version, now
}

// send sends a message. If the node does not know the newest version, it resends in the
// oldest version that both know.
func (k *link) send(ctx context.Context, topic string, body []byte, x *Exchange) ([]byte, *CallError) {
	if len(body) > MaxBody {
		return nil, k.fail(ErrRefused, 0, "the message is %v", errTooLong)
	}
	wire, encoding := encode(body)
	version := k.speaks(time.Now())
	for first := true; ; first = false {
		resp, failed := k.request(ctx, http.MethodPost, topic, wire, encoding, version)
		if failed != nil {
			return nil, failed
		}
		x.Sent += len(wire)
		if resp.StatusCode != http.StatusNotAcceptable {
			return k.answer(resp, x)
		}
		theirs := resp.Header.Get(headerVersions)
		drop(resp)
		older, ok := oldestCommon(k.links.versions, parseVersions(theirs))
		if !ok || !first {
			return nil, k.fail(ErrVersion, maxRetryAfter, "it speaks versions %s, but this node %s; update the older one", line(theirs), formatVersions(k.links.versions))
		}
		version = older
		k.believe(older, time.Now())
	}
}

// hello asks a node for its identity.
func (k *link) hello(ctx context.Context) *CallError {
	resp, failed := k.request(ctx, http.MethodGet, "", nil, "", slices.Max(k.links.versions))
	if failed == nil {
		drop(resp)
	}
	return failed
}

// request sends a request and returns the answer of the intended node.
func (k *link) request(ctx context.Context, method, topic string, wire []byte, encoding string, version int) (*http.Response, *CallError) {
	at := k.base
	at.Path = exchangePath + topic
	r, err := http.NewRequestWithContext(ctx, method, at.String(), bytes.NewReader(wire))
	if err != nil {
		return nil, k.fail(ErrRefused, 0, "%v", err)
	}
	k.links.config.sign(r.Header)
	r.Header.Set(headerVersion, strconv.Itoa(version))
	r.Header.Set("User-Agent", "")
	if encoding != "" {
		r.Header.Set("Content-Encoding", encoding)
	}
	resp, err := k.transport().RoundTrip(r)
	if err != nil {
		return nil, k.broken(ctx, err)
	}
	if who := (Node{Region: resp.Header.Get(headerRegion), ID: resp.Header.Get(headerNode)}); who.Region != k.node.Region || who.ID != k.node.ID {
		drop(resp)
		return nil, k.fail(ErrRefused, time.Second, "it says that it is %s/%s; correct the address or the name", line(who.Region), line(who.ID))
	}
	return resp, nil
}

// answer reads the answer to a message.
func (k *link) answer(resp *http.Response, x *Exchange) ([]byte, *CallError) {
	defer drop(resp)
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 512))
		return nil, k.denied(resp, line(string(text)))
	}
	wire, err := readWire(resp.Body, resp.ContentLength)
	if err != nil {
		return nil, k.fail(ErrUnreachable, 0, "the answer is incomplete: %v", err)
	}
	x.Received = len(wire)
	encoding := resp.Header.Get("Content-Encoding")
	size, err := decodedSize(wire, encoding)
	if err == nil {
		wire, err = decode(wire, encoding, size)
	}
	if err != nil {
		return nil, k.fail(ErrRefused, 0, "the answer is %v", err)
	}
	return wire, nil
}

// denied interprets an answer other than a reply.
func (k *link) denied(resp *http.Response, why string) *CallError {
	switch resp.StatusCode {
	case http.StatusServiceUnavailable, http.StatusTooManyRequests, http.StatusConflict:
		after := time.Second
		if n, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil {
			after = min(max(time.Duration(n), 0), maxRetryAfter/time.Second) * time.Second
		}
		return k.fail(ErrBusy, after, "%s", why)
	case http.StatusForbidden:
		return k.fail(ErrRefused, time.Second, "%s", why)
	default:
		return k.fail(ErrRefused, 0, "%s (%d)", why, resp.StatusCode)
	}
}

// broken interprets a missing answer.
func (k *link) broken(ctx context.Context, err error) *CallError {
	var identity *identityError
	var certificate *tls.CertificateVerificationError
	var authority x509.UnknownAuthorityError
	var remote *net.OpError
	switch {
	case errors.As(err, &identity), errors.As(err, &certificate), errors.As(err, &authority):
		return k.fail(ErrRefused, time.Second, "this node does not accept its certificate: %v", err)
	case errors.As(err, &remote) && remote.Op == "remote error":
		return k.fail(ErrRefused, time.Second, "it does not accept this node's certificate: %v", remote.Err)
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return k.fail(ErrUnreachable, 0, "no answer in time")
	}
	return k.fail(ErrUnreachable, 0, "%v", err)
}

func (k *link) fail(kind error, after time.Duration, why string, args ...any) *CallError {
	return &CallError{k.node, kind, fmt.Sprintf(why, args...), after}
}

// drop closes an answer that is no longer needed.
func drop(resp *http.Response) { _ = resp.Body.Close() }
