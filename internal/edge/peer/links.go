package peer

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/weir-edge/weir/pkg/region/consul"
)

const (
	maxInFlight = 4 // calls to one node
	// A failing node is called again after a pause that grows from first to longest.
	firstPause, longestPause = 50 * time.Millisecond, 5 * time.Second
	// downAfter is how many consecutive failures make a node count as gone.
	downAfter = 3
	// forgetAfter is when an unused link is closed.
	forgetAfter = 5 * time.Minute
	maxLinks    = 4096
	// versionFor is how long a node is assumed to speak only an older version.
	versionFor = time.Minute
)

// Links calls other nodes. It is safe for concurrent use.
type Links struct {
	config   Config
	versions []int
	ctx      context.Context // ends with Close
	stop     context.CancelFunc
	probes   sync.WaitGroup

	mu     sync.Mutex
	links  map[Node]*link
	closed bool
}

// NewLinks returns unconnected links.
func NewLinks(c Config) *Links {
	l := &Links{config: c, versions: versions, links: map[Node]*link{}}
	l.ctx, l.stop = context.WithCancel(context.Background())
	return l
}

// Close ends all calls and connections.
func (l *Links) Close() {
	l.mu.Lock()
	l.closed = true
	all := l.links
	l.links = nil
	l.mu.Unlock()
	l.stop()
	l.probes.Wait()
	for _, k := range all {
		k.close()
	}
}

// Call sends a message and returns the reply. It returns at the latest when ctx ends, or
// after 5 s. Its error is a *CallError, or the context's if the caller has canceled it. It
// never waits for another call: without room it returns ErrBusy immediately, and
// ErrUnreachable while a failed node is in its pause.
func (l *Links) Call(ctx context.Context, to Node, topic string, body []byte) ([]byte, error) {
	k, err := l.link(to)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	x := Exchange{Region: to.Region, Direction: Outgoing}
	if failed := k.begin(began); failed != nil {
		x.Result = resultOf(failed)
		l.config.observe(x)
		return nil, failed
	}
	defer k.end()
	call, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	defer context.AfterFunc(l.ctx, cancel)()
	reply, failed := k.send(call, topic, body, &x)
	if failed != nil && (errors.Is(ctx.Err(), context.Canceled) || l.ctx.Err() != nil) {
		return nil, context.Canceled // says nothing about the node
	}
	x.Took, x.Result = time.Since(began), resultOf(failed)
	l.config.observe(x)
	if l.note(k, failed) {
		l.config.Log.Warn("a peer does not answer", "peer_region", to.Region, "peer", to.ID, "address", to.Addr, "error", failed.Why)
	}
	if failed != nil {
		return nil, failed
	}
	return reply, nil
}

func resultOf(e *CallError) Result {
	if e == nil {
		return OK
	}
	return map[error]Result{ErrBusy: Busy, ErrUnreachable: Unreachable, ErrRefused: Refused, ErrVersion: Version}[e.Kind]
}

func (l *Links) link(to Node) (*link, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, context.Canceled
	}
	k := l.links[to]
	if k == nil {
		if len(l.links) >= maxLinks {
			return nil, &CallError{to, ErrBusy, "too many nodes are called", time.Second}
		}
		l.forget(time.Now())
		k = newLink(l, to)
		l.links[to] = k
	}
	return k, nil
}

// forget closes unused links.
func (l *Links) forget(now time.Time) {
	maps.DeleteFunc(l.links, func(_ Node, k *link) bool {
		idle := k.idle(now)
		if idle {
			k.close()
			l.config.Directory.setDown(k.node, false)
		}
		return idle
	})
}

// note records a call's outcome, and starts probing a node that has gone. It reports
// whether that is so.
func (l *Links) note(k *link, failed *CallError) (gone bool) {
	down, changed := k.note(failed, time.Now())
	if !changed {
		return false
	}
	l.config.Directory.setDown(k.node, down)
	if !down {
		l.config.Log.Info("a peer answers again", "peer_region", k.node.Region, "peer", k.node.ID, "address", k.node.Addr)
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.probes.Go(func() { l.probe(k) })
	}
	return true
}

// probe calls a gone node until it answers or is no longer needed, so that no message has
// to find out.
func (l *Links) probe(k *link) {
	for consul.Pause(l.ctx, k.pause()) == nil {
		ctx, cancel := context.WithTimeout(l.ctx, probeTimeout)
		failed := k.hello(ctx)
		cancel()
		if l.ctx.Err() != nil {
			return
		}
		l.note(k, failed)
		if failed == nil || !k.isDown() {
			return
		}
		if k.unwanted(time.Now()) { // the next call finds out
			k.revive()
			l.config.Directory.setDown(k.node, false)
			return
		}
	}
}

// backoff returns the pause after that many consecutive failures. Its longer half is
// random, so that nodes that lost the same peer do not return together.
func backoff(failures int) time.Duration {
	most := longestPause
	if failures < 8 {
		most = min(most, firstPause<<max(failures-1, 0))
	}
	return most/2 + rand.N(most/2)
}
