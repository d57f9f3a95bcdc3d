package edge

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/metric"
	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/redisstore"
)

// shardStates tracks which masters do not answer, and why, for the log, the metric and
// /readyz.
type shardStates struct {
	log     *slog.Logger
	metrics *metrics

	mu       sync.Mutex
	down     map[string]*outage
	logged   map[string]time.Time // error codes that the store sent
	evicting map[string]*redisstore.Eviction
}

// outage is a shard that does not answer.
type outage struct {
	err    error // the latest
	logged map[string]bool
}

// cause normalizes errors whose texts differ only in a port or a time.
func cause(err error) string {
	if code := redisstore.ReplyCode(err); code != "" {
		return code
	}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno.Error()
	}
	for inner := err; inner != nil; inner = errors.Unwrap(inner) {
		err = inner
	}
	return fmt.Sprintf("%T", err)
}

func newShardStates(log *slog.Logger, m *metrics) *shardStates {
	return &shardStates{
		log: log, metrics: m, down: map[string]*outage{}, logged: map[string]time.Time{},
		evicting: map[string]*redisstore.Eviction{},
	}
}

// set records why a shard is down; nil means it is back. Each cause of an outage is logged
// once.
func (s *shardStates) set(addr string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.down[addr]
	switch {
	case err == nil:
		delete(s.down, addr)
		s.log.Info("store is back", "addr", addr)
	case o == nil:
		o = &outage{logged: map[string]bool{}}
		s.down[addr] = o
		fallthrough
	default:
		o.err = err
		if c := cause(err); errors.Is(err, limiter.ErrReply) {
			s.refuses(err)
		} else if !o.logged[c] {
			o.logged[c] = true
			s.log.Warn("store does not answer; rules apply on_store_failure", "addr", addr, "error", err)
		}
	}
	s.metrics.storeUp.Set(metric.OneIf(len(s.down) == 0))
}

// text returns what /readyz shows: ok, or what is down and why.
func (s *shardStates) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var parts []string
	for _, addr := range slices.Sorted(maps.Keys(s.down)) {
		parts = append(parts, addr+": "+s.down[addr].err.Error())
	}
	if len(parts) == 0 {
		return adminapi.OK
	}
	return strings.Join(parts, "; ")
}

// logAgain is when an error code that a store keeps sending is logged again.
const logAgain = time.Hour

// failed counts a decision that the store could not make. It immediately logs an error that
// the store sent as the cause; that a master accepts no writes shows everywhere within a
// second.
func (s *shardStates) failed(err error) {
	s.metrics.storeErrors.WithLabelValues(redisstore.ErrorKind(err)).Inc()
	if !errors.Is(err, limiter.ErrReply) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuses(err)
}

// refuses logs an error that the store sent, once for each code (OOM, READONLY).
func (s *shardStates) refuses(err error) {
	code := redisstore.ReplyCode(err)
	if now := time.Now(); now.Sub(s.logged[code]) > logAgain {
		s.logged[code] = now
		s.log.Warn("store refuses to decide; rules apply on_store_failure", "error", err)
	}
}

// evicts records what a master does when its memory is full, or nil when it is no longer a
// master, and logs changes.
func (s *shardStates) evicts(addr string, now *redisstore.Eviction) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.evicting[addr]
	if before == nil {
		before = &redisstore.Eviction{}
	}
	if now == nil {
		delete(s.evicting, addr)
	} else {
		s.evicting[addr] = now
		if now.May && !before.May || now.Evicted > before.Evicted {
			s.log.Warn("store evicts counters when its memory is full, which resets their limits; set maxmemory-policy noeviction",
				"addr", addr, "policy", now.Policy, "evicted_keys", now.Evicted)
		}
	}
	may, evicted := false, int64(0)
	for _, e := range s.evicting {
		may = may || e.May
		evicted += e.Evicted
	}
	s.metrics.storeMayEvict.Set(metric.OneIf(may))
	s.metrics.storeEvicted.Set(float64(evicted))
}
