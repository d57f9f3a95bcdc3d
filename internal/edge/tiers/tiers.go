// Package tiers judges clients by the behavior policy in force, together with the other nodes
// of the region.
package tiers

import (
	"log/slog"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/edge/config"
	"github.com/weir-edge/weir/internal/edge/decide"
	"github.com/weir-edge/weir/internal/edge/documents"
	"github.com/weir-edge/weir/internal/logs"
	"github.com/weir-edge/weir/internal/metric"
	"github.com/weir-edge/weir/internal/policy"
	"github.com/weir-edge/weir/pkg/behavior"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// Evaluator judges clients by the behavior policy in force.
type Evaluator struct {
	*decide.Behavior
	Policies *documents.Keeper[policy.Policy]
	log      *slog.Logger
	metrics  *metrics
	rises    logs.Sampler
	active   atomic.Pointer[policy.Policy] // nil until there is one
}

// Open activates the first policy. A policy file must be valid; Consul may name a policy later.
// It returns nil if the configuration names neither. Delays end with stop.
func Open(node documents.Node, c *config.Config, registry metric.Registry, stop <-chan struct{}) (k *Evaluator, err error) {
	if c.Policy.File == "" && c.Policy.Source != config.FromConsul {
		return nil, nil
	}
	k = &Evaluator{log: node.Log, metrics: newMetrics(registry)}
	k.Behavior = decide.NewBehavior(k.active.Load, c.Policy.Subjects, time.Now())
	k.Stop, k.AboveMildest, k.Rose = stop, k.judged, k.rose
	registry.Collect(k.collect, behaviorSubjects, behaviorEvicted, behaviorUntracked, behaviorDelayed)
	document := documents.Config[policy.Policy]{
		Kind: documents.Kind[policy.Policy]{Name: "policy", What: "behavior policies", Compile: policy.Parse, CanaryOf: c.Node.PoP, Optional: true, Verify: c.Verify()},
		Node: node, Activate: k.activate, Cache: c.Policy.Cache,
		Metrics: documents.Metrics{Rejected: k.metrics.rejected, CacheErrors: k.metrics.cacheErrors, SourceUp: k.metrics.sourceUp},
	}
	if c.Policy.File != "" {
		document.Consul, document.Compile, document.Source, document.Read = nil, c.Policy.Parse, adminapi.SourceFile, c.Policy.Read
	}
	if k.Policies, err = documents.New(document); err != nil {
		return nil, err
	}
	if k.active.Load() == nil {
		k.log.Info("no behavior policy yet; clients are not evaluated until consul names one")
	}
	return k, nil
}

func (k *Evaluator) activate(d *documents.Document[policy.Policy], canary bool) error {
	p := d.Compiled
	k.active.Store(p)
	k.Activate(p)
	for _, tier := range p.Effects[1:] {
		k.metrics.shared.WithLabelValues(decide.KindClient, tier.Name)
	}
	k.metrics.info.Reset()
	k.metrics.info.WithLabelValues(p.Version, p.Mode()).Set(1)
	k.log.Info("policy active", "version", p.Version, "mode", p.Mode(), "source", d.Source, "canary", canary)
	return nil
}

// Meta adds the policy's fields to the registration.
func (k *Evaluator) Meta(meta map[string]string) {
	if k.Policies.Meta(meta); k.Policies.Consul != nil {
		meta[consul.MetaPolicySchema] = strconv.Itoa(policy.Schema)
	}
}

// judged counts a request of a subject above the mildest tier.
func (k *Evaluator) judged(r *decide.Request) {
	k.metrics.requests.WithLabelValues(r.BehaviorResult.Name(), string(r.BehaviorResult.Effect), r.BehaviorResult.Policy.Mode()).Inc()
}

// rose counts and logs a subject that entered a severer tier, and why.
func (k *Evaluator) rose(r *decide.Request, rise *decide.Rise) {
	if !rise.Shared {
		k.metrics.rises.WithLabelValues(rise.Kind, rise.Tier).Inc()
		k.countSignals(rise.Kind, rise.Tier, rise.Reasons)
	}
	skipped, ok := k.rises.Sample(time.Now())
	if !ok {
		return
	}
	list := []any{"kind", rise.Kind, "tier", rise.Tier, "score", int(rise.Score), "by", "node", "mode", r.BehaviorResult.Policy.Mode(), "client", r.Client.String(), "not_logged", skipped}
	if rise.Shared {
		list[7] = "region" // from the counts of several nodes
	}
	if rise.Kind == decide.KindRoute {
		list = append(list, "route", string(r.Route()))
	}
	if key := r.Subject(); key != "" {
		list = append(list, "subject", key)
	}
	if r.CrossSite() {
		list = append(list, "cross_site", true)
	}
	for _, reason := range rise.Reasons {
		list = append(list, slog.Group(reason.Signal.String(), "points", int(reason.Points), "value", reason.Value, "threshold", reason.Threshold))
	}
	k.log.Info("subject entered a severer tier", list...)
}

func (k *Evaluator) countSignals(kind, tier string, reasons []behavior.Reason) {
	for _, reason := range reasons {
		k.metrics.signals.WithLabelValues(kind, tier, reason.Signal.String()).Inc()
	}
}
