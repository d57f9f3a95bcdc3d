// Package recent keeps the latest requests that a node decided, without their secrets, in a
// fixed amount of memory. Keeping one never makes a request wait, and allocates nothing.
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

// Ring holds requests; each new one overwrites the oldest. Its methods may be called
// concurrently.
type Ring struct {
	config   Config
	headers  []string // in canonical form
	redactor *accesslog.Redactor
	began    time.Time
	below    uint64 // clients whose hash is below are kept
	scratch  sync.Pool

	next atomic.Uint64 // how many were put
	lost atomic.Uint64 // not kept, because their slot was in use
	// slots are 512 bytes each.
	slots []slot
	reads chan struct{} // one element per permitted reader
}

// room is the number of bytes for the text of a request.
const room = 456

// slot is one request. A goroutine that cannot lock it at once skips it: a writer if the
// ring wrapped around while another one wrote, or while the slot is being read.
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
	isCut // the text was truncated
)

// kind is the outcome of a request.
type kind uint8

const (
	passed kind = iota
	limited
	unavailable
	shed
	misbehaved
	blocked
)

// kindNames are the words in answers.
var kindNames = [...]string{"pass", "limited", "unavailable", "shed", "misbehaved", "blocked"}

// byRules reports whether the rules decided the request.
func (k kind) byRules() bool { return k <= unavailable }

// kindOf returns the outcome for a verdict. A malformed request is not kept, because no
// rule was evaluated.
func kindOf(v decide.Verdict, r *decide.Request) (kind, bool) {
	switch v {
	case decide.Pass:
		return passed, true
	case decide.Limited:
		if r.Decision.StoreUnavailable {
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

// readers is how many may read concurrently.
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

// Put keeps a decided request. Ended completes it.
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
	if s.seq > seq { // the ring wrapped around past this request
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
	r.RecentID = seq
}

// Ended records the result of a kept request.
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

// chosen reports whether a client's requests are kept: the same clients on all nodes, and
// IPv6 clients by /64.
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
