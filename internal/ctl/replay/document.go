package replay

import (
	"container/heap"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/memory"
	"github.com/weir-edge/weir/pkg/limiter/rules"
	"github.com/weir-edge/weir/pkg/paths"
)

// document is a rule document under replay, with its counters.
type document struct {
	set      *rules.Set
	mode     string // server.paths
	store    *memory.Store
	maxKeys  int
	now      int64 // the store's current time
	match    rules.Match
	other    rules.Match // of another reading of the path
	paths    paths.Readings
	normal   []byte // the path, normalized
	decision limiter.Decision
	request  request
	slots    endings[slot]

	judged   []judgement // of the batch
	refused  []int       // backing array of their refused
	examples bool        // whether an example is wanted for each limited request

	outcome Outcome // without its rules
	tallies []ruleTally
	budget  budget
	keys    budget
	full    bool // the store was full, or nearly so
}

// judgement is what the document decides about one request.
type judgement struct {
	verdict verdict
	refused []int // the rules that refused it, by index
	example *Example
}

type verdict uint8

const (
	passed verdict = iota
	limited
	badRequest
)

// ruleTally is what one rule did. Shadow rules count clients as enforced ones do.
type ruleTally struct {
	checks, limited, shadow int64
	unreturned              bool // took a slot for a request of unknown duration
	clients                 tally
}

func newDocument(set *rules.Set, c *Config) *document {
	d := &document{set: set, mode: c.Paths, maxKeys: c.MaxKeys, budget: budget{left: c.MaxKeys}, keys: budget{left: min(c.MaxKeys, mostKeys)}, tallies: make([]ruleTally, len(set.Rules()))}
	d.store = memory.New(memory.Config{MaxKeys: c.MaxKeys, Clock: func() int64 { return d.now }})
	d.request.present = map[rules.KeyPart]bool{}
	return d
}

// judge decides the requests of a batch.
func (d *document) judge(entries []entry) {
	clear(d.judged)
	d.judged, d.refused = d.judged[:0], d.refused[:0]
	for i := range entries {
		before := len(d.refused)
		j := judgement{verdict: d.decide(&entries[i])}
		j.refused = d.refused[before:len(d.refused):len(d.refused)]
		if j.verdict == limited && d.examples {
			j.example = d.example(&entries[i], slices.IndexFunc(d.match.Rules, func(c *rules.Compiled) bool { return c.Index == j.refused[0] }))
		}
		d.judged = append(d.judged, j)
	}
	// The store makes room within each of its parts, which do not fill evenly.
	d.full = d.full || d.store.Len() >= d.maxKeys-d.maxKeys/10
}

// decide decides one request, and appends the rules that refuse it to d.refused.
func (d *document) decide(e *entry) verdict {
	d.now = e.decided
	d.release()
	d.request.entry = e
	if err := d.matchReadings(e); err != nil {
		if d.outcome.BadRequests++; d.outcome.BadRequests == 1 {
			d.outcome.FirstBadRequest = newExample(e)
			d.outcome.FirstBadRequest.Reason = err.Error()
		}
		return badRequest
	}
	if len(d.match.Checks) == 0 {
		d.outcome.Passed++
		return passed
	}
	_ = d.store.Take(context.Background(), d.match.Checks, &d.decision) // never fails
	for i := range d.match.Checks {
		d.count(e, i)
	}
	if !d.decision.Allowed {
		d.outcome.Limited++
		return limited
	}
	d.outcome.Passed++
	d.holdSlots(e)
	return passed
}

var (
	errDisagree  = errors.New("the path can be read in several ways that are not limited alike" + paths.Plainly)
	errAmbiguous = errors.New("the path can be read in several ways" + paths.Plainly)
)

// matchReadings finds the checks that hold for every reading of a path, as a node does
// by its server.paths.
func (d *document) matchReadings(e *entry) (err error) {
	path := e.path
	if d.mode == "normalized" {
		if d.normal, err = paths.AppendNormal(d.normal[:0], path); err != nil {
			return err
		}
		path = d.normal
	}
	if err := d.paths.Read(path); err != nil {
		return err
	}
	if d.mode == "strict" && d.paths.Len() > 1 {
		return errAmbiguous
	}
	d.request.path = d.paths.At(0)
	if err := d.set.Match(&d.request, uint64(e.line), &d.match); err != nil {
		return err
	}
	for i := 1; i < d.paths.Len(); i++ {
		d.request.path = d.paths.At(i)
		if err := d.set.Match(&d.request, uint64(e.line), &d.other); err != nil {
			return err
		}
		if !d.match.SameChecks(&d.other) {
			return errDisagree
		}
	}
	return nil
}

// count records the answer to the i-th check.
func (d *document) count(e *entry, i int) {
	c, r := &d.match.Checks[i], &d.decision.Results[i]
	t := &d.tallies[d.match.Rules[i].Index]
	t.checks++
	switch {
	case r.Allowed:
		return
	case r.Refuses(c):
		t.limited++
		d.refused = append(d.refused, d.match.Rules[i].Index)
	default:
		t.shadow++
	}
	t.clients.add(&d.budget, e, func() *Example { return d.example(e, i) })
	if parts := d.match.Rules[i].Key; len(parts) != 1 || parts[0].Kind != rules.ByClient {
		t.clients.addKey(&d.keys, c.Key)
	}
}

// example describes the request that the i-th check refused.
func (d *document) example(e *entry, i int) *Example {
	c, r := &d.match.Checks[i], &d.decision.Results[i]
	x := newExample(e)
	x.Rule, x.Key = d.match.Rules[i].ID, string(c.Key)
	x.Limit = c.Limit.Limit
	if c.Limit.Algorithm != limiter.Concurrency { // its window is only how long a lost slot lasts
		x.Window = c.Limit.Window.String()
	}
	if r.RetryAfter > 0 {
		x.RetryAfter = r.RetryAfter.Round(time.Millisecond).String()
	}
	return x
}

// slot is a concurrency slot that comes free when its request ends.
type slot struct {
	check  limiter.Check
	result limiter.Result
}

// holdSlots schedules the return of the slots that the last request took. A slot
// whose request outlasts the rule's window expires in the store.
func (d *document) holdSlots(e *entry) {
	for i := range d.match.Checks {
		c, r := d.match.Checks[i], d.decision.Results[i]
		if !r.Charged || c.Limit.Algorithm != limiter.Concurrency {
			continue
		}
		if e.duration < 0 {
			d.tallies[d.match.Rules[i].Index].unreturned = true
		}
		duration := max(0, e.duration)
		if duration >= c.Limit.Window.Microseconds() {
			continue
		}
		c.Key = slices.Clone(c.Key)
		heap.Push(&d.slots, ending[slot]{d.now + duration, slot{c, r}})
	}
}

// release returns the slots of the requests that have ended by now.
func (d *document) release() {
	for len(d.slots) > 0 && d.slots[0].at <= d.now {
		r := heap.Pop(&d.slots).(ending[slot]).frees
		_ = d.store.Return(context.Background(), []limiter.Check{r.check}, &limiter.Decision{Results: []limiter.Result{r.result}})
	}
}

// request is an entry that records which names the rules ask for, and whether the log ever
// carries them.
type request struct {
	*entry
	path    []byte // the reading in question
	present map[rules.KeyPart]bool
	decoded []byte // the query parameter asked for last
}

var _ rules.Request = (*request)(nil)

func (q *request) Path() []byte { return q.path }

func (q *request) note(kind rules.KeyKind, name string, n int) {
	part := rules.KeyPart{Kind: kind, Name: name}
	if carried, known := q.present[part]; !known || n > 0 && !carried {
		q.present[part] = n > 0
	}
}

func (q *request) Header(name string) ([]byte, int) {
	value, n := q.entry.Header(name)
	q.note(rules.ByHeader, name, n)
	return value, n
}

func (q *request) Cookie(name string) ([]byte, int) {
	value, n := q.entry.Cookie(name)
	q.note(rules.ByCookie, name, n)
	return value, n
}

func (q *request) Query(name string) ([]byte, int) {
	value, n := paths.AppendQuery(q.decoded[:0], q.query, name)
	q.decoded = value
	q.note(rules.ByQuery, name, n)
	return value, n
}
