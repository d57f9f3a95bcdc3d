package edge

import (
	"crypto/sha256"
	"log/slog"
	"maps"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/edge/config"
	"github.com/weir-edge/weir/internal/edge/decide"
	"github.com/weir-edge/weir/internal/edge/documents"
	"github.com/weir-edge/weir/internal/policy"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// conductKeeper keeps the right policy active: the one in Consul or in a file.
type conductKeeper struct {
	*decide.Conduct
	config  *config.Policy
	log     *slog.Logger
	metrics *metrics
	changed func() // tells the registrar to update the registration
	rises   sampler

	active   atomic.Pointer[policy.Policy] // nil until there is one
	state    atomic.Pointer[policyState]
	told     atomic.Pointer[map[string]string]  // policy fields of the registration
	follower *documents.Follower[policy.Policy] // nil unless Consul is followed

	// For a policy file.
	seen  [sha256.Size]byte // at the last look
	last  [sha256.Size]byte // activated, or refused
	fault string            // last logged
}

// policyState is what runs and what is known about it, published as one.
type policyState struct {
	running *policy.Policy // nil until there is one
	since   time.Time
	source  string // "" until there is one
	canary  bool
	pointer *consul.Pointer // the one followed; nil if unknown, and without Consul
	refused *adminapi.Refusal
	stale   bool // it is not what was published, or that is unknown
}

// openConduct activates the first policy. A policy file must be valid; Consul may name a
// policy later.
func (e *Edge) openConduct() error {
	c := &e.config.Policy
	if c.File == "" && c.Source != config.FromConsul {
		return nil
	}
	k := &conductKeeper{config: c, log: e.log, metrics: e.metrics, changed: e.changed}
	k.state.Store(&policyState{stale: true})
	k.Conduct = decide.NewConduct(k.active.Load, c.Subjects, time.Now())
	k.Stop, k.Judged, k.Rose = e.ctx.Done(), k.judged, k.rose
	e.metrics.registry.MustRegister(conductCollector{k.Conduct}, k.metrics.conductRequests, k.metrics.conductRises, k.metrics.conductSignals,
		k.metrics.policyInfo, k.metrics.policyRejected, k.metrics.policySourceUp, k.metrics.policyCacheErrors,
		k.metrics.conductNodes, k.metrics.conductAlone, k.metrics.conductTold, k.metrics.conductShared)
	k.metrics.conductNodes.Set(1)
	for _, kind := range []string{decide.KindClient, decide.KindRoute} {
		k.metrics.conductTold.WithLabelValues(kind)
	}
	if c.Source == config.FromConsul {
		k.follow(e.config, e.consul)
	} else if err := k.load(); err != nil {
		return err
	}
	e.conduct, e.decider.Conduct = k, k.Conduct
	return nil
}

// load activates the policy of a file.
func (k *conductKeeper) load() error {
	data, err := k.config.Read()
	if err != nil {
		return err
	}
	made, err := k.config.Parse(data)
	if err != nil {
		return err
	}
	k.last = sha256.Sum256(data)
	k.seen = k.last
	k.activate(made, adminapi.SourceFile, false)
	k.publish(policyState{source: adminapi.SourceFile})
	k.metrics.policySourceUp.Set(1)
	return nil
}

// follow prepares to follow the policy of the region and the canary of this PoP, and
// activates the cached one. It connects to nothing yet.
func (k *conductKeeper) follow(c *config.Config, client *consul.Client) {
	k.follower = documents.New(documents.Config[policy.Policy]{
		Kind: documents.Kind[policy.Policy]{Name: "policy", What: "behavior policies", Compile: policy.Parse, Faults: messages, CanaryOf: c.Node.PoP, Verify: c.Verify()},
		Log:  k.log, Consul: client, Cache: c.Policy.Cache, Owner: c.CacheOwner(),
		Rejected: k.metrics.policyRejected.Inc, CacheFailed: k.metrics.policyCacheErrors.Inc,
	})
	k.settle(time.Now())
	if k.active.Load() == nil {
		k.log.Info("no behavior policy yet; clients are not judged until consul names one")
	}
}

// settle activates the policy that should run and publishes the resulting state.
func (k *conductKeeper) settle(now time.Time) time.Duration {
	c := k.follower.Choose(now)
	running := k.active.Load()
	if c.Document != nil && (running == nil || running.Version != c.Document.Pointer.Version) {
		running = c.Document.Made
		k.activate(running, c.Document.Source, c.Canary)
	}
	s := policyState{canary: c.Canary, pointer: c.Pointer, refused: c.Refused}
	if c.Document != nil {
		s.source = c.Document.Source
	}
	// While nothing was ever published, having no policy is correct.
	s.stale = !c.Known || c.Refused != nil || c.Pointer != nil && (running == nil || running.Version != c.Pointer.Version)
	k.metrics.policySourceUp.Set(oneIf(c.Lost == nil))
	k.metrics.signed(k.follower.Name, k.follower.SignatureState)
	k.publish(s)
	return time.Minute
}

func (k *conductKeeper) activate(p *policy.Policy, source string, canary bool) {
	k.active.Store(p)
	k.Activate(p)
	for _, tier := range p.Effects[1:] {
		k.metrics.conductShared.WithLabelValues(decide.KindClient, tier.Name)
	}
	k.metrics.policy(p)
	k.log.Info("policy active", "version", p.Version, "mode", modeOf(p), "source", source, "canary", canary)
}

// publish completes a state and makes it visible.
func (k *conductKeeper) publish(s policyState) {
	s.running, s.since = k.active.Load(), time.Now()
	if before := k.state.Load(); before.running == s.running {
		s.since = before.since
	}
	k.state.Store(&s)
	told := map[string]string{consul.MetaPolicyRefused: s.refused.String()}
	if s.running != nil {
		told[consul.MetaPolicyVersion] = s.running.Version
	}
	if k.follower != nil {
		told[consul.MetaPolicySchema] = strconv.Itoa(policy.Schema)
	}
	if before := k.told.Swap(&told); before == nil || !maps.Equal(*before, told) {
		k.changed()
	}
}

// meta returns the policy fields that the node registers.
func (k *conductKeeper) meta() map[string]string { return *k.told.Load() }

// reload activates a policy replaced on disk once two checks find the same content: the
// beginning of a document still being written can be valid. An invalid policy changes
// nothing.
func (k *conductKeeper) reload() error {
	data, err := k.config.Read()
	k.metrics.policySourceUp.Set(oneIf(err == nil))
	if err != nil {
		return err
	}
	sum := sha256.Sum256(data)
	settled := sum == k.seen
	if k.seen = sum; !settled || sum == k.last {
		return nil
	}
	k.last = sum
	s := policyState{source: adminapi.SourceFile}
	if made, err := k.config.Parse(data); err != nil {
		k.metrics.policyRejected.Inc()
		k.log.Error("policy refused; the one before stays active", "error", err)
		version := consul.NewPointer(data, "", time.Time{}).Version
		s.refused, s.stale = documents.Refuse(nil, version, false, messages(err)), true
	} else {
		k.activate(made, adminapi.SourceFile, false)
	}
	k.publish(s)
	return nil
}

// describe adds faults to a readiness.
func (k *conductKeeper) describe(state *adminapi.Readiness) {
	state.PolicyRefused = k.state.Load().refused.String()
	if k.follower == nil || k.follower.CacheState == nil {
		return
	}
	if s := k.follower.SignatureState; s != nil {
		state.PolicySignature = s.View().Error
	}
	if v := k.follower.CacheState.View(); !v.OK {
		state.PolicyCache = v.Error
	}
}

// showPolicy shows the active policy.
func (e *Edge) showPolicy(w http.ResponseWriter, _ *http.Request) {
	v := adminapi.Policy{Node: e.config.Node.ID, Source: adminapi.NoVersion}
	if k := e.conduct; k != nil {
		s := k.state.Load()
		v.Canary, v.Stale, v.Pointer, v.Refused = s.canary, s.stale, s.pointer, s.refused
		if s.running != nil {
			v.Version, v.Mode, v.Since, v.Source = s.running.Version, modeOf(s.running), s.since.UTC(), s.source
		}
		if f := k.follower; f != nil && f.ConsulState != nil {
			v.Consul, v.Cache = f.ConsulState.View(), f.CacheState.View()
			if f.SignatureState != nil {
				v.Signature = f.SignatureState.View()
			}
		}
	}
	writeJSON(w, http.StatusOK, v)
}
