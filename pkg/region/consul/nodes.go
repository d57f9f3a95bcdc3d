package consul

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/consul/api"
)

// Service is the name under which edge nodes register.
const Service = "weir-edge"

// Node is one registered edge node.
type Node struct {
	ID           string `json:"id"` // as in the node's configuration
	Region       string `json:"region"`
	PoP          string `json:"pop"`
	Address      string `json:"address"`             // host:port for clients
	Admin        string `json:"admin"`               // the admin listener; see AdminURL
	Peer         string `json:"peer,omitempty"`      // host:port for other nodes; "" if it has no such listener
	Prefix       string `json:"prefix"`              // of the keys that it follows
	Schema       int    `json:"schema"`              // the newest schema of documents that it reads
	SignedBy     string `json:"signed_by,omitempty"` // comma-separated keys, one of which must sign documents
	RulesVersion string `json:"rules_version"`
	RulesRefused string `json:"rules_refused,omitempty"`
	// The same for the shedder's settings; a node without a shedder registers neither.
	ShedderVersion string `json:"shedder_version,omitempty"`
	ShedderRefused string `json:"shedder_refused,omitempty"`
	// The same for behavior policies, with the newest schema that it reads; 0 for a node
	// that follows none.
	PolicySchema  int    `json:"policy_schema,omitempty"`
	PolicyVersion string `json:"policy_version,omitempty"`
	PolicyRefused string `json:"policy_refused,omitempty"`
	// The same for client networks that are blocked or allowed manually.
	ClientsSchema  int    `json:"clients_schema,omitempty"`
	ClientsVersion string `json:"clients_version,omitempty"`
	// Passing reports whether all its checks pass. If not, Output is the output of the
	// first failing one.
	Passing bool   `json:"passing"`
	Output  string `json:"output,omitempty"`
}

// AdminURL returns the URL of an admin listener. One that uses TLS registers as
// https://host:port, others as host:port.
func AdminURL(admin string) (*url.URL, error) {
	u := &url.URL{Scheme: "http", Host: admin}
	if host, ok := strings.CutPrefix(admin, "https://"); ok {
		u.Scheme, u.Host = "https", host
	}
	if _, _, err := net.SplitHostPort(u.Host); err != nil {
		return nil, fmt.Errorf("must be host:port or https://host:port (got %q)", admin)
	}
	return u, nil
}

// Instance is a node with the additional fields that a follower of the fleet needs.
type Instance struct {
	Node
	Datacenter string
	Load            // zero unless TellsLoad
	TellsLoad  bool // false without a shedder
	// Unchecked marks a node that its agent has not checked yet, for example after a
	// restart of Consul: its check is critical and has no output.
	Unchecked bool
}

// Nodes returns the registered edge nodes by region, PoP and id, including those that
// fail their check.
//
// A list from which Consul hid something is an error: the token lacks service read for
// weir-edge or node read. Consul does not report this to a request without a token: if
// its ACLs deny that, the list is empty and there is no error.
func (c *Client) Nodes(ctx context.Context) ([]Node, error) {
	nodes, _, err := c.nodes(ctx, query{}, answerTimeout)
	return nodes, err
}

func (c *Client) nodes(ctx context.Context, q query, bound time.Duration) ([]Node, uint64, error) {
	all, index, err := c.instances(ctx, "", q, bound)
	if err != nil {
		return nil, 0, err
	}
	nodes := make([]Node, len(all))
	for i, n := range all {
		nodes[i] = n.Node
	}
	return nodes, index, nil
}

// InstancesVia asks another client's Consul for the edge nodes of this client's prefix in a
// datacenter, sorted like Nodes. That Consul forwards the query, and the datacenter applies
// its own ACLs, so the request carries this client's token and not via's. Nodes without a
// prefix are included.
func (c *Client) InstancesVia(ctx context.Context, via *Client, datacenter string, bound time.Duration) ([]Instance, error) {
	all, _, err := via.instances(context.WithValue(ctx, tokenOf{}, &c.config), datacenter, query{}, bound)
	return c.own(all), err
}

// own removes the nodes of other fleets that share this Consul.
func (c *Client) own(all []Instance) []Instance {
	return slices.DeleteFunc(all, func(n Instance) bool { return n.Prefix != "" && n.Prefix != c.prefix })
}

// WatchNodes calls each with the registered edge nodes, as Nodes returns them,
// immediately and whenever one changes, until ctx ends. It polls like Watch. The leader
// must confirm an empty list that follows a non-empty one. Even then it does not prove
// that there are no nodes (see Nodes), so never act on it alone.
func (c *Client) WatchNodes(ctx context.Context, state func(error), each func([]Node)) {
	watchList(ctx, c.nodes, func(a, b Node) bool { return a == b }, state, each)
}

// WatchInstances is WatchNodes for what Instances returns.
func (c *Client) WatchInstances(ctx context.Context, state func(error), each func([]Instance)) {
	watchList(ctx, func(ctx context.Context, q query, bound time.Duration) ([]Instance, uint64, error) {
		all, index, err := c.instances(ctx, "", q, bound)
		return c.own(all), index, err
	}, func(a, b Instance) bool { return a == b }, state, each)
}

func (c *Client) instances(ctx context.Context, datacenter string, q query, bound time.Duration) ([]Instance, uint64, error) {
	ctx, cancel := q.within(ctx, bound)
	defer cancel()
	o := q.options(ctx)
	o.Datacenter = datacenter
	entries, meta, err := c.api.Health().Service(Service, "", false, o)
	if err == nil && meta.ResultsFilteredByACLs {
		err = hidden("service:read' and 'node:read", Service)
	}
	if err == nil && slices.ContainsFunc(entries, func(e *api.ServiceEntry) bool { return e != nil && slices.Contains(e.Checks, nil) }) {
		err = errNull
	}
	if err != nil {
		return nil, 0, c.failure(ctx, "read the nodes of "+Service, err)
	}
	all := make([]Instance, 0, len(entries))
	for _, e := range entries {
		if e != nil && e.Service != nil {
			all = append(all, newInstance(e))
		}
	}
	slices.SortFunc(all, func(a, b Instance) int {
		return cmp.Or(cmp.Compare(a.Region, b.Region), cmp.Compare(a.PoP, b.PoP), cmp.Compare(a.ID, b.ID), cmp.Compare(a.Address, b.Address))
	})
	return all, meta.LastIndex, nil
}

func newInstance(e *api.ServiceEntry) Instance {
	n := Instance{Node: newNode(e)}
	n.Load, n.TellsLoad = newLoad(e.Service.Meta)
	if e.Node != nil {
		n.Datacenter = e.Node.Datacenter
	}
	n.Unchecked = !n.Passing
	for _, check := range e.Checks {
		// Consul's maintenance check has no output.
		n.Unchecked = n.Unchecked && (check.Status == api.HealthPassing || strings.TrimSpace(check.Output) == "" && !strings.HasPrefix(check.CheckID, "_"))
	}
	return n
}

// Accepts takes over which documents a node accepts, according to its registered meta.
func (n *Node) Accepts(meta map[string]string) {
	n.SignedBy = meta[MetaSignedBy]
	n.Schema, _ = strconv.Atoi(meta[MetaSchema]) // 0 if it is absent
	n.PolicySchema, _ = strconv.Atoi(meta[MetaPolicySchema])
	n.ClientsSchema, _ = strconv.Atoi(meta[MetaClientsSchema])
}

func newNode(e *api.ServiceEntry) Node {
	s := e.Service
	n := Node{
		ID: cmp.Or(s.Meta[MetaNode], strings.TrimPrefix(s.ID, Service+"-")), Region: s.Meta[MetaRegion], PoP: s.Meta[MetaPoP],
		Admin: s.Meta[MetaAdmin], Peer: s.Meta[MetaPeer], Prefix: s.Meta[MetaPrefix], RulesVersion: s.Meta[MetaRulesVersion], RulesRefused: s.Meta[MetaRulesRefused],
		ShedderVersion: s.Meta[MetaShedderVersion], ShedderRefused: s.Meta[MetaShedderRefused],
		PolicyVersion: s.Meta[MetaPolicyVersion], PolicyRefused: s.Meta[MetaPolicyRefused], ClientsVersion: s.Meta[MetaClientsVersion],
		Passing: e.Checks.AggregatedStatus() == api.HealthPassing,
	}
	n.Accepts(s.Meta)
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
