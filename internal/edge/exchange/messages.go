package exchange

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/weir-edge/weir/internal/edge/peer"
	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/global"
	"github.com/weir-edge/weir/pkg/limiter/rules"
	"github.com/weir-edge/weir/pkg/limiter/tally"
)

// A message of TopicCounts holds parts, each a partition's number and a global.Message, and
// so does its answer. One of TopicTotals is a global.Message with this region's totals,
// whose incarnation says how often its sender has found the store to have lost what it
// held; the answer says how long ago the region heard of another.
const (
	fieldPart protowire.Number = 1

	partNumber  protowire.Number = 1
	partMessage protowire.Number = 2

	fieldHeardAgo protowire.Number = 1 // microseconds, and one more
)

// maxBody bounds a message. The next one carries what does not fit.
const maxBody = 2 << 20

var errMessage = errors.New("not a message between regions")

// report sends what the region admitted to the owners of its partitions.
func (x *Exchange) report(ctx context.Context, totals []tally.Total, losses int64) {
	byOwner := map[peer.Node][]tally.Total{}
	for _, t := range totals {
		owner := x.owners[partitionOf(t.Key)]
		byOwner[owner] = append(byOwner[owner], t)
	}
	owner := x.owners[x.ticks/10%Partitions]
	if x.ticks%10 == 0 && !x.config.Directory.IsSelf(owner) && byOwner[owner] == nil {
		byOwner[owner] = nil // to learn whether the region hears from others
	}
	if losses > x.losses {
		x.losses = losses
		for _, owner := range x.owners { // every owner must know
			byOwner[owner] = slices.Clip(byOwner[owner])
		}
	}
	for owner, list := range byOwner {
		if x.config.Directory.IsSelf(owner) {
			x.observe(x.config.Node, toMessage(list, losses))
			x.config.Tallies.Confirm(list)
			continue
		}
		for first := true; first || len(list) > 0; first = false {
			n := min(len(list), global.MaxBatch)
			some := list[:n]
			list = list[n:]
			x.call(ctx, owner, TopicTotals, func() []byte { return toMessage(some, losses).Append(nil) }, func(reply []byte) {
				x.config.Tallies.Confirm(some)
				if ago, ok := parseHeardAgo(reply); ok {
					x.noteHeard(x.config.Clock() - ago)
				}
			})
		}
	}
}

func toMessage(list []tally.Total, losses int64) *global.Message {
	m := &global.Message{Header: global.Header{Incarnation: losses}}
	for _, t := range list {
		tier := ""
		if t.Limit.Global != nil {
			tier = t.Limit.Global.Tier
		}
		m.Counts = append(m.Counts, global.Count{Key: t.Key, Tier: tier, Start: t.Start, Width: t.Width, Cell: global.Cell{Incarnation: losses, Count: t.Count}})
	}
	return m
}

// Totals answers a node of this region.
func (x *Exchange) Totals(_ context.Context, from peer.Node, body []byte) ([]byte, error) {
	if from.Region != x.config.Region {
		return nil, fmt.Errorf("totals are for nodes of region %s", x.config.Region)
	}
	var m global.Message
	if err := m.Parse(body); err != nil {
		return nil, err
	}
	x.observe(from.ID, &m)
	x.mu.Lock()
	ago := x.config.Clock() - x.heard
	x.mu.Unlock()
	return protowire.AppendVarint(protowire.AppendTag(nil, fieldHeardAgo, protowire.VarintType), uint64(max(0, ago.Microseconds())+1)), nil
}

func parseHeardAgo(reply []byte) (ago time.Duration, ok bool) {
	err := global.Fields(reply, func(field protowire.Number, v uint64) {
		if field == fieldHeardAgo && v > 0 && v < 1<<50 {
			ago, ok = time.Duration(v-1)*time.Microsecond, true
		}
	}, func(protowire.Number, []byte) {})
	return ago, ok && err == nil
}

// observe merges totals of this region.
func (x *Exchange) observe(node string, m *global.Message) {
	regions, self, ok := x.position()
	if !ok {
		return
	}
	var opened [Partitions]bool
	open := func(i int) *part {
		p := &x.parts[i]
		if !opened[i] {
			opened[i] = true
			p.mu.Lock()
			p.open(&x.config, len(regions), self)
			p.mu.Unlock()
		}
		return p
	}
	if m.Incarnation > 0 {
		for i := range x.parts {
			x.parts[i].lost(node, m.Incarnation)
		}
		x.signal()
	}
	for i := range m.Counts {
		n := &m.Counts[i]
		if l := x.limit(n.Key, n.Tier, n.Width); l != nil && l.Global.Escrow {
			x.admitted(l, n.Key, n.Start, n.Count)
		} else if l != nil {
			open(partitionOf(n.Key)).observe(x, l, n.Key, n.Start, n.Count)
		}
	}
}

// limit returns the limit that counts a key, or nil if no active rule has it.
func (x *Exchange) limit(key, tier string, width int64) *limiter.Limit {
	l := x.config.Limit(rules.RuleOf(key), tier)
	if l == nil || l.Global == nil || global.Width(l) != width {
		return nil
	}
	return l
}

// send sends owners in other regions the counts that they lack.
func (x *Exchange) send(ctx context.Context, regions []string, number int) {
	for p := range x.parts {
		if x.config.Directory.IsSelf(x.owners[p]) {
			x.parts[p].mu.Lock()
			x.parts[p].open(&x.config, len(regions), number)
			x.parts[p].mu.Unlock()
		}
	}
	for to, region := range regions {
		if to == number {
			continue
		}
		byOwner := map[peer.Node][]int{}
		for p := range x.parts {
			if owner, ok := x.config.Directory.Owner(region, names[p]); ok && x.parts[p].isOpen() {
				byOwner[owner] = append(byOwner[owner], p)
			}
		}
		for owner, list := range byOwner {
			x.call(ctx, owner, TopicCounts, func() []byte { return x.write(list, to) }, func(reply []byte) {
				_ = x.read(reply, to, func(int) {}) // a damaged answer counts as lost
			})
		}
	}
}

func (p *part) isOpen() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counts != nil
}

// write returns what these partitions owe a region. It starts at a different partition each
// time, since not all may fit.
func (x *Exchange) write(parts []int, to int) (body []byte) {
	if len(parts) == 0 {
		return nil
	}
	turn := int(x.config.Clock()/global.Period) % len(parts)
	for i := range parts {
		number := parts[(i+turn)%len(parts)]
		p := &x.parts[number]
		p.mu.Lock()
		var m *global.Message
		if p.counts != nil && to < p.regions {
			m = p.counts.Send(to, x.config.Clock())
		}
		p.mu.Unlock()
		if m == nil {
			continue
		}
		one := protowire.AppendVarint(protowire.AppendTag(nil, partNumber, protowire.VarintType), uint64(number))
		one = protowire.AppendBytes(protowire.AppendTag(one, partMessage, protowire.BytesType), m.Append(nil))
		body = protowire.AppendBytes(protowire.AppendTag(body, fieldPart, protowire.BytesType), one)
		if len(body) > maxBody {
			break
		}
	}
	return body
}

// read merges the parts of a region's message.
func (x *Exchange) read(body []byte, from int, before func(partition int)) error {
	var bad error
	err := global.Fields(body, func(protowire.Number, uint64) {}, func(field protowire.Number, one []byte) {
		if field != fieldPart {
			return
		}
		number, message := uint64(Partitions), []byte(nil)
		err := global.Fields(one, func(field protowire.Number, v uint64) {
			if field == partNumber {
				number = v
			}
		}, func(field protowire.Number, v []byte) {
			if field == partMessage {
				message = v
			}
		})
		var m global.Message
		if err == nil {
			err = m.Parse(message)
		}
		if err != nil || number >= Partitions || m.From != from {
			bad = errMessage
			return
		}
		before(int(number))
		x.parts[number].receive(x, int(number), &m)
	})
	x.signal()
	return errors.Join(err, bad)
}

// Counts answers a node of another region.
func (x *Exchange) Counts(_ context.Context, from peer.Node, body []byte) ([]byte, error) {
	regions, self, ok := x.position()
	number := slices.Index(regions, from.Region)
	if !ok || number < 0 || number == self {
		return nil, fmt.Errorf("counts are for nodes of other regions, and %q is none that is known here", from.Region)
	}
	var parts []int
	err := x.read(body, number, func(i int) {
		p := &x.parts[i]
		p.mu.Lock()
		p.open(&x.config, len(regions), self)
		p.mu.Unlock()
		parts = append(parts, i)
	})
	if err != nil {
		return nil, err
	}
	slices.Sort(parts)
	return x.write(slices.Compact(parts), number), nil
}
