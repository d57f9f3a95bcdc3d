package region

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/weir-edge/weir/pkg/region/consul"
	"github.com/weir-edge/weir/pkg/sign"
)

// topologyKind is what signatures call a topology.
const topologyKind = "topology"

// subject is what a signature of a text covers. It is the same in all regions.
func subject(kind string, text []byte) sign.Subject {
	return sign.Subject{Kind: kind, SHA256: consul.NewPointer(text, "", time.Time{}).SHA256}
}

// SignTopology stores a signature of a topology next to it, before it is published.
func SignTopology(ctx context.Context, c *consul.Client, t *Topology, key *sign.Key) error {
	text, err := json.Marshal(t)
	if err != nil {
		return err
	}
	// All regions hold the same topology, so one signature serves all.
	return c.Documents(topologyKind).Sign(ctx, consul.NewPointer(text, "", time.Time{}).Version, key.Sign(subject(topologyKind, text), nil))
}

// SignedTopology is a topology as it was signed. A later release may encode it differently.
type SignedTopology struct {
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
	return keys.Verify(subject(topologyKind, s.Text), s.Signatures, nil)
}

// verifyEvery is how often to look again whether a topology is still signed by a trusted key:
// the state that a router starts from must be when it is needed.
const verifyEvery = time.Minute

// takeTopology takes a published topology, if it is signed or need not be. If signatures are
// verified, it asks again until ctx ends: somebody may sign it, or sign it by another key.
func (f *Follower) takeTopology(ctx context.Context, r FollowedRegion, e *consul.Entry) {
	taken := false
	for failures := 0; ; failures++ {
		signed, unsigned := f.signedTopology(ctx, r, e)
		if ctx.Err() != nil {
			return
		}
		if taken && unsigned != nil && !sign.IsFault(unsigned) { // Consul does not answer
			pause(ctx, consul.Backoff(failures, rand.Float64()))
			continue
		}
		var t *Topology
		var text []byte
		var err error
		if f.config.RequireSigned {
			err = unsigned
		}
		if err == nil {
			t, err = readTopology(e.Value)
		}
		if err == nil {
			text, err = json.Marshal(t)
		}
		f.change(r.Name, func(facts *regionFacts) {
			if facts.signatureErr = nil; unsigned != nil && !f.config.RequireSigned {
				facts.signatureErr = r.Consul.Unreadable(e.Key, unsigned)
			}
			if err == nil {
				facts.topology, facts.topologyText, facts.topologyErr, facts.signed = t, string(text), nil, signed
			} else {
				facts.topologyErr = r.Consul.Unreadable(e.Key, err)
			}
		})
		wait := consul.Backoff(failures, rand.Float64())
		if unsigned == nil {
			if f.config.Verify == nil {
				return
			}
			taken, failures, wait = true, -1, cmp.Or(f.config.VerifyEvery, verifyEvery)
		}
		pause(ctx, wait)
	}
}

// signedTopology returns a topology with its signatures, or nil unless one of them is
// valid.
func (f *Follower) signedTopology(ctx context.Context, r FollowedRegion, e *consul.Entry) (*SignedTopology, error) {
	if f.config.Verify == nil {
		return nil, nil
	}
	text, err := consul.Decode(e.Value)
	if err != nil {
		return nil, nil // reading it fails as well
	}
	list, err := r.Consul.Documents(topologyKind).Signatures(ctx, consul.NewPointer(text, "", time.Time{}).Version)
	if err != nil {
		return nil, err
	}
	s := &SignedTopology{Text: bytes.Clone(text), Signatures: list}
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
func (f *Follower) known(k *Known) (text []byte, unsigned, err error) {
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
