package ctl

import (
	"fmt"
)

// topologyOf returns a topology with a PoP in each of two regions; n varies it.
func topologyOf(n int) string {
	return fmt.Sprintf(`zone: edge.example.com
regions:
  - name: eu-west
    pops: [{name: ams1, addresses: [203.0.113.%d], clients: [198.51.100.0/24]}]
  - name: us-east
    pops: [{name: iad1, addresses: ["203.0.113.200", "2001:db8::1"], location: {lat: 38.9, lon: -77.4}, weight: 3}]
`, n)
}
