package edge

import (
	"context"
	"errors"
	"time"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/edge/config"
	"github.com/weir-edge/weir/internal/edge/documents"
	"github.com/weir-edge/weir/pkg/limiter/rules"
	"github.com/weir-edge/weir/pkg/region/consul"
	"github.com/weir-edge/weir/pkg/sign"
)

// follow prepares to follow the rules of the region and the canary of this PoP,
// and activates the cached ones. It connects to nothing yet.
func (k *ruleKeeper) follow(c *config.Config, client *consul.Client) error {
	var fetch func(context.Context) ([]byte, []sign.Signature, error)
	if c.Rules.Bootstrap != "" {
		fetch = c.Rules.Fetch
	}
	k.follower = documents.New(documents.Config[rules.Set]{
		Kind: documents.Kind[rules.Set]{Name: "rules", What: "rules", Compile: k.compile, Faults: messages, CanaryOf: c.Node.PoP, Verify: c.Verify()},
		Log:  k.log, Consul: client, Cache: c.Rules.Cache, Owner: c.CacheOwner(), Bootstrap: fetch,
		Rejected: k.metrics.rulesRejected.Inc, CacheFailed: k.metrics.cacheErrors.Inc,
	})
	k.settle(time.Now())
	switch {
	case k.running.Load() != nil:
	case c.Rules.Required:
		k.log.Warn("no rules yet, requests get 503 until consul names some")
	default:
		k.log.Warn("no rules yet, every request passes until consul names some (rules.required is false)")
		if err := k.unlimited(); err != nil {
			return err
		}
		k.settle(time.Now())
	}
	return nil
}

// settle activates the rules that should run and publishes the resulting state.
func (k *ruleKeeper) settle(now time.Time) time.Duration {
	c := k.follower.Choose(now)
	running := k.running.Load()
	if c.Document != nil && (running == nil || running.version != c.Document.Pointer.Version) {
		k.enforce(c.Document.Made, c.Document.Source, c.Canary)
		running = k.running.Load()
	}
	k.metrics.setSourceUp(c.Lost == nil)
	s := ruleState{canary: c.Canary, pointer: c.Pointer, refused: c.Refused}
	if c.Document != nil {
		s.source = c.Document.Source
	}
	k.metrics.signed(k.follower.Name, k.follower.SignatureState)
	s.stale = !c.Known || c.Pointer == nil || running == nil || running.version != c.Pointer.Version
	k.publish(s)
	return time.Minute
}

// describe adds faults to a readiness.
func (k *ruleKeeper) describe(state *adminapi.Readiness) {
	s := k.state.Load()
	state.RulesVersion, state.RulesRefused = s.version(), s.refused.String()
	if k.follower == nil {
		return
	}
	state.Consul = k.follower.ConsulState.Text()
	if s.none() && s.refused == nil && k.follower.ConsulState.View().OK {
		state.Rules = "nothing is published; apply rules with regionctl"
	}
	if v := k.follower.CacheState.View(); !v.OK {
		state.RulesCache = v.Error
	}
	if s := k.follower.SignatureState; s != nil {
		state.RulesSignature = s.View().Error
	}
	if b := k.follower.BootstrapState; b != nil && s.none() {
		state.RulesBootstrap = b.View().Error
	}
}

// errNoRules is the error of endpoints that need rules before there are any.
var errNoRules = errors.New("there are no rules yet; /readyz says why")
