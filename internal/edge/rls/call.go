package rls

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	envoytype "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/weir-edge/weir/internal/edge/decide"
	"github.com/weir-edge/weir/internal/edge/envoy"
	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/rules"
)

// Bounds of a call. Envoy's configurations stay far below.
const (
	maxDescriptors = 64
	maxPairs       = 16 // of a descriptor
)

// call is one call in progress. It is pooled, so no part of it may be retained.
type call struct {
	decide.Request
	service   *Service
	request   pb.RateLimitRequest
	wire      []byte        // the request as received
	kept      []*descriptor // for reuse; the request uses the first ones
	malformed bool

	descriptors []rules.Descriptor
	pairs       []rules.Pair
	answer
}

var (
	_ envoy.Call = (*call)(nil)
	_ envoy.Wire = (*call)(nil)
)

// In implements envoy.Call.
func (c *call) In() proto.Message { return &c.request }

// Malformed implements envoy.Call.
func (c *call) Malformed() { c.malformed = true }

// Out implements envoy.Call.
func (c *call) Out() proto.Message { return &c.response }

// Release implements envoy.Call.
func (c *call) Release() {
	c.Reset()
	c.forget()
	c.malformed = false
	clear(c.descriptors)
	clear(c.pairs)
	c.descriptors, c.pairs = c.descriptors[:0], c.pairs[:0]
	c.answer.reset()
	c.service.calls.Put(c)
}

// decide answers the call. An error is a status that says what is wrong with the call; in
// that case nothing was charged.
func (c *call) decide() (Outcome, error) {
	if c.Rules == nil {
		return Unavailable, status.Error(codes.Unavailable, "there are no rules yet")
	}
	if err := c.read(); err != nil {
		return Invalid, status.Error(codes.InvalidArgument, err.Error())
	}
	c.Client = c.Peer
	c.answer.begin(len(c.descriptors))
	step := len(c.descriptors)
	if c.service.Separate {
		step = 1
		// Match all descriptors before charging the first, so that an invalid call charges nothing.
		if err := c.match(c.descriptors); err != nil {
			return Invalid, status.Error(codes.InvalidArgument, err.Error())
		}
	}
	for first := 0; first < len(c.descriptors); first += step {
		if err := c.match(c.descriptors[first : first+step]); err != nil {
			return Invalid, status.Error(codes.InvalidArgument, err.Error())
		}
		verdict := c.service.Decider.Check(&c.Request)
		c.describe(first, verdict == decide.Pass)
	}
	return c.answer.finish(), nil
}

func (c *call) match(list []rules.Descriptor) error {
	return c.Rules.Set().MatchCall(c.request.Domain, list, rand.Uint64(), &c.Match)
}

// read checks the request and copies what deciding needs.
func (c *call) read() error {
	q := &c.request
	switch n := len(q.Descriptors); {
	case q.Domain == "":
		return fmt.Errorf("domain: is empty; set the domain of Envoy's rate limit filter")
	case n == 0:
		return fmt.Errorf("descriptors: is empty; send at least one")
	case n > maxDescriptors:
		return fmt.Errorf("descriptors: must be at most %d (got %d)", maxDescriptors, n)
	}
	for i, d := range q.Descriptors {
		if n := len(d.GetEntries()); n == 0 || n > maxPairs {
			return fmt.Errorf("descriptors[%d].entries: must be 1 to %d (got %d)", i, maxPairs, n)
		}
		for k, e := range d.Entries {
			if e.GetKey() == "" {
				return fmt.Errorf("descriptors[%d].entries[%d].key: is empty", i, k)
			}
			c.pairs = append(c.pairs, rules.Pair{Key: e.Key, Value: e.Value})
		}
		hits, err := hitsOf(q, d)
		if err != nil {
			return fmt.Errorf("descriptors[%d].%w", i, err)
		}
		next := rules.Descriptor{Hits: hits}
		if d.Limit != nil {
			if next.Window, err = windowOf(d.Limit); err != nil {
				return fmt.Errorf("descriptors[%d].limit.%w", i, err)
			}
			next.Limit = int64(d.Limit.RequestsPerUnit)
		}
		c.descriptors = append(c.descriptors, next)
	}
	start := 0 // only now, because appending moves the slice
	for i, d := range q.Descriptors {
		end := start + len(d.Entries)
		c.descriptors[i].Pairs = c.pairs[start:end:end]
		start = end
	}
	return nil
}

// hitsOf returns how many hits a descriptor adds: its own, or the request's, or one. Negative
// ones are given back.
func hitsOf(q *pb.RateLimitRequest, d *ratelimit.RateLimitDescriptor) (int64, error) {
	hits := uint64(max(q.HitsAddend, 1))
	if d.HitsAddend != nil {
		hits = d.HitsAddend.Value
	}
	if hits > limiter.MaxCount {
		return 0, fmt.Errorf("hits_addend: must be at most %d (got %d)", limiter.MaxCount, hits)
	}
	if d.IsNegativeHits {
		return -int64(hits), nil
	}
	return int64(hits), nil
}

// units are the windows that Envoy has names for. A month is 30 days to the reference
// service, and a year 365.
var units = map[envoytype.RateLimitUnit]time.Duration{
	envoytype.RateLimitUnit_SECOND: time.Second,
	envoytype.RateLimitUnit_MINUTE: time.Minute,
	envoytype.RateLimitUnit_HOUR:   time.Hour,
	envoytype.RateLimitUnit_DAY:    24 * time.Hour,
	envoytype.RateLimitUnit_MONTH:  30 * 24 * time.Hour,
	envoytype.RateLimitUnit_YEAR:   365 * 24 * time.Hour,
}

func windowOf(l *ratelimit.RateLimitDescriptor_RateLimitOverride) (time.Duration, error) {
	unit, known := units[l.Unit]
	if !known {
		return 0, fmt.Errorf("unit: must be SECOND, MINUTE, HOUR, DAY or MONTH (got %s)", l.Unit)
	}
	times := int64(1)
	if l.UnitMultiplier != nil {
		times = int64(l.UnitMultiplier.Value)
	}
	if times < 1 || times > math.MaxInt64/int64(unit) || time.Duration(times)*unit > limiter.MaxWindow {
		return 0, fmt.Errorf("unit: must make a window of at most %s (got %d times %s)", limiter.MaxWindow, times, l.Unit)
	}
	return time.Duration(times) * unit, nil
}
