package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// spillNetwork holds the client networks of spill.js, a /24 each: RFC 2544 reserves it for
// benchmarks.
const spillNetwork = "198.18.0.0/15"

// home adds spillNetwork to the clients of a PoP, and states how many requests per second each
// edge of the others can serve: they were never full, so it is unknown. It waits until the
// router follows.
func (c *control) home(ctx context.Context, rest string) error {
	l := c.l
	name, rate, _ := strings.Cut(rest, "/")
	each, err := strconv.ParseFloat(rate, 64)
	if err != nil || !(each > 0) {
		return fmt.Errorf("home: requests per second of an edge: must be a number over 0 (got %q)", rate)
	}
	before, err := l.regionctl(ctx, "topology", "show")
	if err != nil {
		return err
	}
	after, err := homed(before, name, each)
	if err != nil {
		return err
	}
	if c.homed == nil {
		c.homed = before
	}
	if err := l.applyTopology(ctx, after); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, routeLimit)
	defer cancel()
	for _, r := range l.state.Regions {
		for _, p := range r.Pops {
			if p.Name == name {
				return l.routedTo(ctx, region{Name: name, Subnet: spillClient(0).String(), Pops: []pop{p}})
			}
		}
	}
	return fmt.Errorf("home: the lab has no PoP %q", name)
}

// homed returns the topology with the changes of home.
func homed(before []byte, name string, each float64) ([]byte, error) {
	var topology map[string]any
	if err := yaml.Unmarshal(before, &topology); err != nil {
		return nil, err
	}
	found := false
	regions, _ := topology["regions"].([]any)
	for _, r := range regions {
		region, _ := r.(map[string]any)
		pops, _ := region["pops"].([]any)
		for _, p := range pops {
			p, _ := p.(map[string]any)
			addresses, _ := p["addresses"].([]any)
			if p["name"] != name {
				p["capacity"] = each * float64(len(addresses))
				continue
			}
			clients, _ := p["clients"].([]any)
			p["clients"], found = append(clients, spillNetwork), true
		}
	}
	if !found {
		return nil, fmt.Errorf("home: the topology has no PoP %q", name)
	}
	return yaml.Marshal(topology)
}

// homeBack restores the topology.
func (c *control) homeBack(ctx context.Context) error {
	if c.homed == nil {
		return nil
	}
	err := c.l.applyTopology(ctx, c.homed)
	if err == nil {
		c.homed = nil
	}
	return err
}

func (l *lab) applyTopology(ctx context.Context, text []byte) error {
	file := filepath.Join(l.dir, "loadtest-topology.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return err
	}
	defer os.Remove(file)
	_, err := l.regionctl(ctx, "topology", "apply", file, "--yes")
	return err
}

// spillClient returns the nth client network of spill.js.
func spillClient(n int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{198, byte(18 + n>>8), byte(n), 0}), 24)
}

// agree requires that the router sends networks of spill.js where a fresh look at the fleet
// does, that of dns explain. A network may move between the two, so each is asked a few times.
func (l *lab) agree(ctx context.Context) error {
	for n := 0; n < 160; n += 32 {
		for try := 1; ; try++ {
			err := l.agreeOn(ctx, spillClient(n))
			if err == nil {
				break
			}
			if try == 3 || ctx.Err() != nil {
				return err
			}
			time.Sleep(time.Second)
		}
	}
	return nil
}

func (l *lab) agreeOn(ctx context.Context, client netip.Prefix) error {
	answered, err := l.resolve(ctx, client)
	if err != nil {
		return err
	}
	text, err := l.regionctl(ctx, "dns", "explain", "--client", client.String(), "-o", "json")
	if err != nil {
		return err
	}
	var explained struct {
		Addresses []string `json:"addresses"`
	}
	if err := json.Unmarshal(text, &explained); err != nil {
		return fmt.Errorf("dns explain: %w: %.300s", err, text)
	}
	slices.Sort(answered)
	slices.Sort(explained.Addresses)
	if !slices.Equal(answered, explained.Addresses) {
		return fmt.Errorf("agree: the router sends %s to %v, and dns explain to %v", client, answered, explained.Addresses)
	}
	return nil
}
