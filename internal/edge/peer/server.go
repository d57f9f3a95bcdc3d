package peer

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/internal/edge/handshake"
	"github.com/weir-edge/weir/internal/httpconns"
)

const (
	maxStreams = 16 // of a connection
	// certificateAge is how long a connection's certificate counts as valid before it is
	// checked again: it may expire, and its authority may be replaced, while the connection
	// is open.
	certificateAge = time.Minute
)

// Server answers other nodes.
type Server struct {
	config   Config
	versions []int
	topics   map[string]Handler
	http     *http.Server
	gate     *gate
	room     *room
	listener atomic.Pointer[handshake.Listener] // once it serves
	pending  int                                // connections without a certificate; 0: as many as usual
}

// NewServer returns a server that is not serving yet.
func NewServer(c Config) *Server {
	s := &Server{config: c, versions: versions, topics: map[string]Handler{}, gate: &gate{peers: map[string]int{}}, room: newRoom()}
	protocols := &http.Protocols{}
	protocols.SetHTTP2(c.Certificates != nil)
	protocols.SetUnencryptedHTTP2(c.Certificates == nil)
	s.http = &http.Server{
		Handler:           http.HandlerFunc(s.serve),
		Protocols:         protocols,
		MaxHeaderBytes:    maxHeaders,
		ReadHeaderTimeout: answerWithin,
		ReadTimeout:       answerWithin,     // of each message
		WriteTimeout:      2 * answerWithin, // from its beginning
		IdleTimeout:       idleTimeout,
		ErrorLog:          slog.NewLogLogger(c.Log.Handler(), slog.LevelDebug),
		ConnContext:       s.withCaller,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreams, MaxDecoderHeaderTableSize: 4 << 10, MaxReadFrameSize: 64 << 10,
			MaxReceiveBufferPerConnection: 1 << 20, MaxReceiveBufferPerStream: 1 << 20,
			SendPingTimeout: probeAfter * 5, PingTimeout: probeTimeout * 2, WriteByteTimeout: answerWithin,
		},
	}
	return s
}

// Handle registers a topic's handler. Call it before Serve.
func (s *Server) Handle(topic string, h Handler) { s.topics[topic] = h }

// Serve accepts connections until Drain.
func (s *Server) Serve(ln net.Listener) error {
	c := handshake.Config{
		Callers: maxConnections, Refused: func(handshake.Refusal) { s.config.Refused() },
		Failed: s.config.Failed, Pending: s.pending,
	}
	if s.config.Certificates != nil {
		c.TLS, c.Identify = s.listening(), s.knows
	}
	l := handshake.Listen(ln, c)
	s.listener.Store(l)
	err := s.http.Serve(l)
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// Drain stops accepting, lets messages in progress finish, and cuts off those still running
// when ctx ends. It reports whether all finished.
func (s *Server) Drain(ctx context.Context) bool {
	if s.http.Shutdown(ctx) == nil {
		return true
	}
	_ = s.http.Close()
	return false
}

// listening returns the TLS configuration: every caller must present a certificate.
func (s *Server) listening() *tls.Config {
	c := s.config.Certificates.Speaking("h2")
	load := c.GetConfigForClient
	c.MinVersion = tls.VersionTLS13
	c.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		own, err := load(hello)
		if err != nil {
			return nil, err
		}
		own.MinVersion = tls.VersionTLS13
		own.VerifyConnection = func(state tls.ConnectionState) error {
			_, err := identify(state.PeerCertificates[0])
			return err
		}
		return own, nil
	}
	return c
}

// knows reports whether there is room for a connection of a node, which has proved by now that it
// has the key of its certificate. Anyone may have that certificate: nodes present it.
func (s *Server) knows(from netip.Addr, state *tls.ConnectionState) (leave func(), ok bool) {
	i, err := identify(state.PeerCertificates[0])
	if err != nil {
		return nil, false
	}
	return s.gate.enter(i.String(), from)
}

// caller is what is known of a connection's other end.
type caller struct {
	mu       sync.Mutex
	verified time.Time
	by       *x509.CertPool // the authorities at that time
}

type callerKey struct{}

func (s *Server) withCaller(ctx context.Context, _ net.Conn) context.Context {
	c := &caller{verified: time.Now()}
	if s.config.Certificates != nil {
		_, c.by = s.config.Certificates.Current()
	}
	return context.WithValue(ctx, callerKey{}, c)
}

// valid reports whether the connection's certificate is still valid.
func (s *Server) valid(r *http.Request) bool {
	c := r.Context().Value(callerKey{}).(*caller)
	c.mu.Lock()
	defer c.mu.Unlock()
	_, authorities := s.config.Certificates.Current()
	if c.by == authorities && time.Since(c.verified) < certificateAge {
		return time.Now().Before(r.TLS.PeerCertificates[0].NotAfter)
	}
	if !s.config.Certificates.Vouches(r.TLS) {
		return false
	}
	c.verified, c.by = time.Now(), authorities
	return true
}

// refusal is an answer that does not come from the handler.
type refusal struct {
	status int
	result Result
	why    string
}

func (e *refusal) Error() string { return e.why }

func refuse(status int, why string, args ...any) *refusal {
	return &refusal{status, Refused, fmt.Sprintf(why, args...)}
}

func busy(why string) *refusal { return &refusal{http.StatusServiceUnavailable, Busy, why} }

// serve answers one message.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	x := Exchange{Direction: Incoming, Result: OK}
	s.config.sign(w.Header())
	w.Header().Set(headerVersions, formatVersions(s.versions))
	from, err := s.identify(r)
	if err == nil {
		x.Region = from.Region
		err = s.exchange(w, r, from, &x)
	} else {
		w.Header().Set("Connection", "close") // in HTTP/2 terms: go away
	}
	if err != nil {
		x.Result = err.result
		if err.result == Busy {
			w.Header().Set("Retry-After", "1")
		}
		http.Error(w, err.why, err.status)
	}
	x.Took = time.Since(began)
	s.config.observe(x)
}

// identify returns the sender of a message.
func (s *Server) identify(r *http.Request) (Node, *refusal) {
	from := Node{Region: r.Header.Get(headerRegion), ID: r.Header.Get(headerNode), Addr: r.RemoteAddr}
	if from.Region == "" || from.ID == "" || len(from.ID) > 128 {
		return from, refuse(http.StatusBadRequest, "needs %s and %s", headerRegion, headerNode)
	}
	if s.config.Certificates != nil {
		i, err := identify(r.TLS.PeerCertificates[0])
		if err != nil {
			return from, refuse(http.StatusForbidden, "%v", err)
		}
		if !i.is(from) {
			return from, refuse(http.StatusForbidden, "the message is from %s/%s, but the certificate is that of %s", line(from.Region), line(from.ID), i)
		}
		if !s.valid(r) {
			return from, refuse(http.StatusForbidden, "the certificate is no longer valid")
		}
	}
	switch known, unknown := s.config.Directory.knows(from.Region); {
	case unknown:
		return from, busy("this node does not know the regions yet")
	case !known:
		return from, refuse(http.StatusForbidden, "region %s is not in the topology", line(from.Region))
	}
	return from, nil
}

// exchange answers a message of a known node.
func (s *Server) exchange(w http.ResponseWriter, r *http.Request, from Node, x *Exchange) *refusal {
	topic, ok := strings.CutPrefix(r.URL.Path, exchangePath)
	if ok && topic == "" && r.Method == http.MethodGet {
		w.WriteHeader(http.StatusNoContent) // a probe
		return nil
	}
	if version, _ := strconv.Atoi(r.Header.Get(headerVersion)); !slices.Contains(s.versions, version) {
		return &refusal{http.StatusNotAcceptable, Version, "this node speaks versions " + formatVersions(s.versions)}
	}
	handler := s.topics[topic]
	switch {
	case !ok || handler == nil:
		return refuse(http.StatusNotFound, "no topic %s here", line(strings.TrimPrefix(r.URL.Path, exchangePath)))
	case r.Method != http.MethodPost:
		return refuse(http.StatusMethodNotAllowed, "must be POST")
	case r.Header.Get(headerRegions) != s.config.Directory.fingerprint():
		return &refusal{http.StatusConflict, Busy, "the regions or their order differ here; the topology is being changed"}
	}
	at, _ := netip.ParseAddrPort(from.Addr) // of a connection: never a name
	who := from.Region + "/" + from.ID + " " + httpconns.Subscriber(at.Addr()).String()
	if !s.room.begin(who) {
		return busy("too many messages of this node at once")
	}
	defer s.room.end(who)
	var held int
	defer func() { s.room.give(from.Region, held) }()
	body, err := s.read(r, from.Region, &held)
	if err != nil {
		return err
	}
	x.Received = int(r.ContentLength)
	ctx, cancel := context.WithTimeout(r.Context(), answerWithin)
	defer cancel()
	reply, err := s.handle(ctx, handler, from, body)
	if err != nil {
		return err
	}
	wire, encoding := encode(reply)
	if encoding != "" {
		w.Header().Set("Content-Encoding", encoding)
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.Itoa(len(wire)))
	x.Sent, _ = w.Write(wire) // a caller that no longer listens asks again
	return nil
}

// read reads a message's body within the available memory. held is how much of that it has
// taken.
func (s *Server) read(r *http.Request, region string, held *int) ([]byte, *refusal) {
	length := r.ContentLength
	switch {
	case length < 0:
		return nil, refuse(http.StatusLengthRequired, "needs a Content-Length")
	case length > MaxBody:
		return nil, refuse(http.StatusRequestEntityTooLarge, "the message is %v", errTooLong)
	case !s.room.take(region, int(length)):
		return nil, busy("too many messages at once")
	}
	*held += int(length)
	wire, err := readWire(r.Body, length)
	if err != nil {
		return nil, refuse(http.StatusBadRequest, "the message is incomplete: %v", err)
	}
	encoding := r.Header.Get("Content-Encoding")
	size, err := decodedSize(wire, encoding)
	switch {
	case errors.Is(err, errEncoding):
		return nil, refuse(http.StatusUnsupportedMediaType, "Content-Encoding %v", err)
	case errors.Is(err, errTooLong):
		return nil, refuse(http.StatusRequestEntityTooLarge, "the message is %v", err)
	case err != nil:
		return nil, refuse(http.StatusBadRequest, "the message is %v", err)
	case encoding == "":
		return wire, nil
	case !s.room.take(region, size):
		return nil, busy("too many messages at once")
	}
	*held += size
	body, err := decode(wire, encoding, size)
	if err != nil {
		return nil, refuse(http.StatusBadRequest, "the message is %v", err)
	}
	return body, nil
}

// handle calls a handler and turns its panic into an error.
func (s *Server) handle(ctx context.Context, h Handler, from Node, body []byte) (reply []byte, failed *refusal) {
	defer func() {
		if p := recover(); p != nil {
			s.config.Log.Error("a message of a peer caused a panic", "region", from.Region, "from", from.ID, "panic", p, "stack", strings.TrimSpace(string(debug.Stack())))
			s.config.Panicked()
			failed = &refusal{http.StatusInternalServerError, Failed, "the message caused a panic; see this node's log"}
		}
	}()
	reply, err := h(ctx, from, body)
	switch {
	case errors.Is(err, ErrBusy):
		return nil, busy(line(err.Error()))
	case err != nil:
		return nil, refuse(http.StatusUnprocessableEntity, "%s", line(err.Error()))
	case len(reply) > MaxBody:
		return nil, &refusal{http.StatusInternalServerError, Failed, "the answer is " + errTooLong.Error()}
	}
	return reply, nil
}
