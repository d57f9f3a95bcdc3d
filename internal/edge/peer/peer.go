// Package peer carries messages between edge nodes, of one region and of several: HTTP/2
// over mutually authenticated TLS 1.3. It knows nothing of what they say. A message may be
// lost, arrive twice, or after a later one.
//
// Directory says who is there, Links calls, and Server answers.
package peer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/weir-edge/weir/pkg/certs"
)

// Node is an edge node as others reach it.
type Node struct {
	Region, ID string
	Addr       string // host:port of its peer listener
}

func (n Node) String() string { return n.Region + "/" + n.ID + " at " + n.Addr }

// Handler answers the messages of a topic. ctx ends with the caller's patience, or after 5 s.
// It must not keep body. An error that is ErrBusy asks the caller to send a newer message
// later; of any other, the caller learns the text.
type Handler func(ctx context.Context, from Node, body []byte) (reply []byte, err error)

// Why a call failed.
var (
	// ErrBusy: the peer, or the way to it, has no room. A newer message may be sent later.
	ErrBusy = errors.New("busy")
	// ErrUnreachable: no answer in time. The message may have arrived.
	ErrUnreachable = errors.New("unreachable")
	// ErrRefused: one side does not accept the other, or the peer does not accept the message.
	ErrRefused = errors.New("refused")
	// ErrVersion: there is no version of the exchange that both know.
	ErrVersion = errors.New("no common version")
)

// CallError is the error of a call. It unwraps to one of the above.
type CallError struct {
	Node Node
	Kind error
	Why  string
	// RetryAfter is when a call can succeed again, as far as that is known.
	RetryAfter time.Duration
}

func (e *CallError) Error() string { return fmt.Sprintf("peer %s: %v: %s", e.Node, e.Kind, e.Why) }
func (e *CallError) Unwrap() error { return e.Kind }

// MaxBody is the longest message and the longest reply, in bytes.
const MaxBody = 4 << 20

// Bounds of both sides.
const (
	maxHeaders = 8 << 10 // bytes
	// answerWithin is how long a message and its answer may take. Callers may be less patient.
	answerWithin = 5 * time.Second
	// A connection over which nothing comes is probed, and closed if it does not answer.
	probeAfter, probeTimeout = 2 * time.Second, 2 * time.Second
	idleTimeout              = 90 * time.Second
	maxRetryAfter            = 10 * time.Second
)

// versions are those of the exchange that this release speaks: the form of requests and
// answers. What messages say has rules of its own.
var versions = []int{1}

// Config is what both sides of a node need.
type Config struct {
	Self      Node
	Directory *Directory
	// Certificates are what the node shows, and by whose authorities it verifies others; nil:
	// neither, for nodes on one machine only.
	Certificates *certs.Server
	Observe      func(Exchange) // gets each exchange; nil: nothing does
	Refused      func()         // is called for each connection that is refused
	Panicked     func()         // is called for each message that caused a panic
	Log          *slog.Logger
}

// Exchange is a message and its answer, as one side saw them.
type Exchange struct {
	Region         string // the other's; "" if it could not be identified
	Direction      Direction
	Result         Result
	Sent, Received int // bytes of bodies, as they travel
	Took           time.Duration
}

// Direction is who began an exchange.
type Direction string

// The directions.
const (
	Outgoing Direction = "out"
	Incoming Direction = "in"
)

// Result is how an exchange ended.
type Result string

// The results. Of an incoming message, failed is a fault of this node.
const (
	OK          Result = "ok"
	Busy        Result = "busy"
	Unreachable Result = "unreachable"
	Refused     Result = "refused"
	Version     Result = "version"
	Failed      Result = "failed"
)

// Results are all results.
var Results = []Result{OK, Busy, Unreachable, Refused, Version, Failed}

func (c *Config) observe(x Exchange) {
	if c.Observe != nil {
		c.Observe(x)
	}
}
