package console

import (
	"bytes"
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
	ended   chan struct{} // closed when the command has ended
	changed chan struct{} // closed at the next change of now
}

// launch is what to run.
type launch struct {
	operation *Operation
	values    values
	document  string
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
	// Lines are the command's messages, oldest first.
	Lines []string `json:"lines"`
	// Detail says why it halted or failed. Reason comes from regionctl.
	Detail string `json:"detail,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Result is the output of rules apply.
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
	person := personOf(r).Name
	var began bool
	switch o.Rollout {
	case startRollout, resumeRollout:
		began = x.begin(&launch{o, v, document}, person)
	case haltRollout:
		x.halt(person)
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
		code := statusOf(map[string]int{"usage": exitUsage, "conflict": exitConflict}[now.Reason])
		reply(w, code, Problem{Type: "about:blank", Title: http.StatusText(code), Status: code, Detail: now.Detail, Reason: now.Reason, Command: now.Command, Notes: now.Lines, Result: now.Result})
		return
	}
	reply(w, http.StatusOK, Answer{Command: now.Command, Result: encode(now)})
}

// begin starts a rollout. It reports false if one is running or the console is stopping.
func (x *rollout) begin(l *launch, by string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.runs() || x.server.ctx.Err() != nil {
		return false
	}
	inputs := map[string]string{}
	for name, list := range l.values {
		inputs[name] = strings.Join(list, ",")
	}
	x.ended = make(chan struct{})
	x.now = Rollout{State: rolloutRunning, Command: l.operation.command(l.values), By: by, Inputs: inputs, Began: time.Now().UTC(), Lines: []string{}}
	x.wake()
	var ctx context.Context
	ctx, x.stop = context.WithCancel(x.server.ctx)
	x.server.Log.Info("rollout began", "command", x.now.Command, "user", by)
	go x.run(ctx, l, by)
	return true
}

func (x *rollout) runs() bool { return x.now.State == rolloutRunning || x.now.State == rolloutHalting }

// regions returns those that the rollout was begun for; none: all.
func (x *rollout) regions() []string {
	now, _ := x.look()
	return strings.FieldsFunc(now.Inputs[inRegion.Name], func(r rune) bool { return r == ',' })
}

// busy says why begin refused.
func (x *rollout) busy() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.runs() {
		return "the console is ending"
	}
	return fmt.Sprintf("a rollout of %s is in progress: %s; halt it first, or wait", x.now.By, x.now.Command)
}

// halt interrupts the command, as Ctrl-C does in a shell.
func (x *rollout) halt(by string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.now.State != rolloutRunning {
		return
	}
	x.now.State = rolloutHalting
	x.add("halted by " + by)
	x.stop()
	x.server.Log.Info("rollout is halted", "command", x.now.Command, "user", by)
	x.wake()
}

func (x *rollout) run(ctx context.Context, l *launch, by string) {
	var out bytes.Buffer
	status := x.server.Run(ctx, by, l.operation.arguments(l.values), strings.NewReader(l.document), &out, &lines{to: func(line []byte) { x.receive(string(line)) }})
	x.mu.Lock()
	defer x.mu.Unlock()
	x.stop()
	if result := bytes.TrimSpace(out.Bytes()); json.Valid(result) {
		x.now.Result = result
	}
	x.now.State = map[int]string{exitGood: rolloutDone, exitPartial: rolloutHalted, exitInterrupted: rolloutHalted}[status]
	if x.now.State == "" {
		x.now.State = rolloutFailed
	}
	x.now.Ended = time.Now().UTC()
	x.server.Log.Info("changed", "operation", l.operation.ID, "command", x.now.Command, "user", by, "exit_status", status, "took", x.now.Ended.Sub(x.now.Began).Round(time.Millisecond))
	x.wake()
	close(x.ended)
}

// receive keeps one line of the command's output.
func (x *rollout) receive(line string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if _, message, reason := notesOf(line); message != "" {
		x.now.Detail, x.now.Reason = message, reason
	} else if line = strings.TrimSpace(line); line != "" {
		x.add(line)
	}
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
