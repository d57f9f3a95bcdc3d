package consul

import (
	"context"
	"fmt"
	"strings"
)

// RegionName returns the name of the region that the keys under the prefix belong to, or "" if
// none is recorded.
func (c *Client) RegionName(ctx context.Context) (string, error) {
	entry, err := c.Get(ctx, c.Key("region"))
	if err != nil || entry == nil {
		return "", err
	}
	name := strings.TrimSpace(string(entry.Value))
	if err := CheckName(name); err != nil {
		return "", fmt.Errorf("%s: region's name: %w", entry.Key, err)
	}
	return name, nil
}

// NameRegion records a name unless there is one.
func (c *Client) NameRegion(ctx context.Context, name string) (bool, error) {
	return c.CompareAndSwap(ctx, c.Key("region"), []byte(name), 0)
}
