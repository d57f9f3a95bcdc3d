package testenv

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The smallest cluster that survives the loss of any one master.
const (
	clusterMasters     = 3
	clusterNodes       = 6
	clusterSlots       = 16384
	clusterNodeTimeout = 2 * time.Second
)

// RedisCluster is three masters, Nodes[:3] at first, and a replica for each. Its
// failover takes about NodeTimeout plus one to two seconds.
type RedisCluster struct {
	Nodes       []*Server
	NodeTimeout time.Duration // how long a node is silent before it is suspected

	t testing.TB
}

// Cluster starts a cluster and waits until it is healthy. That takes at least two
// seconds, during which a new Redis master always refuses writes.
func Cluster(t testing.TB, o Options) *RedisCluster {
	t.Helper()
	c := &RedisCluster{NodeTimeout: clusterNodeTimeout, t: t}
	files := certificatesFor(t, o)
	ports := FreePorts(t, 2*clusterNodes)
	busPorts := ports[clusterNodes:]
	for i := range clusterNodes {
		if island := o.Island; island != nil {
			side := island
			if i > 0 {
				side = nil
			}
			island.cable(side, address(ports[i]), true)
			island.cable(side, address(busPorts[i]), true)
		}
		o := o
		if i > 0 {
			o.Island = nil
		}
		c.Nodes = append(c.Nodes, newServer(t, "redis", ports[i], o, files, []string{
			"cluster-enabled yes",
			fmt.Sprintf("cluster-port %d", busPorts[i]),
			fmt.Sprintf("cluster-node-timeout %d", c.NodeTimeout.Milliseconds()),
			"cluster-require-full-coverage no",
			"cluster-replica-validity-factor 0",
		}))
	}
	startAll(c.Nodes)
	c.form(ports, busPorts)
	c.WaitHealthy()
	return c
}

// form does the work of redis-cli --cluster create without its pauses. Every node meets every
// other, which saves rounds of gossip.
func (c *RedisCluster) form(ports, busPorts []int) {
	ids := make([]string, clusterMasters)
	for i, s := range c.Nodes {
		// Equal epochs would be resolved one by one, by gossip.
		c.do(s, "cluster", "set-config-epoch", i+1)
		if i < clusterMasters {
			c.do(s, "cluster", "addslotsrange", i*clusterSlots/clusterMasters, (i+1)*clusterSlots/clusterMasters-1)
			ids[i] = c.id(s)
		}
		for j := range i {
			c.do(s, "cluster", "meet", "127.0.0.1", ports[j], busPorts[j])
		}
	}
	for i, s := range c.Nodes[clusterMasters:] {
		s.wait("meet its master", func() error { return s.client.Do(context.Background(), "cluster", "replicate", ids[i]).Err() })
	}
}

// Addrs returns the addresses of all nodes, including killed ones.
func (c *RedisCluster) Addrs() []string { return addrs(c.Nodes) }

func addrs(servers []*Server) []string {
	list := make([]string, len(servers))
	for i, s := range servers {
		list[i] = s.Addr
	}
	return list
}

// MasterOf returns the master that owns the key now, by the newest claim that a live node
// knows: the killed master, until its replica is promoted.
func (c *RedisCluster) MasterOf(key string) *Server {
	var owner *Server
	newest := int64(-1)
	err := all(c.Nodes, func(s *Server) error {
		slot, err := s.client.ClusterKeySlot(context.Background(), key).Result()
		if err != nil {
			return err
		}
		view, err := clusterView(s)
		if err != nil {
			return err
		}
		for _, n := range view {
			if n.owns(int(slot)) && n.epoch > newest {
				owner, newest = find(c.Nodes, n.addr), n.epoch
			}
		}
		return nil
	})
	if err != nil || owner == nil {
		c.t.Fatalf("testenv: no node of the cluster owns %q: %v", key, err)
	}
	return owner
}

func find(servers []*Server, addr string) *Server {
	for _, s := range servers {
		if s.Addr == addr {
			return s
		}
	}
	return nil
}

// WaitHealthy waits until every live node answers cluster_state:ok and suspects no live
// node, all agree that live masters own all slots, and the other live nodes are synced
// replicas. It ignores killed and suspended nodes, so after a Kill it returns once the
// cluster has healed, not before it has noticed.
func (c *RedisCluster) WaitHealthy() {
	if err := poll(Patience, c.health); err != nil {
		c.t.Fatalf("testenv: the cluster is not healthy: %v%s", err, logs(c.Nodes))
	}
}

// logs returns the end of each server's log, for a failure message.
func logs(servers []*Server) (text string) {
	for _, s := range servers {
		text += "\n" + s.Addr + " " + lastLines(s.file("log"), 5)
	}
	return text
}

func (c *RedisCluster) health() error {
	var agreed map[string]string // slots by address of their master
	return all(c.Nodes, func(s *Server) error {
		info, err := s.client.ClusterInfo(context.Background()).Result()
		if err != nil {
			return fmt.Errorf("cluster info of %s: %w", s.Addr, err)
		}
		if state := fields(info)["cluster_state"]; state != "ok" {
			return fmt.Errorf("cluster_state of %s is %q", s.Addr, state)
		}
		view, err := clusterView(s)
		if err != nil {
			return err
		}
		owners, err := c.owners(view)
		if err != nil {
			return fmt.Errorf("as %s sees it: %w", s.Addr, err)
		}
		if agreed == nil {
			agreed = owners
		}
		if !maps.Equal(agreed, owners) {
			return fmt.Errorf("%s does not agree who owns the slots: %v, others %v", s.Addr, owners, agreed)
		}
		if _, master := owners[s.Addr]; master {
			return nil
		}
		return replicaSynced(s)
	})
}

// owners returns the masters of the slots in one node's view, or why that view is not of a
// healthy cluster.
func (c *RedisCluster) owners(view []clusterNode) (map[string]string, error) {
	owners, slots, live := map[string]string{}, 0, 0
	for _, n := range view {
		up := find(c.Nodes, n.addr) != nil && find(c.Nodes, n.addr).alive()
		switch {
		case up && (strings.Contains(n.flags, "fail") || strings.Contains(n.flags, "handshake")):
			return nil, fmt.Errorf("%s is %s", n.addr, n.flags)
		case up && n.link != "connected":
			return nil, fmt.Errorf("the link to %s is %s", n.addr, n.link)
		case up:
			live++
		case len(n.ranges) > 0:
			return nil, fmt.Errorf("%s owns slots and is down", n.addr)
		}
		if len(n.ranges) > 0 {
			owners[n.addr] = fmt.Sprint(n.ranges)
		}
		for _, r := range n.ranges {
			slots += r[1] - r[0] + 1
		}
	}
	if slots != clusterSlots {
		return nil, fmt.Errorf("%d of %d slots have an owner", slots, clusterSlots)
	}
	want := 0
	_ = all(c.Nodes, func(*Server) error { want++; return nil })
	if live != want {
		return nil, fmt.Errorf("%d of %d live nodes are known", live, want)
	}
	return owners, nil
}

// OpenSlot begins to move the slot of a key to another master.
func (c *RedisCluster) OpenSlot(key string, to *Server) {
	from := c.MasterOf(key)
	c.do(to, "cluster", "setslot", c.slot(key), "importing", c.id(from))
	c.do(from, "cluster", "setslot", c.slot(key), "migrating", c.id(to))
}

// MoveKeys moves at most n keys of an open slot, as redis-cli does, and returns how many.
func (c *RedisCluster) MoveKeys(key string, to *Server, n int) int {
	host, port, _ := net.SplitHostPort(to.Addr)
	from := c.MasterOf(key)
	keys := c.do(from, "cluster", "getkeysinslot", c.slot(key), n).([]any)
	for _, k := range keys {
		c.do(from, "migrate", host, port, k, 0, Patience.Milliseconds())
	}
	return len(keys)
}

// CloseSlot moves the rest of an open slot.
func (c *RedisCluster) CloseSlot(key string, to *Server) {
	for c.MoveKeys(key, to, 1) > 0 { // one at a time, so that requests come between
	}
	for _, s := range []*Server{to, c.MasterOf(key)} {
		c.do(s, "cluster", "setslot", c.slot(key), "node", c.id(to))
	}
}

// Reshard moves the first slots of a master to another one with redis-cli.
func (c *RedisCluster) Reshard(from, to *Server, slots int) {
	command := fmt.Sprintf("redis-cli --cluster reshard %s --cluster-from %s --cluster-to %s --cluster-slots %d --cluster-yes", from.Addr, c.id(from), c.id(to), slots)
	if out, err := exec.Command("sh", "-c", command).CombinedOutput(); err != nil {
		c.t.Fatalf("testenv: redis-cli, of redis-tools, could not move slots: %v\n%s", err, out)
	}
}

func (c *RedisCluster) slot(key string) any { return c.do(c.Nodes[0], "cluster", "keyslot", key) }
func (c *RedisCluster) id(s *Server) string { return c.do(s, "cluster", "myid").(string) }

// do returns the reply to a command, which must succeed.
func (c *RedisCluster) do(s *Server, args ...any) any {
	c.t.Helper()
	reply, err := s.client.Do(context.Background(), args...).Result()
	if err != nil {
		c.t.Fatalf("testenv: %s: %v: %v", s.Addr, args, err)
	}
	return reply
}

type clusterNode struct {
	addr, flags, link string
	epoch             int64
	ranges            [][2]int // first and last slot
}

func (n clusterNode) owns(slot int) bool {
	for _, r := range n.ranges {
		if r[0] <= slot && slot <= r[1] {
			return true
		}
	}
	return false
}

// clusterView parses the lines
//
//	id ip:port@cport[,hostname] flags master ping pong epoch link slot-slot ...
//
// of https://redis.io/docs/latest/commands/cluster-nodes/.
func clusterView(s *Server) ([]clusterNode, error) {
	text, err := s.client.ClusterNodes(context.Background()).Result()
	if err != nil {
		return nil, fmt.Errorf("cluster nodes of %s: %w", s.Addr, err)
	}
	var view []clusterNode
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 8 {
			return nil, fmt.Errorf("cluster nodes of %s: line %q has too few fields", s.Addr, line)
		}
		n := clusterNode{flags: f[2], link: f[7]}
		n.addr, _, _ = strings.Cut(f[1], "@")
		var bad error
		n.epoch, bad = strconv.ParseInt(f[6], 10, 64)
		for _, slots := range f[8:] {
			if strings.HasPrefix(slots, "[") {
				continue // a slot moving to another node
			}
			first, last, isRange := strings.Cut(slots, "-")
			if !isRange {
				last = first
			}
			a, err1 := strconv.Atoi(first)
			b, err2 := strconv.Atoi(last)
			bad = errors.Join(bad, err1, err2)
			n.ranges = append(n.ranges, [2]int{a, b})
		}
		if bad != nil {
			return nil, fmt.Errorf("cluster nodes of %s: line %q: %w", s.Addr, line, bad)
		}
		view = append(view, n)
	}
	return view, nil
}
