// Package recent keeps the latest requests that a node decided, without their secrets, in
// memory of a fixed size. Keeping one never makes a request wait, and allocates nothing.
package recent

import (
	"encoding/binary"
	"fmt"
	"math"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/internal/edge/accesslog"
	"github.com/weir-edge/weir/internal/edge/decide"
)

// Ring holds requests; the oldest makes room for the next. Its methods may be called at the
// same time.
type Ring struct {
	config   Config
	headers  []string // in canonical form
	redactor *accesslog.Redactor
	began    time.Time
	below    uint64 // clients whose hash is below are kept
	scratch  sync.Pool

	next atomic.Uint64 // how many were put
	lost atomic.Uint64 // while their slot was in use
	// slots are 512 bytes each.
	slots []slot
	reads chan struct{} // places of those who read
}

// room is for the text of a request.
const room = 456

// slot is one request. Whoever cannot have it at once does without: a writer when the ring
// turned while another one wrote, or while the slot is read.
type slot struct {
	mu      sync.Mutex
	seq     uint64 // 1 for the first request that was put; 0: never used
	began   int64  // Unix microseconds
	took    int64  // microseconds; -1: unknown
	client  [16]byte
	status  uint16 // 0: unknown
	verdict kind
	flags   uint8
	length  uint16
	text    [room]byte
}

const (
	isIPv4 uint8 = 1 << iota
	isTrusted
	isCut // not all of the text had room
)

// kind is what became of a request.
type kind uint8

const (
	passed kind = iota
	limited
	unavailable
	shed
	misbehaved
	blocked
)

// kindNames are what the answers say.
var kindNames = [...]string{"pass", "limited", "unavailable", "shed", "misbehaved", "blocked"}

// byRules reports whether the rules decided it.
func (k kind) byRules() bool { return k <= unavailable }

// kindOf returns what a verdict amounts to. A request that was refused for its form is not
// kept: no rule was asked.
func kindOf(v decide.Verdict, r *decide.Request) (kind, bool) {
	switch v {
	case decide.Pass:
		return passed, true
	case decide.Limited:
		if r.Decision.Unavailable {
			return unavailable, true
		}
		return limited, true
	case decide.Shed:
		return shed, true
	case decide.Misbehaved:
		return misbehaved, true
	case decide.Blocked:
		return blocked, true
	}
	return 0, false
}

// readers is how many may read at the same time.
const readers = 2

// New returns an empty ring. c must be valid.
func New(c Config) (*Ring, error) {
	redactor, err := accesslog.NewRedactor(c.HashKeyFile, c.Headers)
	if err != nil {
		return nil, fmt.Errorf("recent.hash_key_file: %w", err)
	}
	r := &Ring{config: c, redactor: redactor, began: time.Now(), below: math.MaxUint64, slots: make([]slot, c.Keep), reads: make(chan struct{}, readers)}
	if c.Share < 1 {
		r.below = uint64(c.Share * math.MaxUint64)
	}
	for _, name := range c.Headers {
		r.headers = append(r.headers, http.CanonicalHeaderKey(name))
	}
	r.scratch.New = func() any { b := make([]byte, 0, 1<<10); return &b }
	return r, nil
}

// Put keeps a request that was decided. Ended completes it.
func (g *Ring) Put(r *decide.Request, v decide.Verdict) {
	k, ok := kindOf(v, r)
	if !ok || !g.chosen(r.Client) {
		return
	}
	seq := g.next.Add(1)
	s := &g.slots[(seq-1)%uint64(len(g.slots))]
	if !s.mu.TryLock() {
		g.lost.Add(1)
		return
	}
	defer s.mu.Unlock()
	if s.seq > seq { // this one was overtaken by a whole turn
		g.lost.Add(1)
		return
	}
	s.seq, s.began, s.took, s.status, s.verdict = seq, r.Began.UnixMicro(), -1, 0, k
	s.client, s.flags = r.Client.As16(), 0
	if r.Client.Is4() {
		s.flags |= isIPv4
	}
	if r.Trusted {
		s.flags |= isTrusted
	}
	g.describe(s, r)
	r.Kept = seq
}

// Ended says how a request that was kept ended.
func (g *Ring) Ended(seq uint64, status int, took time.Duration) {
	s := &g.slots[(seq-1)%uint64(len(g.slots))]
	if !s.mu.TryLock() {
		return
	}
	defer s.mu.Unlock()
	if s.seq == seq {
		s.status, s.took = uint16(status), took.Microseconds()
	}
}

// chosen reports whether a client is among those that are kept: the same ones on all nodes,
// an IPv6 client with the whole of its /64.
func (g *Ring) chosen(client netip.Addr) bool {
	if g.below == math.MaxUint64 {
		return true
	}
	a := client.As16()
	x := binary.BigEndian.Uint64(a[:8])
	if client.Is4() {
		x = uint64(binary.BigEndian.Uint32(a[12:]))
	}
	return mix(x) < g.below
}

// mix spreads neighbors over all values: the finalizer of SplitMix64.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
