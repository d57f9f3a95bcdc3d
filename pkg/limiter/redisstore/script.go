package redisstore

import (
	"maps"
	"math"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/weir-edge/weir/lua"
	"github.com/weir-edge/weir/pkg/limiter"
)

type script struct{ sha, src string }

func newScript(src string) *script {
	return &script{sha: redis.NewScript(src).Hash(), src: src}
}

// scripts are the scripts that a node runs.
type scripts struct {
	take     *script // for any rules
	giveBack *script
	lease    *script
	report   *script
	merge    *script
	tally    *script
	load     *script
	move     *script
	term     *script
	accounts *script
	single   map[string]*script // takes for rules of one tag: the same, without the other algorithms
	// severalSlots has, for each script that may serve several slots of a master, its form that does.
	severalSlots map[*script]*script
	sources      map[string]string // of all, by SHA-1
}

// allScripts assembles them once.
var allScripts = sync.OnceValue(func() *scripts {
	s := &scripts{take: newScript(lua.Take()), giveBack: newScript(lua.Return()), lease: newScript(lua.Lease()), report: newScript(lua.Report()), merge: newScript(lua.Merge()), tally: newScript(lua.Tally()), load: newScript(lua.Load()), move: newScript(lua.Move()), accounts: newScript(lua.Accounts()), term: newScript(lua.Term()), single: map[string]*script{}}
	for _, tag := range lua.Tags() {
		s.single[tag] = newScript(lua.TakeOne(tag))
	}
	s.severalSlots = map[*script]*script{}
	for _, sc := range slices.AppendSeq([]*script{s.take, s.lease}, maps.Values(s.single)) {
		s.severalSlots[sc] = newScript(lua.SeveralSlots(sc.src))
	}
	s.index()
	return s
})

func (s *scripts) index() {
	s.sources = map[string]string{}
	for _, sc := range slices.AppendSeq(s.all(), maps.Values(s.severalSlots)) {
		s.sources[sc.sha] = sc.src
	}
}

// of returns the script for a pack.
func (s *scripts) of(p *pack) *script {
	if p.calls[0].Return {
		return s.giveBack
	}
	if p.calls[0].Lease() {
		return s.lease
	}
	tag := ""
	for i, l := range p.rules {
		if i > 0 && l.Tag() != tag {
			return s.take
		}
		tag = l.Tag()
	}
	if sc := s.single[tag]; sc != nil {
		return sc
	}
	return s.take
}

func (s *scripts) all() []*script {
	return slices.AppendSeq([]*script{s.take, s.giveBack, s.lease, s.report, s.merge, s.tally, s.load, s.move, s.accounts, s.term}, maps.Values(s.single))
}

// Command returns the command that decides calls in one script, and the script's source,
// for tests and measurements. clock is Config.Clock.
func Command(clock func() int64, calls []*limiter.Call) (command []any, source string) {
	n := newNode(nil, nil, nil, clock)
	n.maxWeight = math.MaxInt64
	p := n.pack(&packing{}, calls)[0]
	return p.args, p.script.src
}

// ClusterCommands returns the commands that decide calls on one master of a Cluster in a
// round trip, and the source of each one's script. It is for tests and measurements, like
// Command.
func ClusterCommands(clock func() int64, calls []*limiter.Call) (commands [][]any, sources []string) {
	n := newNode(nil, &redis.ClusterClient{}, nil, clock)
	for _, p := range n.pack(&packing{}, calls) {
		commands, sources = append(commands, p.args), append(sources, p.script.src)
	}
	return commands, sources
}
