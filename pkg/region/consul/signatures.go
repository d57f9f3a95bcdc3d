package consul

import (
	"context"

	"github.com/weir-edge/weir/pkg/sign"
)

// Signatures are stored next to the versions, so that a version never changes.
func (d *Documents) signatureKey(version string) string { return d.key("signatures", version) }

// Signatures returns the signatures of a version; having none is not an error. Unreadable
// ones are a *sign.Fault.
func (d *Documents) Signatures(ctx context.Context, version string) ([]sign.Signature, error) {
	list, _, err := d.signatures(ctx, version)
	return list, err
}

func (d *Documents) signatures(ctx context.Context, version string) ([]sign.Signature, uint64, error) {
	if err := d.check(); err != nil {
		return nil, 0, err
	}
	return d.consul.SignaturesAt(ctx, d.signatureKey(version))
}

// SignaturesAt returns the signatures in a key, and the index to replace them.
func (c *Client) SignaturesAt(ctx context.Context, key string) ([]sign.Signature, uint64, error) {
	entry, err := c.Get(ctx, key)
	if err != nil || entry == nil {
		return nil, 0, err
	}
	list, err := sign.Parse(entry.Value)
	if err != nil {
		return nil, entry.ModifyIndex, &sign.Fault{Why: c.Unreadable(key, err).Error()}
	}
	return list, entry.ModifyIndex, nil
}

// Sign adds a signature to a version, replacing an unreadable value.
func (d *Documents) Sign(ctx context.Context, version string, s sign.Signature) error {
	for {
		list, index, err := d.signatures(ctx, version)
		if err != nil && !sign.IsFault(err) {
			return err
		}
		text, err := sign.Encode(sign.Add(list, s, d.consul.Now()))
		if err != nil {
			return err
		}
		// Another client may sign the same version at the same time.
		if done, err := d.consul.CompareAndSwap(ctx, d.signatureKey(version), text, index); done || err != nil {
			return err
		}
	}
}
