package region

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/weir-edge/weir/pkg/region/consul"
	"github.com/weir-edge/weir/pkg/sign"
)

// subject is what a signature of a text covers. One of a topology also covers the region.
func subject(kind string, text []byte) sign.Subject {
	return sign.Subject{Kind: kind, SHA256: consul.NewPointer(text, "", time.Time{}).SHA256}
}

// SignedTopology is a topology as it was published and signed.
type SignedTopology struct {
	Region     string           `json:"region"` // for which it was signed
	Text       []byte           `json:"text"`
	Signatures []sign.Signature `json:"signatures"`
}

// check returns nil unless signatures are verified and none is valid.
func (c *FollowConfig) check(s *SignedTopology) error {
	if c.Verify == nil {
		return nil
	}
	if s == nil {
		s = &SignedTopology{}
	}
	keys, err := c.Verify()
	if err != nil {
		return &sign.Fault{Why: err.Error()}
	}
	of := subject(TopologyKind, s.Text)
	of.Region = s.Region
	return keys.Verify(of, s.Signatures, nil)
}

// verifyEvery is how often to look again whether a topology is still signed by a trusted key:
// the state that a router starts from must be when it is needed.
const verifyEvery = time.Minute

// takeTopology takes the topology that a pointer names, if it is signed or need not be. Until ctx
// ends it tries again if that fails and, if signatures are verified, looks again afterward:
// somebody may sign it, or sign it by another key.
func (f *Follower) takeTopology(ctx context.Context, r FollowedRegion, e *consul.Entry) {
	taken := false
	var document []byte
	for failures := 0; ; failures++ {
		var signed *SignedTopology
		var unsigned, err error
		if document == nil { // a version never changes
			document, err = pointedAt(ctx, r.Consul, e)
		}
		if err == nil {
			signed, unsigned = f.signedTopology(ctx, r, document)
		}
		if ctx.Err() != nil {
			return
		}
		if taken && unsigned != nil && !sign.IsFault(unsigned) { // Consul does not answer
			_ = consul.Pause(ctx, consul.Backoff(failures, rand.Float64()))
			continue
		}
		if unsigned != nil {
			unsigned = r.Consul.Unreadable(e.Key, unsigned)
		}
		if err == nil && f.config.RequireSigned {
			err = unsigned
		}
		var t *Topology
		var text []byte
		if err == nil {
			if t, err = readTopology(document); err != nil {
				err = r.Consul.Unreadable(e.Key, err)
			}
		}
		if err == nil {
			text, err = json.Marshal(t)
		}
		f.change(r.Name, func(facts *regionFacts) {
			if document != nil && !f.config.RequireSigned {
				facts.signatureErr = unsigned
			}
			if facts.topologyErr = err; err == nil {
				facts.topology, facts.topologyText, facts.signed = t, string(text), signed
			}
		})
		wait := consul.Backoff(failures, rand.Float64())
		if err == nil && unsigned == nil {
			if f.config.Verify == nil {
				return
			}
			taken, failures, wait = true, -1, cmp.Or(f.config.VerifyEvery, verifyEvery)
		}
		_ = consul.Pause(ctx, wait)
	}
}

// pointedAt returns the document that a pointer to a topology names.
func pointedAt(ctx context.Context, c *consul.Client, e *consul.Entry) ([]byte, error) {
	pointer, err := consul.ParsePointer(e.Value)
	if err != nil {
		return nil, c.Unreadable(e.Key, err)
	}
	return c.Documents(TopologyKind).Load(ctx, pointer)
}

// signedTopology returns a topology with its signatures, or nil unless one of them is
// valid.
func (f *Follower) signedTopology(ctx context.Context, r FollowedRegion, document []byte) (*SignedTopology, error) {
	if f.config.Verify == nil {
		return nil, nil
	}
	list, err := r.Consul.Documents(TopologyKind).Signatures(ctx, consul.NewPointer(document, "", time.Time{}).Version)
	if err != nil {
		return nil, err
	}
	s := &SignedTopology{r.Name, document, list}
	if err := f.config.check(s); err != nil {
		return nil, err
	}
	return s, nil
}

// signed returns the signed form of a topology, or nil if no region holds one.
func (f *Follower) signed(text string) *SignedTopology {
	for _, r := range f.config.Regions {
		if facts := f.facts[r.Name]; facts.topologyText == text && facts.signed != nil {
			return facts.signed
		}
	}
	return nil
}

// known returns the topology in k, which must be signed if f requires it, and why it counts
// as unsigned otherwise.
func (f *Follower) known(k *SavedState) (text []byte, unsigned, err error) {
	if f.config.Verify == nil {
		return k.Topology, nil, nil
	}
	unsigned = f.config.check(k.Signed)
	if unsigned == nil {
		return k.Signed.Text, nil, nil
	}
	unsigned = fmt.Errorf("topology: %w", unsigned)
	if f.config.RequireSigned {
		return nil, nil, unsigned
	}
	return k.Topology, unsigned, nil
}
