package tiers

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	mathrand "math/rand/v2"
	"time"

	"github.com/weir-edge/weir/internal/edge/decide"
	"github.com/weir-edge/weir/internal/metric"
	"github.com/weir-edge/weir/pkg/behavior"
	"github.com/weir-edge/weir/pkg/limiter/redisstore"
)

const (
	// shareEvery is how often nodes report what clients did. Half a period later each
	// reads the others' reports, so every node learns of a request within 1.5 s.
	shareEvery = time.Second
	// regionReported is how many clients all nodes of a region report together, and leastReported
	// and mostReported the bounds per node. For routes it is an eighth.
	regionReported, leastReported, mostReported = 2048, 32, 1000
	maxNodes                                    = 512

	reportFormat = 1 // of a report

	// shareWithin spreads when nodes ask.
	shareWithin = 50 * time.Millisecond
)

// Store carries the nodes' reports.
type Store interface {
	ExchangeAccounts(ctx context.Context, node, key, accounts string) (*redisstore.Accounts, error)
}

// share reports to the other nodes of a region what this one counted of clients, and
// judges by what all counted. No request waits for it; while the store does not answer, a
// node judges alone.
type share struct {
	*Evaluator
	store Store
	node  string
	key   string // hex, of names
	names *decide.Secret
	nodes int
	alone bool
}

// Share exchanges counts with the other nodes of the region until ctx ends.
func (k *Evaluator) Share(ctx context.Context, store Store, node string) {
	s := &share{Evaluator: k, store: store, node: node, nodes: 1}
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	s.use(hex.EncodeToString(key))
	timer := time.NewTimer(0)
	defer timer.Stop()
	for reports := true; ; reports = !reports {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			timer.Reset(s.exchange(ctx, reports))
		}
	}
}

// use switches to a key for naming subjects. It reports whether the key is valid.
func (s *share) use(key string) bool {
	b, err := hex.DecodeString(key)
	if err != nil || len(b) != 32 {
		return false
	}
	s.key, s.names = key, decide.NewSecret(b)
	s.SetNames(s.names)
	return true
}

// exchange reports what this node counted, or reads what the others reported. It returns
// how long to wait for the next exchange, so that all nodes report at the beginning of a
// second of the store's clock and read in its middle.
func (s *share) exchange(ctx context.Context, reports bool) time.Duration {
	if s.active.Load() == nil {
		return shareEvery / 2
	}
	word := ""
	if reports {
		word = s.word(time.Now())
	}
	others, err := s.store.ExchangeAccounts(ctx, s.node, s.key, word)
	if err == nil && others.Key != s.key && !s.use(others.Key) {
		err = fmt.Errorf("the key by which nodes name clients is invalid (got %d characters)", len(others.Key))
	}
	if ctx.Err() != nil {
		return shareEvery
	}
	s.know(err)
	if err != nil {
		s.divide(1)
		return shareEvery / 2
	}
	if !reports {
		s.hear(others.Words, time.Now())
	}
	s.divide(1 + min(others.Others, maxNodes))
	at := shareEvery / 2
	if !reports {
		at = shareEvery
	}
	passed := time.Duration(others.Now.UnixNano()) % shareEvery
	if passed > at {
		at += shareEvery
	}
	return at - passed + mathrand.N(shareWithin)
}

// know records when the node begins to evaluate alone, and when that ends.
func (s *share) know(err error) {
	s.metrics.alone.Set(metric.OneIf(err != nil))
	if alone := err != nil; alone != s.alone {
		if s.alone = alone; alone {
			s.log.Warn("clients are evaluated by what this node alone sees", "error", err)
		} else {
			s.log.Info("clients are evaluated by what all nodes of the region see")
		}
	}
}

func (s *share) divide(nodes int) {
	s.nodes = nodes
	s.metrics.nodes.Set(float64(nodes))
	s.Clients.Divide(nodes)
	s.Routes.Divide(nodes)
}

// word returns this node's report: the format, the key by which it names subjects, the
// number of clients, and the accounts of these and of routes.
func (s *share) word(now time.Time) string {
	most := max(leastReported, min(mostReported, regionReported/s.nodes))
	b := append([]byte{reportFormat}, s.names.Fingerprint()...)
	head := len(b) + 2
	b = s.Clients.AppendAccounts(append(b, 0, 0), now, most)
	clients := (len(b) - head) / behavior.AccountSize
	binary.LittleEndian.PutUint16(b[head-2:], uint16(clients))
	if p := s.active.Load(); p.Routes != nil {
		b = s.Routes.AppendAccounts(b, now, most/8)
	}
	s.metrics.reported.WithLabelValues(decide.KindClient).Set(float64(clients))
	s.metrics.reported.WithLabelValues(decide.KindRoute).Set(float64((len(b)-head)/behavior.AccountSize - clients))
	return string(b)
}

// hear judges by the others' reports. It skips reports of another format or with another
// key.
func (s *share) hear(words []string, now time.Time) {
	var clients, routes behavior.Region
	for _, word := range words[:min(len(words), maxNodes)] {
		s.read([]byte(word), &clients, &routes)
	}
	s.rise(decide.KindClient, s.Clients.Merge(now, &clients))
	if p := s.active.Load(); p.Routes != nil {
		s.rise(decide.KindRoute, s.Routes.Merge(now, &routes))
	}
}

func (s *share) read(b []byte, clients, routes *behavior.Region) {
	name := s.names.Fingerprint()
	head := 1 + len(name) + 2
	if len(b) < head || len(b) > head+2*mostReported*behavior.AccountSize || b[0] != reportFormat || string(b[1:1+len(name)]) != name {
		return
	}
	end := head + int(binary.LittleEndian.Uint16(b[head-2:]))*behavior.AccountSize
	if end <= len(b) && clients.Add(b[head:end]) {
		routes.Add(b[end:])
	}
}

// rise counts subjects that entered a severer tier because of what several nodes saw. They
// are logged at their next request, because only then is their name known.
func (s *share) rise(kind string, list []behavior.Risen) {
	p := s.active.Load()
	for _, r := range list {
		tier := p.Effects[min(r.Tier, len(p.Effects)-1)].Name
		s.metrics.shared.WithLabelValues(kind, tier).Inc()
		s.countSignals(kind, tier, r.Reasons)
	}
}
