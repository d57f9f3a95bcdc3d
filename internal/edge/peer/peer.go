// Package peer carries messages between edge nodes, within a region and across regions:
// HTTP/2 over mutually authenticated TLS 1.3. It does not interpret them. A message may be
// lost, arrive twice, or arrive after a later one.
//
// Directory lists the nodes, Links calls them, and Server answers.
package peer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/weir-edge/weir/internal/edge/handshake"
	"github.com/weir-edge/weir/pkg/certs"
)

// Node is an edge node as others reach it.
type Node struct {
	Region, ID string
	Addr       string // host:port of its peer listener
}

func (n Node) String() string { return n.Region + "/" + n.ID + " at " + n.Addr }

// Handler answers the messages of a topic. ctx ends when the caller gives up, or after 5 s.
// The handler must not keep body. ErrBusy asks the caller to send a newer message later;
// the text of any other error is sent to the caller.
type Handler func(ctx context.Context, from Node, body []byte) (reply []byte, err error)

// The reasons for a failed call.
var (
	// ErrBusy: the peer, or the connection to it, has no room. A newer message may be sent
	// later.
	ErrBusy = errors.New("busy")
	// ErrUnreachable: no answer in time. The message may have arrived.
	ErrUnreachable = errors.New("unreachable")
	// ErrRefused: one side rejects the other, or the peer rejects the message.
	ErrRefused = errors.New("refused")
	// ErrVersion: no version of the exchange is known to both.
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
	// answerWithin is how long a message and its answer may take. Callers may wait less.
	answerWithin = 5 * time.Second
	// A silent connection is probed, and closed if it does not answer.
	probeAfter, probeTimeout = 2 * time.Second, 2 * time.Second
	idleTimeout              = 90 * time.Second
	maxRetryAfter            = 10 * time.Second
)

// versions are the versions of the exchange that this release speaks: the form of requests
// and answers. The content of messages is versioned separately.
var versions = []int{1}

// Config is what both sides of a node need.
type Config struct {
	Self      Node
	Directory *Directory
	// Certificates are what the node presents, with the authorities for verifying others;
	// nil: neither, only for nodes on one machine.
	Certificates *certs.Server
	Observe      func(Exchange)         // called with each exchange; may be nil
	Refused      func()                 // called for each refused connection
	Failed       func(handshake.Reason) // called after each handshake that fails; may be nil
	Panicked     func()                 // called for each message that caused a panic
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

// Direction is which side began an exchange.
type Direction string

// The directions.
const (
	Outgoing Direction = "out"
	Incoming Direction = "in"
)

// Result is how an exchange ended.
type Result string

// The results. For an incoming message, failed is an error of this node.
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
