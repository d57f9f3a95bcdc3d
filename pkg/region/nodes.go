package region

import (
	"cmp"
	"context"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/consul/api"
)

// Service is the name under which edge nodes are registered.
const Service = "weir-edge"

// Node is one registered edge node.
type Node struct {
	ID           string `json:"id"` // as in the node's configuration
	Region       string `json:"region"`
	PoP          string `json:"pop"`
	Address      string `json:"address"` // host:port for clients
	Admin        string `json:"admin"`   // host:port of the admin listener
	Prefix       string `json:"prefix"`  // of the keys that it follows
	RulesVersion string `json:"rules_version"`
	RulesRefused string `json:"rules_refused,omitempty"`
	// The same of the shedder; a program without one registers neither.
	ShedderVersion string `json:"shedder_version,omitempty"`
	ShedderRefused string `json:"shedder_refused,omitempty"`
	// Passing reports that all its checks pass. If not, Output is what the first
	// that fails said.
	Passing bool   `json:"passing"`
	Output  string `json:"output,omitempty"`
}

// Nodes returns the registered edge nodes by region, PoP and id, also those that
// do not pass their check.
//
// A list from which Consul hid something is a failure: the token lacks service
// read for weir-edge or node read. Only to a request without a token does Consul
// not tell; if its ACLs deny that, the list is empty and there is no failure.
func (c *Consul) Nodes(ctx context.Context) ([]Node, error) {
	nodes, _, err := c.nodes(ctx, query{}, answerTimeout)
	return nodes, err
}

// WatchNodes calls each with the registered edge nodes, as Nodes returns them, at
// once and whenever one changes, until ctx ends. It asks like Watch. An empty
// list after one that was not is confirmed by the leader first. It is still no
// proof that there are no nodes (see Nodes), so nobody should act on one alone.
func (c *Consul) WatchNodes(ctx context.Context, state func(error), each func([]Node)) {
	follow(ctx, source[[]Node]{
		read: func(ctx context.Context, q query) ([]Node, uint64, error) {
			return c.nodes(ctx, q, q.bound())
		},
		same:  slices.Equal[[]Node],
		older: func(last, now []Node) bool { return len(last) > 0 && len(now) == 0 },
	}, state, each)
}

func (c *Consul) nodes(ctx context.Context, q query, bound time.Duration) ([]Node, uint64, error) {
	ctx, cancel := q.within(ctx, bound)
	defer cancel()
	entries, meta, err := c.api.Health().Service(Service, "", false, q.options(ctx))
	if err == nil && meta.ResultsFilteredByACLs {
		err = errHidden
	}
	if err != nil {
		return nil, 0, c.failure(ctx, "read the nodes of "+Service, err)
	}
	nodes := make([]Node, 0, len(entries))
	for _, e := range entries {
		if e != nil && e.Service != nil {
			nodes = append(nodes, newNode(e))
		}
	}
	slices.SortFunc(nodes, func(a, b Node) int {
		return cmp.Or(cmp.Compare(a.Region, b.Region), cmp.Compare(a.PoP, b.PoP), cmp.Compare(a.ID, b.ID), cmp.Compare(a.Address, b.Address))
	})
	return nodes, meta.LastIndex, nil
}

func newNode(e *api.ServiceEntry) Node {
	s := e.Service
	n := Node{
		ID: cmp.Or(s.Meta["node"], strings.TrimPrefix(s.ID, Service+"-")), Region: s.Meta["region"], PoP: s.Meta["pop"],
		Admin: s.Meta["admin"], Prefix: s.Meta["prefix"], RulesVersion: s.Meta["rules_version"], RulesRefused: s.Meta["rules_refused"],
		ShedderVersion: s.Meta["shedder_version"], ShedderRefused: s.Meta["shedder_refused"],
		Passing: e.Checks.AggregatedStatus() == api.HealthPassing,
	}
	host := s.Address
	if host == "" && e.Node != nil {
		host = e.Node.Address
	}
	n.Address = net.JoinHostPort(host, strconv.Itoa(s.Port))
	for _, check := range e.Checks {
		if check.Status != api.HealthPassing {
			n.Output = strings.TrimSpace(check.Output)
			break
		}
	}
	return n
}
