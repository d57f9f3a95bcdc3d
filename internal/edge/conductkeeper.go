package edge

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
	"github.com/weir-edge/weir/internal/policy"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// conductKeeper judges clients by the behavior policy in force.
type conductKeeper struct {
	*decide.Conduct
	policy  *documents.Keeper[policy.Policy]
	log     *slog.Logger
	metrics *metrics
	rises   logs.Sampler
	active  atomic.Pointer[policy.Policy] // nil until there is one
}

// openConduct activates the first policy. A policy file must be valid; Consul may name a
// policy later.
func (e *Edge) openConduct() (err error) {
	c := &e.config.Policy
	if c.File == "" && c.Source != config.FromConsul {
		return nil
	}
	k := &conductKeeper{log: e.log, metrics: e.metrics}
	k.Conduct = decide.NewConduct(k.active.Load, c.Subjects, time.Now())
	k.Stop, k.Judged, k.Rose = e.ctx.Done(), k.judged, k.rose
	e.metrics.registry.MustRegister(conductCollector{k.Conduct}, k.metrics.conductRequests, k.metrics.conductRises, k.metrics.conductSignals,
		k.metrics.policyInfo, k.metrics.policyRejected, k.metrics.policySourceUp, k.metrics.policyCacheErrors,
		k.metrics.conductNodes, k.metrics.conductAlone, k.metrics.conductTold, k.metrics.conductShared)
	k.metrics.conductNodes.Set(1)
	for _, kind := range []string{decide.KindClient, decide.KindRoute} {
		k.metrics.conductTold.WithLabelValues(kind)
	}
	config := documents.Config[policy.Policy]{
		Kind:     documents.Kind[policy.Policy]{Name: "policy", What: "behavior policies", Compile: c.Parse, CanaryOf: e.config.Node.PoP, Optional: true, Verify: e.config.Verify()},
		Activate: k.activate,
		Metrics:  documents.Metrics{Rejected: e.metrics.policyRejected, CacheErrors: e.metrics.policyCacheErrors, SourceUp: e.metrics.policySourceUp},
	}
	client := e.consul
	if c.File != "" {
		client, config.Source, config.Read = nil, adminapi.SourceFile, c.Read
	} else {
		config.Compile, config.Metrics.Unsigned = policy.Parse, e.metrics.documentsUnsigned.WithLabelValues("policy")
	}
	if k.policy, err = openDocument(e, config, client, c.Cache); err != nil {
		return err
	}
	if k.active.Load() == nil {
		k.log.Info("no behavior policy yet; clients are not judged until consul names one")
	}
	e.conduct, e.decider.Conduct = k, k.Conduct
	return nil
}

func (k *conductKeeper) activate(d *documents.Document[policy.Policy], canary bool) error {
	p := d.Made
	k.active.Store(p)
	k.Activate(p)
	for _, tier := range p.Effects[1:] {
		k.metrics.conductShared.WithLabelValues(decide.KindClient, tier.Name)
	}
	k.metrics.policy(p)
	k.log.Info("policy active", "version", p.Version, "mode", p.Mode(), "source", d.Source, "canary", canary)
	return nil
}

// meta adds the policy's fields to the registration.
func (k *conductKeeper) meta(meta map[string]string) {
	if k.policy.Meta(meta); k.policy.Consul != nil {
		meta[consul.MetaPolicySchema] = strconv.Itoa(policy.Schema)
	}
}
