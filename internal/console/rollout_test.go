package console

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/console/access"
)

// rolling is a server whose rollouts say lines and end as the test says.
type rolling struct {
	*Server
	t     *testing.T
	say   chan string
	end   chan error
	calls chan ran
}

func newRolling(t *testing.T) *rolling {
	x := &rolling{Server: newServer(t, &recorder{}), t: t, say: make(chan string), end: make(chan error), calls: make(chan ran, 10)}
	x.Do = func(ctx context.Context, c *Call) (any, error) {
		x.calls <- ran{user: c.User, command: c.command(), document: c.Document}
		for {
			select {
			case line := <-x.say:
				c.Note(line)
			case err := <-x.end:
				return map[string]string{"version": "0123456789ab"}, err
			case <-ctx.Done():
				return nil, failure{reasonInterrupted, "halted after wave 1 of 2"}
			}
		}
	}
	return x
}

// until follows the rollout until is returns true.
func (x *rolling) until(is func(Rollout) bool) Rollout {
	x.t.Helper()
	for {
		now, changed := x.rollout.look()
		if is(now) {
			return now
		}
		select {
		case <-changed:
		case <-x.t.Context().Done():
			x.t.Fatal("the test ended")
		}
	}
}

func (x *rolling) state(want string) Rollout {
	x.t.Helper()
	return x.until(func(r Rollout) bool { return r.State == want })
}

func (x *rolling) post(path, body string) (int, string) {
	w := ask(x.Server, "POST", Prefix+"/rules/rollout/"+path, body)
	return w.Code, w.Body.String()
}

const inWaves = `{"document": "rules: []", "waves": "1,rest", "message": "INC-1"}`

// A rollout continues when the page that began it is closed. Every page shows its state. Only
// one runs at a time. After a halt, resuming runs it with the same arguments.
func TestRollout(t *testing.T) {
	x := newRolling(t)
	now, _ := x.rollout.look()
	require.Equal(t, rolloutNone, now.State)
	ctx, cancel := context.WithCancel(t.Context())
	answered := make(chan struct{})
	go func() { // the page closes before the answer
		defer close(answered)
		r := httptest.NewRequestWithContext(ctx, "POST", "http://"+place.String()+Prefix+"/rules/rollout/start", strings.NewReader(inWaves))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set(access.HeaderToken, token(x.Server))
		x.Handler().ServeHTTP(httptest.NewRecorder(), r)
	}()
	call := <-x.calls
	cancel()
	<-answered
	require.Equal(t, ran{"ana@desk", "regionctl rules apply rules.yaml --waves 1,rest --message INC-1", "rules: []", ""}, call)
	x.say <- "wave 1 of 2: eu-west"
	for i := range 3 {
		x.say <- fmt.Sprintf("wave 1 of 2: 10 requests; %d s left", 3-i)
	}
	now = x.until(func(r Rollout) bool { return len(r.Lines) == 2 && strings.Contains(r.Lines[1], "1 s left") })
	require.Equal(t, []string{"wave 1 of 2: eu-west", "wave 1 of 2: 10 requests; 1 s left"}, now.Lines, "a countdown is one line")
	require.Equal(t, []any{rolloutRunning, "ana@desk", "1,rest", "INC-1"}, []any{now.State, now.By, now.Inputs["waves"], now.Inputs["message"]})

	status, text := x.post("start", inWaves)
	require.Equal(t, 409, status)
	require.Contains(t, text, "a rollout of ana@desk is in progress: regionctl rules apply rules.yaml --waves 1,rest")

	status, _ = x.post("halt", "{}")
	require.Equal(t, 200, status)
	now = x.state(rolloutHalted)
	require.Equal(t, []string{"halted after wave 1 of 2", "interrupted"}, []string{now.Detail, now.Reason})
	require.Contains(t, now.Lines, "halted by ana@desk")
	status, _ = x.post("halt", "{}")
	require.Equal(t, 200, status, "halting twice does no harm")

	began := make(chan int)
	go func() { status, _ := x.post("resume", "{}"); began <- status }()
	require.Equal(t, ran{user: call.user, command: "regionctl rules apply --resume"}, <-x.calls, "the fleet knows the document and the flags")
	x.end <- nil
	require.Equal(t, 200, <-began)
	now = x.state(rolloutDone)
	require.Empty(t, now.Detail)
	require.JSONEq(t, `{"version": "0123456789ab"}`, string(now.Result))
	w := ask(x.Server, "GET", Prefix+"/rules/rollout", "")
	var a struct{ Result Rollout }
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &a))
	require.Equal(t, rolloutDone, a.Result.State)
}

// A start that is refused immediately answers with the refusal. In the bubble, "immediately"
// does not depend on the machine.
func TestRolloutRefused(t *testing.T) { synctest.Test(t, testRolloutRefused) }

func testRolloutRefused(t *testing.T) {
	c := &recorder{note: "warning: w", err: failure{reasonConflict, "nothing was changed: eu-west runs another"}}
	s := newServer(t, c)
	w := ask(s, "POST", Prefix+"/rules/rollout/start", inWaves)
	require.Equal(t, 409, w.Code, "%s", w.Body)
	var p Problem
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &p))
	require.Equal(t, []any{"nothing was changed: eu-west runs another", "conflict", []string{"warning: w"}}, []any{p.Detail, p.Reason, p.Notes})
	now, _ := s.rollout.look()
	require.Equal(t, rolloutFailed, now.State)
}

// The rollout keeps a bounded part of what it says.
func TestRolloutIsBounded(t *testing.T) {
	s := newServer(t, &recorder{})
	for i := range 3 * mostLines {
		s.rollout.receive(fmt.Sprint("line ", i))
	}
	now, _ := s.rollout.look()
	require.Len(t, now.Lines, mostLines)
	require.Equal(t, fmt.Sprint("line ", 3*mostLines-1), now.Lines[mostLines-1])
}

// Starting, halting and resuming require a role, and record the caller's name.
func TestRolloutNamesPeople(t *testing.T) {
	c := &recorder{out: "{}", hold: true, err: failure{reasonInterrupted, "interrupted"}}
	s := behindProxy(t, c)
	do := func(path, body, name, groups string) int {
		return ask(s, "POST", Prefix+"/rules/rollout/"+path, body, through(s, name, groups)).Code
	}
	require.Equal(t, 403, do("start", inWaves, "bob@example.com", "sre"))
	require.Equal(t, 200, do("start", inWaves, "ana@example.com", "leads"))
	require.Equal(t, 403, do("halt", "{}", "carol@example.com", ""))
	require.Equal(t, 200, do("halt", "{}", "bob@example.com", "sre"))
	<-s.rollout.end()
	now, _ := s.rollout.look()
	require.Contains(t, now.Lines, "halted by bob@example.com")
	require.Equal(t, "ana@example.com", c.calls[0].user)
	require.Equal(t, 403, do("resume", "{}", "bob@example.com", "sre"))
	c.mu.Lock()
	c.hold = false
	c.mu.Unlock()
	require.Equal(t, 200, do("resume", "{}", "root@example.com", ""))
	<-s.rollout.end()
	require.Equal(t, "root@example.com", c.calls[1].user)
}

// When the console stops, it interrupts the rollout and waits for its cleanup.
func TestRolloutEndsWithTheConsole(t *testing.T) {
	x := newRolling(t)
	ctx, cancel := context.WithCancel(t.Context())
	x.ctx = ctx
	call := &Call{Operation: &Operation{}, User: "ana"}
	require.True(t, x.rollout.begin(call))
	<-x.calls
	cancel()
	x.rollout.wait()
	now, _ := x.rollout.look()
	require.Equal(t, rolloutHalted, now.State)
	require.False(t, x.rollout.begin(call))
}
