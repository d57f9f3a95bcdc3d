package ctl

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/weir-edge/weir/internal/ctl/command"
	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/kinds"
	"github.com/weir-edge/weir/internal/ctl/report"
	"github.com/weir-edge/weir/internal/ctl/rollout"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/pkg/region"
	"github.com/weir-edge/weir/pkg/region/consul"
	"github.com/weir-edge/weir/pkg/sign"
)

// topologyChange publishes a topology in every region.
type topologyChange struct {
	p            *command.Program
	yes, partial bool
	breakLock    bool
	by           string
	signFile     string
	signer       *sign.Key

	next   *region.Topology
	text   string // of next as JSON
	engine *rollout.Change[heldTopology]
}

func (c *topologyChange) apply(ctx context.Context, file string) (err error) {
	if c.by, err = c.p.Whoami(""); err != nil {
		return err
	}
	if c.signer, err = command.Signer(c.signFile); err != nil {
		return err
	}
	targets, err := c.p.TargetsToChange(ctx, kinds.Rules, nil, c.partial)
	if err != nil {
		return err
	}
	data, err := c.p.ReadInput(consul.MaxDocument, file)
	if err != nil {
		return err
	}
	if c.next, err = parseTopology(data, command.RegionNames(targets)); err != nil {
		return command.Refuse(command.InputName(file), err)
	}
	text, err := json.Marshal(c.next)
	if err != nil {
		return err
	}
	c.text = string(text)
	c.begin(targets)
	if err := c.prepare(ctx); err != nil {
		return err
	}
	if todo := report.With(c.told(), rollout.Untouched); len(todo) > 0 {
		if err := c.p.Confirm(ctx, c.yes, "Apply to %s?", report.Names(todo)); err != nil {
			return err
		}
	}
	// A topology that is already there can be signed later.
	if err := c.engine.Store(ctx); err != nil {
		return c.report(report.Stopped(err, c.engine.Name, c.told()))
	}
	if len(report.With(c.told(), rollout.Untouched)) > 0 {
		if err := c.engine.Write(ctx); err != nil {
			return c.report(report.Stopped(err, c.engine.Name, c.told()))
		}
	}
	return c.report(report.Outcome(ctx, c.told(), c.engine.Wrote, c.engine.Displaced, term.Partial))
}

func (c *topologyChange) begin(targets []*fleet.Target) {
	type place = rollout.Region[heldTopology]
	clients := map[string]*consul.Client{}
	c.engine = &rollout.Change[heldTopology]{
		Subject: rollout.Subject[heldTopology]{
			Name: "topology",
			Store: func(ctx context.Context, r *place) error {
				if c.signer == nil {
					return nil
				}
				return region.SignTopology(ctx, clients[r.Name], c.next, c.signer)
			},
			Look:  func(ctx context.Context, r *place) (heldTopology, error) { return hold(ctx, clients[r.Name]) },
			Same:  func(a, b heldTopology) bool { return a.index == b.index },
			Holds: func(_ *place, now heldTopology) bool { return now.text == c.text },
			Write: func(ctx context.Context, r *place) (bool, error) {
				return region.PublishTopology(ctx, clients[r.Name], c.next, r.Seen.index, r.Fence)
			},
		},
		By: c.by, Partial: c.partial, Timeout: c.p.Timeout, LockWait: c.p.LockWait, BreakLock: c.breakLock, Report: &report.Locks{Program: c.p, What: "topology"},
	}
	for _, t := range targets {
		clients[t.Name] = t.Consul
		c.engine.Regions = append(c.engine.Regions, rollout.NewRegion[heldTopology](t.Name, t.Consul))
	}
}

// prepare reads what all regions hold, and shows the difference.
func (c *topologyChange) prepare(ctx context.Context) error {
	c.engine.Prepare(ctx, c.engine.Look)
	c.engine.Compare()
	away, err := report.Reached(c.engine.Results(), c.partial, "")
	if err != nil {
		return err
	}
	return c.p.ShowDifference(away, c.writeDifference)
}

// writeDifference joins regions that hold the same.
func (c *topologyChange) writeDifference(b *bytes.Buffer, s term.Style) {
	shown := map[string][]string{}
	var order []heldTopology
	id := func(h heldTopology) string { return fmt.Sprint(h.text, h.broken) }
	for _, r := range rollout.With(c.engine.Regions, rollout.Untouched, rollout.AlreadyThere) {
		if shown[id(r.Seen)] == nil {
			order = append(order, r.Seen)
		}
		shown[id(r.Seen)] = append(shown[id(r.Seen)], r.Name)
	}
	for _, h := range order {
		where := s.Bold(strings.Join(shown[id(h)], ", "))
		switch {
		case h.broken != nil:
			fmt.Fprintf(b, "%s: what is there cannot be read, and will be replaced\n  %s\n", where, term.Indented(term.Clean(h.broken.Error())))
		case h.topology == nil:
			fmt.Fprintf(b, "%s: no topology published yet\n", where)
			writeTopologyDiff(b, s, &region.Topology{}, c.next)
		case h.text == c.text:
			fmt.Fprintf(b, "%s: no difference\n", where)
		default:
			fmt.Fprintf(b, "%s:\n", where)
			writeTopologyDiff(b, s, h.topology, c.next)
		}
	}
}

func (c *topologyChange) told() (list []report.Region) {
	for _, r := range c.engine.Results() {
		t := report.Failed(r, "the topology")
		if r.Outcome == rollout.Lost {
			t.Why = "someone else has changed the topology in the meantime; see regionctl topology show --region " + r.Name + ", and apply again if yours should win"
		}
		list = append(list, t)
	}
	return list
}

func (c *topologyChange) report(outcome error) error {
	v := topologyReport{Zone: c.next.Zone}
	for _, r := range c.told() {
		v.Regions = append(v.Regions, report.ResultOf(r))
	}
	return cmp.Or(outcome, c.p.Show(v, func(b *bytes.Buffer, s term.Style) { report.WriteResults(b, s, v.Regions) }))
}
