package rls

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

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
	wire      []byte // the request as received
	request   request
	malformed bool

	descriptors []rules.Descriptor
	answer
}

var _ envoy.Call = (*call)(nil)

// Release implements envoy.Call.
func (c *call) Release() {
	c.Reset()
	c.forget()
	clear(c.descriptors)
	c.descriptors = c.descriptors[:0]
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
	return c.answer.outcome(), nil
}

func (c *call) match(list []rules.Descriptor) error {
	return c.Rules.Set().MatchCall(c.request.domain, list, rand.Uint64(), &c.Match)
}

// read checks the request and fills in what is matched, which shares its strings.
func (c *call) read() error {
	q := &c.request
	switch {
	case q.domain == "":
		return fmt.Errorf("domain: is empty; set the domain of Envoy's rate limit filter")
	case q.sent == 0:
		return fmt.Errorf("descriptors: is empty; send at least one")
	case q.sent > maxDescriptors:
		return fmt.Errorf("descriptors: must be at most %d (got %d)", maxDescriptors, q.sent)
	}
	for i := range q.descriptors {
		d := &q.descriptors[i]
		if d.sent == 0 || d.sent > maxPairs {
			return fmt.Errorf("descriptors[%d].entries: must be 1 to %d (got %d)", i, maxPairs, d.sent)
		}
		for k, p := range d.pairs {
			if p.Key == "" {
				return fmt.Errorf("descriptors[%d].entries[%d].key: is empty", i, k)
			}
		}
		hits, err := hitsOf(q, d)
		if err != nil {
			return fmt.Errorf("descriptors[%d].%w", i, err)
		}
		next := rules.Descriptor{Pairs: d.pairs, Hits: hits}
		if d.limited {
			if next.Window, err = d.limit.window(); err != nil {
				return fmt.Errorf("descriptors[%d].limit.%w", i, err)
			}
			next.Limit = int64(d.limit.requests)
		}
		c.descriptors = append(c.descriptors, next)
	}
	return nil
}

// hitsOf returns how many hits a descriptor adds: its own, or the request's, or one. Negative
// ones are given back.
func hitsOf(q *request, d *descriptor) (int64, error) {
	hits := uint64(max(q.hits, 1))
	if d.counted {
		hits = d.hits
	}
	if hits > limiter.MaxCount {
		return 0, fmt.Errorf("hits_addend: must be at most %d (got %d)", limiter.MaxCount, hits)
	}
	if d.negative {
		return -int64(hits), nil
	}
	return int64(hits), nil
}

// unit is a window that Envoy has a name for.
type unit struct {
	name   string
	length time.Duration
}

// units are Envoy's, by their numbers. A month is 30 days to the reference service, and a year
// 365. Envoy has WEEK only in answers.
var units = [...]unit{
	0:     {"UNKNOWN", 0},
	1:     {"SECOND", time.Second},
	2:     {"MINUTE", time.Minute},
	3:     {"HOUR", time.Hour},
	4:     {"DAY", 24 * time.Hour},
	month: {"MONTH", 30 * 24 * time.Hour},
	6:     {"YEAR", 365 * 24 * time.Hour},
	week:  {"WEEK", 7 * 24 * time.Hour},
}

const (
	month = 5
	week  = 7
)

func (l *limit) window() (time.Duration, error) {
	if l.unit == 0 || l.unit >= week {
		return 0, fmt.Errorf("unit: must be SECOND, MINUTE, HOUR, DAY or MONTH (got %s)", nameOf(l.unit))
	}
	u, times := units[l.unit], int64(1)
	if l.multiplied {
		times = int64(l.times)
	}
	if times < 1 || times > math.MaxInt64/int64(u.length) || time.Duration(times)*u.length > limiter.MaxWindow {
		return 0, fmt.Errorf("unit: must make a window of at most %s (got %d times %s)", limiter.MaxWindow, times, u.name)
	}
	return time.Duration(times) * u.length, nil
}

func nameOf(unit uint32) string {
	if unit == 0 {
		return units[0].name
	}
	return strconv.Itoa(int(int32(unit)))
}
