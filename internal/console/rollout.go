package console

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// rollout is a change that may take hours: an apply with a canary or in waves. It runs
// independently of the page that began it, so anyone who opens the page can watch and halt it.
type rollout struct {
	server *Server

	mu      sync.Mutex
	now     Rollout
	stop    context.CancelFunc
	ended   chan struct{} // closed when it has ended
	changed chan struct{} // closed at the next change of now
}

// Rollout is the rollout's state.
type Rollout struct {
	// State is none, running, halting, done, halted (the regions may differ; resuming
	// continues) or failed.
	State   string            `json:"state"`
	Command string            `json:"command"`
	By      string            `json:"by"`
	Inputs  map[string]string `json:"inputs"` // the inputs that it began with, except the document
	Began   time.Time         `json:"began,omitzero"`
	Ended   time.Time         `json:"ended,omitzero"`
	// Lines are its messages, oldest first.
	Lines []string `json:"lines"`
	// Detail says why it halted or failed. Reason is that of the error.
	Detail string `json:"detail,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Result is that of rules.apply.
	Result json.RawMessage `json:"result"`
}

// The states of a rollout.
const (
	rolloutNone    = "none"
	rolloutRunning = "running"
	rolloutHalting = "halting"
	rolloutDone    = "done"
	rolloutHalted  = "halted"
	rolloutFailed  = "failed"
)

// The values of Operation.Rollout.
const (
	lookAtRollout = "look"
	startRollout  = "start"
	haltRollout   = "halt"
	resumeRollout = "resume"
)

const (
	// quickly is how long a start waits for an early refusal before it answers.
	quickly = time.Second
	// mostLines bounds the messages that are kept.
	mostLines = 200
	// cleanup is how long the rollout may take to withdraw its canary when the console stops.
	cleanup = 15 * time.Second
)

func newRollout(s *Server) *rollout {
	return &rollout{server: s, now: Rollout{State: rolloutNone, Inputs: map[string]string{}, Lines: []string{}}, changed: make(chan struct{})}
}

// serve handles a request about the rollout. Halting a rollout that has ended does nothing.
func (x *rollout) serve(w http.ResponseWriter, r *http.Request, o *Operation) {
	v, document, ok := x.server.accept(w, r, o)
	if !ok {
		return
	}
	person := personOf(r)
	var began bool
	switch o.Rollout {
	case startRollout, resumeRollout:
		began = x.begin(&Call{Operation: o, User: person.Name, MayHalt: o.mayHalt(person), values: v, Document: document, Note: x.receive})
	case haltRollout:
		if err := x.halt(person.Name, o.mayHalt(person)); err != nil {
			x.server.forbid(w, o, person, err)
			return
		}
	}
	if (o.Rollout == startRollout || o.Rollout == resumeRollout) && !began {
		refuseFor(w, http.StatusConflict, "conflict", "nothing was begun: "+x.busy())
		return
	}
	if began {
		select {
		case <-x.end():
		case <-time.After(quickly):
		case <-r.Context().Done():
		}
	}
	now, _ := x.look()
	if began && now.State == rolloutFailed {
		code := statusOf(now.Reason)
		reply(w, code, Problem{Type: "about:blank", Title: http.StatusText(code), Status: code, Detail: now.Detail, Reason: now.Reason, Command: now.Command, Notes: now.Lines, Result: now.Result})
		return
	}
	reply(w, http.StatusOK, Answer{Command: now.Command, Result: encode(now)})
}

// begin starts a rollout. It reports false if one is running or the console is stopping.
func (x *rollout) begin(c *Call) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.runs() || x.server.ctx.Err() != nil {
		return false
	}
	inputs := map[string]string{}
	for name, list := range c.values {
		inputs[name] = strings.Join(list, ",")
	}
	x.ended = make(chan struct{})
	x.now = Rollout{State: rolloutRunning, Command: c.command(), By: c.User, Inputs: inputs, Began: time.Now().UTC(), Lines: []string{}}
	x.wake()
	var ctx context.Context
	ctx, x.stop = context.WithCancel(x.server.ctx)
	x.server.Log.Info("rollout began", "command", x.now.Command, "user", c.User)
	go x.run(ctx, c)
	return true
}

func (x *rollout) runs() bool { return x.now.State == rolloutRunning || x.now.State == rolloutHalting }

// busy says why begin refused.
func (x *rollout) busy() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.runs() {
		return "the console is ending"
	}
	return fmt.Sprintf("a rollout of %s is in progress: %s; halt it first, or wait", x.now.By, x.now.Command)
}

// halt interrupts it, as Ctrl-C does in a shell, unless may refuses that for its regions.
func (x *rollout) halt(by string, may func(regions []string) error) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := may(strings.FieldsFunc(x.now.Inputs[inRegion.Name], func(r rune) bool { return r == ',' })); err != nil {
		return err
	}
	if x.now.State != rolloutRunning {
		return nil
	}
	x.now.State = rolloutHalting
	x.add("halted by " + by)
	x.stop()
	x.server.Log.Info("rollout is halted", "command", x.now.Command, "user", by)
	x.wake()
	return nil
}

func (x *rollout) run(ctx context.Context, c *Call) {
	found, err := x.server.Do(ctx, c)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.stop()
	result, unfit := resultOf(found)
	x.now.Result = result
	switch x.now.Reason, x.now.Detail = explain(cmp.Or(err, unfit)); x.now.Reason {
	case "":
		x.now.State = rolloutDone
	case reasonPartial, reasonInterrupted:
		x.now.State = rolloutHalted
	default:
		x.now.State = rolloutFailed
	}
	x.now.Ended = time.Now().UTC()
	x.server.changed(c, err, x.now.Ended.Sub(x.now.Began))
	x.wake()
	close(x.ended)
}

// receive keeps one line of progress.
func (x *rollout) receive(line string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.add(strings.TrimSpace(line))
	x.wake()
}

// add appends a line. A countdown replaces the one before: a soak of a day prints 17,280 of
// them.
func (x *rollout) add(line string) {
	const countdown = " left"
	if last := len(x.now.Lines) - 1; last >= 0 && strings.HasSuffix(line, countdown) && strings.HasSuffix(x.now.Lines[last], countdown) {
		x.now.Lines = append(slices.Clone(x.now.Lines[:last]), line)
		return
	}
	x.now.Lines = append(slices.Clone(x.now.Lines[max(0, len(x.now.Lines)+1-mostLines):]), line)
}

// wake wakes the followers. The caller holds the mutex.
func (x *rollout) wake() {
	close(x.changed)
	x.changed = make(chan struct{})
}

func (x *rollout) look() (now Rollout, changed <-chan struct{}) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.now, x.changed
}

// end returns a channel that is closed when the rollout has ended.
func (x *rollout) end() <-chan struct{} {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.ended
}

// follow reports each state until ctx is done.
func (x *rollout) follow(ctx context.Context, report func(event)) {
	for {
		now, changed := x.look()
		report(event{"look", encode(now)})
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

// wait lets the rollout that the console's end interrupted withdraw its canary.
func (x *rollout) wait() {
	if ended := x.end(); ended != nil {
		select {
		case <-ended:
		case <-time.After(cleanup):
		}
	}
}
