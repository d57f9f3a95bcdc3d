package testenv

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

const (
	sentinelMaster   = "weir"
	sentinelDown     = time.Second
	sentinelFailover = 2 * time.Second
	dataNodes        = 3
	sentinels        = 3
	quorum           = 2
)

// sentinelPeriods, in milliseconds, speed up the sentinels' periodic work: asking servers for
// their replicas (10 s), announcing themselves to each other (2 s; a returning master is left
// alone for four times as long) and repeating a tied vote (10 s). They do not affect the
// decision that a master is down. Only this command sets them, so each start runs it.
var sentinelPeriods = []any{"sentinel", "debug",
	"info-period", 1000, "publish-period", 500, "election-timeout", 1000}

// RedisSentinel is a master, Nodes[0] at first, two replicas, and three sentinels of
// which two must agree. Its failover takes DownAfter plus two to four seconds; a tied
// vote adds four.
type RedisSentinel struct {
	MasterName    string
	Nodes         []*Server
	Sentinels     []*Server
	SentinelAddrs []string
	DownAfter     time.Duration // how long the master is silent before it is suspected

	t testing.TB
}

// Sentinel starts the servers and sentinels, and waits until they are healthy.
func Sentinel(t testing.TB, o Options) *RedisSentinel {
	t.Helper()
	r := &RedisSentinel{MasterName: sentinelMaster, DownAfter: sentinelDown, t: t}
	files := certificatesFor(t, o)
	ports := FreePorts(t, dataNodes+sentinels)
	for i, port := range ports[:dataNodes] {
		var conf []string
		if i > 0 {
			conf = []string{fmt.Sprintf("replicaof 127.0.0.1 %d", ports[0])}
		}
		r.Nodes = append(r.Nodes, newServer(t, "redis", port, o, files, conf))
	}
	startAll(r.Nodes)
	// Sentinels ask a master for its replicas at first sight and then only every ten
	// seconds, so the replicas must be there first.
	for _, s := range r.Nodes[1:] {
		s.wait("follow the master", func() error { return replicaSynced(s) })
	}

	conf := []string{
		fmt.Sprintf("sentinel monitor %s 127.0.0.1 %d %d", r.MasterName, ports[0], quorum),
		fmt.Sprintf("sentinel down-after-milliseconds %s %d", r.MasterName, r.DownAfter.Milliseconds()),
		fmt.Sprintf("sentinel failover-timeout %s %d", r.MasterName, sentinelFailover.Milliseconds()),
	}
	if o.User != "" {
		conf = append(conf, fmt.Sprintf("sentinel auth-user %s %s", r.MasterName, o.User))
	}
	if o.Password != "" {
		conf = append(conf, fmt.Sprintf("sentinel auth-pass %s %s", r.MasterName, o.Password))
	}
	for _, port := range ports[dataNodes:] {
		r.Sentinels = append(r.Sentinels, newServer(t, "sentinel", port, Options{TLS: o.TLS}, files, conf))
	}
	r.SentinelAddrs = addrs(r.Sentinels)
	startAll(r.Sentinels)
	r.WaitHealthy()
	return r
}

// Master returns the master by the newest configuration that a live sentinel knows: the
// killed master, until a replica is promoted.
func (r *RedisSentinel) Master() *Server {
	r.t.Helper()
	var master *Server
	newest := int64(-1)
	err := all(r.Sentinels, func(s *Server) error {
		m, err := r.monitored(s)
		if err != nil {
			return err
		}
		epoch, err := strconv.ParseInt(m["config-epoch"], 10, 64)
		if err == nil && epoch > newest {
			master, newest = find(r.Nodes, m["ip"]+":"+m["port"]), epoch
		}
		return err
	})
	if err != nil || master == nil {
		r.t.Fatalf("testenv: the sentinels have no master: %v", err)
	}
	return master
}

// Failover makes sentinels promote a replica of a live master, and returns when one of
// them names it. A sentinel that does not see the promotion within failover-timeout
// aborts, as on a very busy machine where a replica is late, and never retries a failover
// that a command started: so this asks again.
func (r *RedisSentinel) Failover() {
	r.t.Helper()
	old, first := r.Master(), r.Sentinels[0]
	err := poll(Patience, func() error {
		if r.Master() != old {
			return nil
		}
		m, err := r.monitored(first)
		if err != nil {
			return err
		}
		if m["ip"]+":"+m["port"] == old.Addr && !strings.Contains(m["flags"], "failover_in_progress") {
			if err := first.client.Do(context.Background(), "sentinel", "failover", r.MasterName).Err(); err != nil {
				return err
			}
		}
		return fmt.Errorf("%s is still the master, %s", old.Addr, m["flags"])
	})
	if err != nil {
		r.t.Fatalf("testenv: no failover: %v\n%s", err, lastLines(first.file("log"), 20))
	}
}

// WaitHealthy waits until all live sentinels agree on a live master that all other live
// nodes follow, and know two replicas (the live ones in reach) and two other sentinels. A
// killed master that returns becomes a replica after two to three seconds.
func (r *RedisSentinel) WaitHealthy() {
	r.t.Helper()
	if err := poll(Patience, r.health); err != nil {
		r.t.Fatalf("testenv: the sentinels are not healthy: %v%s", err, logs(slices.Concat(r.Nodes, r.Sentinels)))
	}
}

func (r *RedisSentinel) health() error {
	var agreed *Server
	err := all(r.Sentinels, func(s *Server) error {
		m, err := r.monitored(s)
		if err != nil {
			return err
		}
		master := find(r.Nodes, m["ip"]+":"+m["port"])
		switch {
		case master == nil || !master.alive() || m["flags"] != "master":
			return fmt.Errorf("%s has %s:%s for a master, which is %s", s.Addr, m["ip"], m["port"], m["flags"])
		case agreed != nil && agreed != master:
			return fmt.Errorf("%s has %s for the master, others %s", s.Addr, master.Addr, agreed.Addr)
		case m["num-slaves"] != strconv.Itoa(dataNodes-1) || m["num-other-sentinels"] != strconv.Itoa(sentinels-1):
			return fmt.Errorf("%s knows %s replicas and %s other sentinels", s.Addr, m["num-slaves"], m["num-other-sentinels"])
		}
		agreed = master
		return r.replicasReachable(s)
	})
	if err != nil {
		return err
	}
	return all(r.Nodes, func(s *Server) error {
		if s != agreed {
			return replicaSynced(s)
		}
		info, err := s.info("replication")
		if err == nil && info["role"] != "master" {
			err = fmt.Errorf("%s is not a master yet", s.Addr)
		}
		return err
	})
}

// replicasReachable returns which live replica a sentinel could not promote now.
func (r *RedisSentinel) replicasReachable(s *Server) error {
	list, err := s.client.Do(context.Background(), "sentinel", "replicas", r.MasterName).Slice()
	if err != nil {
		return fmt.Errorf("sentinel replicas of %s: %w", s.Addr, err)
	}
	for _, item := range list {
		f := pairs(item)
		replica := find(r.Nodes, f["ip"]+":"+f["port"])
		if replica != nil && replica.alive() && f["flags"] != "slave" {
			return fmt.Errorf("%s has replica %s as %s", s.Addr, replica.Addr, f["flags"])
		}
	}
	return nil
}

// monitored returns a sentinel's information about the master.
func (r *RedisSentinel) monitored(s *Server) (map[string]string, error) {
	reply, err := s.client.Do(context.Background(), "sentinel", "master", r.MasterName).Slice()
	if err != nil {
		return nil, fmt.Errorf("sentinel master of %s: %w", s.Addr, err)
	}
	return pairs(reply), nil
}

// pairs parses a reply of alternating names and values.
func pairs(reply any) map[string]string {
	m := map[string]string{}
	list, _ := reply.([]any)
	for i := 0; i+1 < len(list); i += 2 {
		m[strings.ToLower(fmt.Sprint(list[i]))] = fmt.Sprint(list[i+1])
	}
	return m
}
