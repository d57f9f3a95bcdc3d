package edge

import (
	"crypto/sha256"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/edge/decide"
	"github.com/weir-edge/weir/internal/policy"
	"github.com/weir-edge/weir/pkg/behavior"
)

// riskHeader tells the origin what the policy says of a client. A client that sends it
// would be believed, so it is always removed when there is a policy.
const riskHeader = "Weir-Risk"

// PolicyConfig says where the behavior policy comes from.
type PolicyConfig struct {
	Source string `yaml:"source"`
	File   string `yaml:"file"`
	// Subjects is how many clients are kept; each takes 256 bytes.
	Subjects int `yaml:"subjects"`
}

func (c *Config) validatePolicy(f *faults) {
	p := &c.Policy
	f.word("policy.source", p.Source, fromFile)
	if p.Subjects < 1000 || p.Subjects > behavior.MaxSubjects {
		f.add("policy.subjects", "must be from 1000 to %d (got %d); a million take 256 MiB", behavior.MaxSubjects, p.Subjects)
	}
	f.file("policy.file", p.File)
}

// read reads the policy.
func (p *PolicyConfig) read() ([]byte, error) {
	data, err := os.ReadFile(p.File)
	if err != nil {
		return nil, fmt.Errorf("policy.file: %w", err)
	}
	return data, nil
}

// parse reports what is wrong with the policy.
func (p *PolicyConfig) parse(data []byte) (*policy.Policy, error) {
	made, err := policy.Parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.File, err)
	}
	return made, nil
}

// conductKeeper keeps the policy of a file active.
type conductKeeper struct {
	*decide.Conduct
	config  *PolicyConfig
	log     *slog.Logger
	metrics *metrics
	rises   sampler

	active atomic.Pointer[policy.Policy]
	seen   [sha256.Size]byte // at the last look
	last   [sha256.Size]byte // activated, or refused
	fault  string            // last logged
}

// openConduct activates the first policy, which must be good.
func (e *Edge) openConduct() error {
	if e.config.Policy.File == "" {
		return nil
	}
	k := &conductKeeper{config: &e.config.Policy, log: e.log, metrics: e.metrics}
	data, err := k.config.read()
	if err != nil {
		return err
	}
	made, err := k.config.parse(data)
	if err != nil {
		return err
	}
	k.last = sha256.Sum256(data)
	k.seen = k.last
	k.active.Store(made)
	k.Conduct = decide.NewConduct(k.active.Load, k.config.Subjects, time.Now())
	k.Stop, k.Judged, k.Rose = e.ctx.Done(), k.judged, k.rose
	e.metrics.registry.MustRegister(conductCollector{k.Conduct}, k.metrics.conductRequests, k.metrics.conductRises, k.metrics.conductSignals,
		k.metrics.policyInfo, k.metrics.policyRejected)
	k.activate(made)
	e.conduct, e.decider.Conduct = k, k.Conduct
	return nil
}

func (k *conductKeeper) activate(p *policy.Policy) {
	k.active.Store(p)
	k.Activate(p)
	k.metrics.policy(p)
	k.log.Info("policy active", "version", p.Version, "mode", modeOf(p))
}

func modeOf(p *policy.Policy) string {
	if p.Shadow {
		return policy.Shadow
	}
	return policy.Enforce
}

// reload activates a policy that was replaced on disk, once two looks find the same: the
// beginning of a document that is being written can be a good one. A bad policy changes
// nothing.
func (k *conductKeeper) reload() error {
	data, err := k.config.read()
	if err != nil {
		return err
	}
	sum := sha256.Sum256(data)
	settled := sum == k.seen
	if k.seen = sum; !settled || sum == k.last {
		return nil
	}
	k.last = sum
	made, err := k.config.parse(data)
	if err != nil {
		k.metrics.policyRejected.Inc()
		k.log.Error("policy refused; the one before stays active", "error", err)
		return nil
	}
	k.activate(made)
	return nil
}

// judged counts a request of a subject above the mildest tier.
func (k *conductKeeper) judged(r *decide.Request) {
	k.metrics.conductRequests.WithLabelValues(r.Risk.Name(), string(r.Risk.Effect), modeOf(r.Risk.Policy)).Inc()
}

// rose counts and logs a subject that entered a severer tier, and why.
func (k *conductKeeper) rose(r *decide.Request, kind, tier string, st behavior.Standing, reasons []behavior.Reason) {
	k.metrics.conductRises.WithLabelValues(kind, tier).Inc()
	for _, reason := range reasons {
		k.metrics.conductSignals.WithLabelValues(kind, tier, reason.Signal.String()).Inc()
	}
	skipped, ok := k.rises.sample(time.Now())
	if !ok {
		return
	}
	list := []any{"kind", kind, "tier", tier, "score", int(st.Score), "mode", modeOf(r.Risk.Policy), "client", r.Client.String(), "not_logged", skipped}
	for _, reason := range reasons {
		list = append(list, slog.Group(reason.Signal.String(), "points", int(reason.Points), "value", reason.Value, "threshold", reason.Threshold))
	}
	k.log.Info("subject entered a severer tier", list...)
}

// learn counts a finished request.
func (r *request) learn() {
	if k := r.edge.conduct; k != nil {
		status := 0
		if r.answered {
			status = r.ctx.Response.StatusCode()
		}
		k.Learn(&r.Request, r.verdict, status, time.Now())
	}
}

// risk tells the origin what the policy says.
func (r *request) risk() {
	if r.edge.conduct == nil {
		return
	}
	header := &r.ctx.Request.Header
	header.Del(riskHeader)
	if r.buf = r.edge.conduct.AppendRisk(r.buf[:0], &r.Request); len(r.buf) > 0 {
		header.SetBytesV(riskHeader, r.buf)
	}
}

// explain says how the client of a described request stands.
func (k *conductKeeper) explain(asked *decide.Request) *adminapi.Conduct {
	st, reasons, judged := k.Explain(asked, time.Now())
	p := k.active.Load()
	out := &adminapi.Conduct{PolicyVersion: p.Version, Mode: modeOf(p), Exempt: !judged}
	if !judged {
		return out
	}
	e := &p.Effects[min(st.Tier, len(p.Effects)-1)]
	out.Tier, out.Score, out.Limits = e.Name, st.Score, e.Limits
	if e.Delay > 0 {
		out.Delay = e.Delay.String()
	}
	if st.Refused > 0 {
		out.RefusedFor = st.Refused.String()
	}
	for _, reason := range reasons {
		out.Signals = append(out.Signals, adminapi.ConductSignal{Signal: reason.Signal.String(), Points: reason.Points, Value: reason.Value, Threshold: reason.Threshold})
	}
	return out
}
