package consul

import (
	"context"

	"github.com/hashicorp/consul/api"
)

// MostSwapped is how many keys SwapWith writes at once in addition to the first.
const MostSwapped = mostOps - 1

// Write is a key and what to write there; a nil Value deletes the key.
type Write struct {
	Key   string
	Value []byte
}

// SwapWith is Swap that also writes other keys, all or none. Consul accepts about 380 kB of
// values in one call.
func (c *Client) SwapWith(ctx context.Context, key string, value []byte, index uint64, others []Write) (bool, error) {
	ops := []*api.KVTxnOp{{Verb: api.KVCAS, Key: key, Value: value, Index: index}}
	for _, w := range others {
		op := &api.KVTxnOp{Verb: api.KVSet, Key: w.Key, Value: w.Value}
		if w.Value == nil {
			op.Verb = api.KVDelete
		}
		ops = append(ops, op)
	}
	_, failed, err := c.transact(ctx, "write "+key, ops...)
	if err == nil || refused(err) {
		return err == nil && failed == nil, err
	}
	if c.holds(ctx, key, value) { // the answer was lost
		return true, nil
	}
	return false, err
}
