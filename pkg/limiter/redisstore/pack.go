package redisstore

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/redisstore/redirect"
)

// pack is a group of calls that share one script, and its arguments. See take.lua and
// return.lua for their order.
type pack struct {
	script *script
	calls  []*limiter.Call
	cmd    command
	args   []any
	plan   []byte
	rules  []*limiter.Limit
	checks int // answered in the reply
	weight int64
	// divided is set if a limit is a region's part, which may be spent only if the store
	// has lost nothing.
	divided bool
	// severalSlots is set if the keys are in several slots. See several_slots.lua.
	severalSlots bool
}

// The scripts' answers to a check whose key they could not read.
const (
	foreign   = -1 // another program wrote it
	elsewhere = -2 // another master has it
)

// errForeign fails a call on a key that another program wrote.
var errForeign = clean(redirect.Reply("WRONGTYPE a key holds data that no rule wrote; delete it"))

// command runs a pack.
type command struct {
	redirect.Numbers
	// divisible is set for a request with several keys, which may be decided one by one.
	divisible bool
}

// Divisible implements redirect.Divisible.
func (c *command) Divisible() bool { return c.divisible }

// packing is reusable memory for the packs of a batch.
type packing struct {
	packs []*pack
	cmds  []redis.Cmder
}

// commands returns the packs' commands.
func (m *packing) commands(ctx context.Context, packs []*pack) []redis.Cmder {
	m.cmds = m.cmds[:0]
	for _, p := range packs {
		p.cmd = command{redirect.Numbers{IntSliceCmd: redis.NewIntSliceCmd(ctx, p.args...)}, len(p.calls) == 1 && len(p.calls[0].Checks) > 1}
		m.cmds = append(m.cmds, &p.cmd)
	}
	return m.cmds
}

// pack groups the calls into scripts.
func (n *node) pack(m *packing, calls []*limiter.Call) []*pack {
	used := 0
	open := func() *pack {
		if used == len(m.packs) {
			m.packs = append(m.packs, &pack{})
		}
		p := m.packs[used]
		used++
		p.calls, p.rules, p.checks, p.weight = p.calls[:0], p.rules[:0], 0, 0
		p.divided = false
		return p
	}
	var taking, returning, leasing *pack
	for _, c := range calls {
		target := &taking
		switch {
		case c.Return:
			target = &returning
		case c.Lease():
			target = &leasing
		}
		weight := c.Weight()
		if !n.joins(c, weight, *target) {
			*target = open()
		}
		(*target).add(c)
		(*target).weight += weight
	}
	clock := n.now()
	for _, p := range m.packs[:used] {
		p.prepare(clock, n)
	}
	return m.packs[:used]
}

// joins reports whether a call may share a script with those of a pack.
func (n *node) joins(c *limiter.Call, weight int64, p *pack) bool {
	if p == nil {
		return false
	}
	most := n.maxWeight
	if n.sharesSlots() && !c.Return && !p.divided && !divided(c) {
		most = maxWeight
	}
	return p.weight+weight <= most
}

// divided reports whether a limit of the call is a region's part.
func divided(c *limiter.Call) bool {
	for i := range c.Checks {
		if c.Checks[i].Limit.Whole != nil {
			return true
		}
	}
	return false
}

// prepare chooses the script of a complete pack and writes its arguments.
func (p *pack) prepare(clock string, n *node) {
	p.script = n.scripts.of(p)
	p.severalSlots = len(p.calls) > 1 && n.slots
	if p.severalSlots {
		p.script = n.scripts.severalSlots[p.script]
	}
	p.encode(clock, n)
}

func (p *pack) add(c *limiter.Call) {
	p.calls = append(p.calls, c)
	p.checks += len(c.Checks)
	for i := range c.Checks {
		if p.rule(c.Checks[i].Limit) == 0 {
			p.rules = append(p.rules, c.Checks[i].Limit)
		}
	}
	p.divided = p.divided || divided(c)
}

// rule returns the index of a limit in the pack, from 1, or 0 if it is not there.
func (p *pack) rule(l *limiter.Limit) int {
	for i, known := range p.rules {
		if known == l {
			return i + 1
		}
	}
	return 0
}

// encode writes the arguments, without allocating for pointers and small numbers.
func (p *pack) encode(clock string, n *node) {
	clear(p.args)
	keys := p.checks
	opened := p.divided && !p.calls[0].Return
	if opened {
		keys++
	}
	a := append(p.args[:0], "evalsha", p.script.sha, keys)
	if p.severalSlots {
		a[2] = 1
		a = append(a, p.calls[0].Checks[0].Key)
	} else {
		a = p.keys(a)
	}
	if opened {
		a = append(a, n.opened(string(p.calls[0].Checks[0].Key)))
	}
	a = append(a, clock)
	if !p.calls[0].Return && !p.calls[0].Lease() {
		p.schedule()
		a = append(a, p.plan)
	}
	a = append(a, len(p.rules))
	for _, l := range p.rules {
		a = append(a, l.Encoded())
	}
	for _, c := range p.calls {
		for i := range c.Checks {
			check := &c.Checks[i]
			switch {
			case c.Return:
				a = append(a, p.rule(check.Limit), check.Cost, c.TakenAt[i], slotText(check.Slot))
			case c.Lease():
				a = append(a, p.rule(check.Limit), int(check.Cost), limiter.AdvanceDivisor(check.Nodes))
			case check.Limit.Algorithm == limiter.Concurrency:
				a = append(a, slotText(check.Slot))
			}
		}
	}
	if p.severalSlots {
		at := len(a)
		a = append(slices.Delete(p.keys(a), at, at+1), keys) // the first is declared
	}
	p.args = a
}

func (p *pack) keys(a []any) []any {
	for _, c := range p.calls {
		for i := range c.Checks {
			a = append(a, c.Checks[i].Key)
		}
	}
	return a
}

// schedule writes the plan for take.lua as one argument: each argument costs Redis about as
// much time as reading all the numbers of a request from one.
func (p *pack) schedule() {
	b := p.plan[:0]
	for _, c := range p.calls {
		b = binary.BigEndian.AppendUint16(b, uint16(c.Times))
		b = binary.BigEndian.AppendUint16(b, uint16(len(c.Checks)))
		for i := range c.Checks {
			check := &c.Checks[i]
			b = binary.BigEndian.AppendUint16(b, uint16(p.rule(check.Limit)))
			b = binary.BigEndian.AppendUint32(b, uint32(check.Cost))
		}
	}
	p.plan = b
}

func slotText(slot uint64) string { return strconv.FormatUint(slot, 36) }

// answer distributes the reply to the calls.
func (p *pack) answer() {
	reply, err := p.cmd.Result()
	if err == nil && !p.calls[0].Return && len(reply) != 1+4*p.checks {
		err = fmt.Errorf("the script returned %d numbers instead of %d", len(reply), 1+4*p.checks)
	}
	if err = clean(err); err != nil || p.calls[0].Return {
		for _, c := range p.calls {
			if c.Elsewhere == nil {
				c.Err = err
			}
		}
		return
	}
	now, rest := reply[0], reply[1:]
	for _, c := range p.calls {
		answers := rest[:4*len(c.Checks)]
		rest = rest[len(answers):]
		switch {
		case c.Elsewhere != nil:
		case isElsewhere(answers):
			c.Err = clean(redirect.ErrElsewhere)
		case len(answers) > 0 && answers[0] == foreign:
			c.Err = errForeign
		default:
			c.Now = now
			for ; len(answers) > 0; answers = answers[4:] {
				c.Answers = append(c.Answers, limiter.Answer{Fits: answers[0], Remaining: answers[1], Retry: answers[2], Reset: answers[3]})
			}
		}
	}
}
