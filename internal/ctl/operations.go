package ctl

import (
	"context"
	"io"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"github.com/weir-edge/weir/internal/clientlist"
	"github.com/weir-edge/weir/internal/console"
	"github.com/weir-edge/weir/internal/ctl/audit"
	"github.com/weir-edge/weir/internal/ctl/change"
	"github.com/weir-edge/weir/internal/ctl/clients"
	"github.com/weir-edge/weir/internal/ctl/command"
	"github.com/weir-edge/weir/internal/ctl/dns"
	"github.com/weir-edge/weir/internal/ctl/drain"
	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/kinds"
	"github.com/weir-edge/weir/internal/ctl/limits"
	"github.com/weir-edge/weir/internal/ctl/overview"
	"github.com/weir-edge/weir/internal/ctl/rules"
	"github.com/weir-edge/weir/internal/ctl/shedder"
	"github.com/weir-edge/weir/internal/ctl/status"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/internal/ctl/topology"
	"github.com/weir-edge/weir/internal/ctl/undo"
	"github.com/weir-edge/weir/internal/ctl/unfinished"
	"github.com/weir-edge/weir/internal/ctl/versions"
)

// watchEvery is the pause between two looks of an operation that streams.
const watchEvery = 2 * time.Second

// operations are the functions of the console's operations, by their IDs.
var operations = map[string]operation{
	"fleet": ofRegions(overview.Look),
	"fleet.events": does(func(ctx context.Context, p *command.Program, c *console.Call) (*overview.Fleet, error) {
		return nil, overview.Watch(ctx, p, nil, watchEvery, func(v *overview.Fleet) error { return c.Look(v) })
	}),
	"drain": asks((*drain.Request).Flags, func(ctx context.Context, p *command.Program, c *console.Call, q *drain.Request, _ []string) (*drain.Report, error) {
		q.Wait = 0
		return drain.Drain(ctx, p, c.Text("pop"), q)
	}),
	"undrain": does(func(ctx context.Context, p *command.Program, c *console.Call) (*drain.Report, error) {
		return drain.Undrain(ctx, p, c.Text("pop"), &drain.Request{})
	}),
	"drain.undo": undoes(kinds.Drains),

	"rules": ofRegions(rules.List),
	"rules.events": does(func(ctx context.Context, p *command.Program, c *console.Call) (*rules.RuleList, error) {
		return nil, rules.WatchList(ctx, p, nil, watchEvery, func(v *rules.RuleList) error { return c.Look(v) })
	}),
	"rules.hour": ofRegions(rules.LastHour),
	"rules.validate": does(func(_ context.Context, p *command.Program, c *console.Call) (*rules.Validation, error) {
		return rules.Validate(p, document(c))
	}),
	"rules.diff": does(func(ctx context.Context, p *command.Program, c *console.Call) (*versions.DiffReport, error) {
		return versions.Diff(ctx, p, kinds.Rules, c.List("region"), document(c))
	}),
	"rules.test":           replays(false),
	"rules.test.recent":    replays(true),
	"rules.status":         verifies(kinds.Rules),
	"rules.document":       fetches(kinds.Rules),
	"rules.history":        lists(kinds.Rules),
	"rules.changes":        compares(kinds.Rules),
	"rules.apply":          applies(false),
	"rules.rollback":       rollsBack(kinds.Rules),
	"rules.undo":           undoes(kinds.Rules),
	"rules.rollout.start":  applies(false),
	"rules.rollout.resume": applies(true),
	"rules.rollout.unfinished": does(func(ctx context.Context, p *command.Program, _ *console.Call) (*unfinished.Report, error) {
		return unfinished.Look(ctx, p, kinds.Rules)
	}),

	"limits.inspect": does(func(ctx context.Context, p *command.Program, c *console.Call) ([]*limits.Inspected, error) {
		return limits.Inspect(ctx, p, c.List("region"), "", "", c.List("key"))
	}),
	"limits.explain": asks((*limits.Request).Flags, func(ctx context.Context, p *command.Program, _ *console.Call, q *limits.Request, names []string) ([]*limits.Explained, error) {
		return limits.Explain(ctx, p, names, "", q)
	}),
	"limits.global": ofRegions(limits.Global),
	"limits.reset": asks((*limits.Request).ResetFlags, func(ctx context.Context, p *command.Program, _ *console.Call, q *limits.Request, names []string) ([]limits.ResetNode, error) {
		return limits.Reset(ctx, p, names, q)
	}),

	"clients": ofRegions(clients.List),
	"clients.show": does(func(ctx context.Context, p *command.Program, c *console.Call) ([]*clients.Entry, error) {
		list, _, err := clients.Covering(ctx, p, c.List("region"), c.Text("network"))
		return list, err
	}),
	"clients.recent": asks((*clients.Latests).Flags, func(ctx context.Context, p *command.Program, c *console.Call, q *clients.Latests, names []string) ([]*clients.Latest, error) {
		return q.Ask(ctx, p, names, c.Text("network"))
	}),
	"clients.top": ofRegions(func(ctx context.Context, p *command.Program, names []string) (*clients.Top, error) {
		return clients.LookTop(ctx, p, names, 10)
	}),
	"clients.block": decides(clientlist.Block),
	"clients.allow": decides(clientlist.Allow),
	"clients.unblock": asks((*clients.Options).Flags, func(ctx context.Context, p *command.Program, c *console.Call, o *clients.Options, names []string) ([]*clients.Changed, error) {
		o.Regions = names
		return clients.Unblock(ctx, p, c.List("network"), o)
	}),
	"clients.undo": undoes(kinds.Clients),

	"shedder":          ofRegions(shedder.Active),
	"shedder.live":     ofRegions(shedder.Live),
	"shedder.hour":     ofRegions(shedder.LastHour),
	"shedder.set":      sets(func(c *console.Call) []string { return c.List("settings") }),
	"shedder.off":      sets(func(*console.Call) []string { return []string{"enabled=false"} }),
	"shedder.rollback": rollsBack(kinds.Shedder),
	"shedder.undo":     undoes(kinds.Shedder),
	"shedder.history":  lists(kinds.Shedder),

	"policy.status":   verifies(kinds.Policy),
	"policy.document": fetches(kinds.Policy),
	"policy.history":  lists(kinds.Policy),
	"policy.changes":  compares(kinds.Policy),
	"policy.rollback": rollsBack(kinds.Policy),
	"policy.undo":     undoes(kinds.Policy),

	"dns.topology": ofRegions(topology.Fetch),
	"dns.explain": asks((*dns.Query).Flags, func(ctx context.Context, p *command.Program, _ *console.Call, q *dns.Query, _ []string) (*dns.Explanation, error) {
		return q.Explain(ctx, p)
	}),

	"audit": ofRegions(func(ctx context.Context, p *command.Program, names []string) ([]audit.Audited, error) {
		return audit.Verify(ctx, p, names, "")
	}),
	"audit.list": asks(lines, func(ctx context.Context, p *command.Program, _ *console.Call, most *int, names []string) ([]audit.Entry, error) {
		list, _, err := audit.List(ctx, p, names, *most)
		return list, err
	}),
}

// operation is one of the console's, with the type of its result.
type operation struct {
	result reflect.Type
	do     func(context.Context, *command.Program, *console.Call) (any, error)
}

// perform returns what performs the operations for the fleet of p.
func perform(p *command.Program) console.Do {
	return func(ctx context.Context, c *console.Call) (any, error) {
		next := command.NewProgram(term.New(strings.NewReader(""), io.Discard, &notes{to: c.Note}))
		next.Format, next.Confirmed, next.User, next.SignFile, next.MayHalt = "json", true, c.User, p.SignFile, c.MayHalt
		next.FleetFile, next.Timeout, next.InsecureAdmin, next.Prometheus = p.FleetFile, p.Timeout, p.InsecureAdmin, p.Prometheus
		next.Registering, next.LookTime, next.LockWait, next.Dial = p.Registering, p.LookTime, p.LockWait, p.Dial
		defer next.Close()
		result, err := operations[c.Operation.ID].do(ctx, next, c)
		return result, term.Settle(ctx, err)
	}
}

// answers are the types of the operations' results, by their IDs.
func answers() map[string]reflect.Type {
	types := map[string]reflect.Type{}
	for id, o := range operations {
		types[id] = o.result
	}
	return types
}

// notes passes on what a terminal would show, which writes whole lines, except blank ones.
type notes struct {
	mu sync.Mutex
	to func(line string)
}

func (n *notes) Write(p []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for line := range strings.Lines(string(p)) {
		if strings.TrimSpace(line) != "" {
			n.to(strings.TrimSuffix(line, "\n"))
		}
	}
	return len(p), nil
}

// does returns an operation with a result of type T, or what a T points to.
func does[T any](do func(context.Context, *command.Program, *console.Call) (T, error)) operation {
	t := reflect.TypeFor[T]()
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return operation{t, func(ctx context.Context, p *command.Program, c *console.Call) (any, error) { return do(ctx, p, c) }}
}

// ofRegions returns an operation whose only input are regions.
func ofRegions[T any](look func(context.Context, *command.Program, []string) (T, error)) operation {
	return does(func(ctx context.Context, p *command.Program, c *console.Call) (T, error) {
		return look(ctx, p, c.List("region"))
	})
}

// asks returns an operation whose inputs set the request that flags binds to flags, and name
// regions.
func asks[Q, T any](flags func(*Q, *pflag.FlagSet), do func(context.Context, *command.Program, *console.Call, *Q, []string) (T, error)) operation {
	return does(func(ctx context.Context, p *command.Program, c *console.Call) (none T, _ error) {
		var q Q
		var names []string
		f := pflag.NewFlagSet("", pflag.ContinueOnError)
		if flags(&q, f); f.Lookup("region") == nil {
			command.BindRegions(f, &names)
		}
		for in, text := range c.Flags() {
			if err := f.Set(in.Flag, text); err != nil {
				return none, term.Misused("%w", err)
			}
		}
		return do(ctx, p, c, &q, names)
	})
}

// document is the document that comes with a call.
func document(c *console.Call) command.Input {
	return command.Input{Name: c.Operation.Document, From: strings.NewReader(c.Document)}
}

func lines(most *int, f *pflag.FlagSet) { versions.LinesFlag(f, most) }

func verifies(k *fleet.Kind) operation {
	return ofRegions(func(ctx context.Context, p *command.Program, names []string) (*status.Convergence, error) {
		return status.Verify(ctx, p, k, names)
	})
}

func fetches(k *fleet.Kind) operation {
	return does(func(ctx context.Context, p *command.Program, c *console.Call) (*versions.Shown, error) {
		return versions.Fetch(ctx, p, k, c.List("region"), c.Text("version"))
	})
}

func lists(k *fleet.Kind) operation {
	return asks(lines, func(ctx context.Context, p *command.Program, _ *console.Call, most *int, names []string) ([]versions.HistoryEntry, error) {
		v, err := versions.ListChanges(ctx, p, k, names, *most)
		return v.List, err
	})
}

func compares(k *fleet.Kind) operation {
	return does(func(ctx context.Context, p *command.Program, c *console.Call) (*versions.VersionsReport, error) {
		return versions.Compare(ctx, p, k, c.List("region"), c.Text("from"), c.Text("to"), nil)
	})
}

// replays tests a document on the log that comes with a call, or what edges decided recently.
func replays(recent bool) operation {
	return asks((*rules.Trial).Flags, func(ctx context.Context, p *command.Program, c *console.Call, t *rules.Trial, names []string) (*rules.Tested, error) {
		t.Document, t.Regions, t.FromNodes = document(c), names, recent
		if !recent {
			t.Log = command.Input{Name: c.Operation.Upload, From: c.Log}
		}
		return t.Run(ctx, p)
	})
}

func decides(action clientlist.Action) operation {
	return asks((*clients.Options).Flags, func(ctx context.Context, p *command.Program, c *console.Call, o *clients.Options, names []string) ([]*clients.Changed, error) {
		o.Regions = names
		return clients.Decide(ctx, p, action, c.List("network"), o)
	})
}

// changes returns an operation that makes a change.
func changes(flags func(*change.Change, *pflag.FlagSet), do func(context.Context, *change.Change, *console.Call) (*change.Report, error)) operation {
	return asks(flags, func(ctx context.Context, p *command.Program, c *console.Call, x *change.Change, _ []string) (*change.Report, error) {
		x.Program = p
		return do(ctx, x, c)
	})
}

// applies applies the document of a call, or resumes a rollout.
func applies(resume bool) operation {
	flags := func(x *change.Change, f *pflag.FlagSet) { x.ApplyFlags(f, kinds.Rules) }
	return changes(flags, func(ctx context.Context, x *change.Change, c *console.Call) (*change.Report, error) {
		if resume {
			return x.Apply(ctx, kinds.Rules, nil)
		}
		return x.Apply(ctx, kinds.Rules, new(document(c)))
	})
}

func rollsBack(k *fleet.Kind) operation {
	flags := func(x *change.Change, f *pflag.FlagSet) { undo.RollbackFlags(x, f, new(string)) }
	return changes(flags, func(ctx context.Context, x *change.Change, c *console.Call) (*change.Report, error) {
		return undo.Rollback(ctx, x, k, c.Text("to"))
	})
}

func undoes(k *fleet.Kind) operation {
	return changes(undo.Flags, func(ctx context.Context, x *change.Change, _ *console.Call) (*change.Report, error) {
		return undo.Undo(ctx, x, k.Name)
	})
}

func sets(settings func(*console.Call) []string) operation {
	return changes(shedder.SetFlags, func(ctx context.Context, x *change.Change, c *console.Call) (*change.Report, error) {
		return shedder.Set(ctx, x, settings(c))
	})
}
