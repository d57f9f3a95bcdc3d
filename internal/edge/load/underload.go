package load

import (
	"context"
	"log/slog"
	"math"
	"math/rand/v2"
	"time"

	"github.com/weir-edge/weir/internal/edge/config"
	"github.com/weir-edge/weir/internal/edge/decide"
	"github.com/weir-edge/weir/internal/metric"
	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/redisstore"
	"github.com/weir-edge/weir/pkg/limiter/rules"
	"github.com/weir-edge/weir/pkg/shedder"
)

// UnderLoad determines the utilization that limits follow: once per second, one value for
// each upstream group in the region, which the store computes from what its nodes measure.
// It is their mean: a slow origin affects all nodes, but trouble on one node must not lower
// everyone's limits. Without a store, or while it does not answer, a node follows its own.
type UnderLoad struct {
	*decide.UnderLoad
	log      *slog.Logger
	metrics  *underLoadMetrics
	groups   []string
	shedders []*shedder.Shedder // by group
	rules    func() *rules.Set  // nil until there are any
	store    *redisstore.Store  // nil without one
	node     string

	loads  []redisstore.Load      // by group
	own    []redisstore.Following // without the store
	sums   []float64              // sums of the utilization since the last exchange
	counts []float64
	stages []loadStage // already logged
	alone  bool
}

// loadStage is how far the limits of a group are lowered.
type loadStage uint8

const (
	notLowered loadStage = iota
	lowered
	atFloor
)

// String returns the word used in logs.
func (s loadStage) String() string { return [...]string{"full", "lowered", "lowest"}[s] }

// exchangeWithin spreads, within the store's second, when nodes ask for its value.
const exchangeWithin = 50 * time.Millisecond

// OpenUnderLoad prepares to follow load. store is nil where no nodes share one; nodes returns how
// many do.
func OpenUnderLoad(c *config.Config, log *slog.Logger, registry metric.Registry, shedders []*shedder.Shedder, active func() *rules.Set, store *redisstore.Store, nodes func() int) *UnderLoad {
	n := len(shedders)
	k := &UnderLoad{
		log: log, metrics: newUnderLoadMetrics(registry), groups: c.Groups(), shedders: shedders, rules: active, node: c.Node.ID, store: store,
		loads: make([]redisstore.Load, n), own: make([]redisstore.Following, n), sums: make([]float64, n), counts: make([]float64, n), stages: make([]loadStage, n),
	}
	for i, name := range k.groups {
		k.loads[i].Group = name
		k.metrics.followed.WithLabelValues(name)
		k.metrics.nodes.WithLabelValues(name)
		k.metrics.lowered.WithLabelValues(name)
		k.metrics.wanted.WithLabelValues(name)
	}
	k.UnderLoad = decide.NewUnderLoad(n, nodes, func(upstream int) {
		k.shedders[upstream].Wanted()
		k.metrics.wanted.WithLabelValues(k.groups[upstream]).Inc()
	})
	return k
}

// Run follows the load until ctx ends.
func (k *UnderLoad) Run(ctx context.Context) {
	samples, exchange := time.NewTicker(shedder.Interval), time.NewTimer(0)
	defer samples.Stop()
	defer exchange.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-samples.C:
			k.sample()
		case <-exchange.C:
			exchange.Reset(k.exchange(ctx))
		}
	}
}

func (k *UnderLoad) sample() {
	for i, s := range k.shedders {
		if u, known := s.Utilization(); known {
			k.sums[i] += u
			k.counts[i]++
		}
	}
}

// exchange finds what limits follow in this second, and returns when to do so again. While
// no rule follows load, it sends nothing.
func (k *UnderLoad) exchange(ctx context.Context) time.Duration {
	for i := range k.loads {
		if k.loads[i].Own = -1; k.counts[i] > 0 {
			k.loads[i].Own = int64(math.Round(limiter.FullLoad * k.sums[i] / k.counts[i]))
		}
		k.sums[i], k.counts[i] = 0, 0
	}
	running := k.rules()
	follows := running != nil && running.FollowsLoad()
	if follows && k.store != nil {
		k.store.Loads(ctx, k.node, k.loads)
	}
	now, alone := time.Now().UnixMicro(), false
	for i := range k.loads {
		l := &k.loads[i]
		switch {
		case !follows:
			l.Value, l.Nodes, k.own[i] = 0, 0, redisstore.Following{}
		case k.store == nil || l.Err != nil:
			k.own[i] = redisstore.FollowLoad(k.own[i], max(0, l.Own))
			l.Value, l.Nodes, alone = k.own[i].Value, 1, true
		default:
			now, k.own[i] = l.Now, redisstore.Following{Mean: l.Value, Value: l.Value}
		}
		k.Set(i, l.Value)
		k.metrics.followed.WithLabelValues(l.Group).Set(float64(l.Value) / limiter.FullLoad)
		k.metrics.nodes.WithLabelValues(l.Group).Set(float64(l.Nodes))
		if running != nil {
			k.show(i, running)
		}
	}
	if k.metrics.alone.Set(metric.OneIf(alone)); alone != k.alone && k.store != nil {
		k.alone = alone
		k.log.Info("what limits under load follow has changed", "own_load_only", alone)
	}
	second := limiter.LoadTick.Microseconds()
	return time.Duration(second-now%second)*time.Microsecond + rand.N(exchangeWithin)
}

// show tells operators how many rules of a group are lowered, and logs when that begins,
// ends, or reaches the floor.
func (k *UnderLoad) show(i int, set *rules.Set) {
	n, stage := 0, notLowered
	for rule := range set.Variants() {
		if rule.UnderLoad == nil || rule.Mode == rules.Off {
			continue
		}
		switch step := rule.Limit.UnderLoad.Step(k.loads[i].Value); {
		case step == limiter.LoadSteps:
			n, stage = n+1, atFloor
		case step > 0:
			n, stage = n+1, max(stage, lowered)
		}
	}
	name := k.groups[i]
	k.metrics.lowered.WithLabelValues(name).Set(float64(n))
	if stage != k.stages[i] {
		k.stages[i] = stage
		k.log.Info("limits follow load", "upstream", name, "limits", stage.String(), "rules", n,
			"utilization", float64(k.loads[i].Value)/limiter.FullLoad, "nodes", k.loads[i].Nodes)
	}
}
