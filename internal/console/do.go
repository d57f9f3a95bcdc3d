package console

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/weir-edge/weir/internal/console/access"
)

// Prefix begins every path of the API.
const Prefix = "/api/v1"

// mostBody bounds a request's body. It holds a document of 2 MiB, regionctl's longest, whose quotes
// and ends of lines take two bytes each in JSON.
const mostBody = 4<<20 + 64<<10

// Call is one use of an operation.
type Call struct {
	Operation *Operation
	User      string // in whose name
	// MayHalt refuses to halt a rollout that runs in these regions.
	MayHalt  func(regions []string) error
	Document string // its text
	Log      io.Reader
	// Note takes each warning, and each line of progress.
	Note func(line string)
	// Look takes each look of an operation that streams.
	Look   func(any) error
	values values
}

func (c *Call) List(input string) []string { return c.values[input] }

// Text returns the only value of an input, or "".
func (c *Call) Text(input string) string { return strings.Join(c.values[input], "") }

// Flags returns the inputs that are flags of the command, with their values.
func (c *Call) Flags() iter.Seq2[*Input, string] { return c.Operation.flags(c.values) }

// Do performs an operation. It may return both a result and an error, if a part is missing or a
// change is partly done. The error's Reason() is failed, usage, partial, conflict, interrupted or
// unreachable.
type Do func(ctx context.Context, c *Call) (result any, err error)

// The reasons that have answers of their own.
const (
	reasonUsage       = "usage"
	reasonPartial     = "partial"
	reasonConflict    = "conflict"
	reasonInterrupted = "interrupted"
	reasonRegions     = "regions"
)

// explain returns an error's reason and message, "" for none.
func explain(err error) (reason, message string) {
	var known interface{ Reason() string }
	var not *access.Forbidden
	switch {
	case err == nil:
		return "", ""
	case errors.As(err, &not):
		return reasonRegions, err.Error()
	case errors.As(err, &known):
		return known.Reason(), err.Error()
	}
	return "failed", err.Error()
}

// Answer is an operation's result.
type Answer struct {
	// Command is the equivalent shell command.
	Command string          `json:"command"`
	Result  json.RawMessage `json:"result"`
	// Notes are warnings, and the progress of a change.
	Notes []string `json:"notes,omitempty"`
	// Incomplete says what is missing: regions that did not answer, edges that lag.
	Incomplete string `json:"incomplete,omitempty"`
}

// Problem answers every request that is refused or fails (RFC 9457).
type Problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	// Reason comes from regionctl: failed, usage, conflict, interrupted or unreachable, which
	// partial remedies. The console adds login, if logging in may help, token, if the request lacks the session's token,
	// and regions, if the person may do this in Regions only.
	Reason  string   `json:"reason,omitempty"`
	Regions []string `json:"regions,omitempty"`
	// Login is the login page, with Reason login.
	Login   string          `json:"login,omitempty"`
	Command string          `json:"command,omitempty"`
	Notes   []string        `json:"notes,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
}

const (
	reasonToken = "token"
	needsToken  = "this changes something and needs the header " + access.HeaderToken + " with the token of GET " + Prefix + "/session"
)

func (s *Server) do(w http.ResponseWriter, r *http.Request, o *Operation) {
	if o.Upload != "" { // uploads change nothing, so they need no token
		s.upload(w, r, o)
		return
	}
	v, document, ok := s.accept(w, r, o)
	if !ok {
		return
	}
	person := personOf(r)
	turns, ctx, most := s.reads, r.Context(), readTime
	if o.Writes { // it continues when the page is closed
		turns, ctx, most = s.changes, context.WithoutCancel(ctx), writeTime
	}
	end, ok := turns.take(r.Context(), person.Name)
	if !ok {
		w.Header().Set("Retry-After", "1")
		refuse(w, http.StatusServiceUnavailable, "too many other requests are in progress; ask again")
		return
	}
	defer end()
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	began := time.Now()
	var notes []string
	c := &Call{Operation: o, User: person.Name, MayHalt: o.mayHalt(person), values: v, Document: document, Note: func(line string) { notes = append(notes, line) }}
	result, err := s.Do(ctx, c)
	if o.Writes {
		s.changed(c, err, time.Since(began))
	}
	answer(w, c, result, notes, err)
}

// changed logs a change.
func (s *Server) changed(c *Call, err error, took time.Duration) {
	reason, _ := explain(err)
	s.Log.Info("changed", "operation", c.Operation.ID, "command", c.command(), "user", c.User, "outcome", cmp.Or(reason, "done"), "took", took.Round(time.Millisecond))
}

func (c *Call) command() string { return c.Operation.command(c.values) }

// accept returns a request's values and document if the request is allowed. Otherwise it answers
// the request.
func (s *Server) accept(w http.ResponseWriter, r *http.Request, o *Operation) (v values, document string, ok bool) {
	if o.Writes && !mayWrite(w, r) {
		return nil, "", false
	}
	v, document, err := o.read(w, r)
	if err == nil {
		err = o.check(v)
	}
	var long *http.MaxBytesError
	switch {
	case errors.As(err, &long):
		refuse(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("the body must be at most %d bytes", mostBody))
		return nil, "", false
	case err != nil:
		refuse(w, http.StatusBadRequest, err.Error())
		return nil, "", false
	}
	return v, document, s.permit(w, r, o, v)
}

// answer converts what an operation returned into an HTTP answer.
func answer(w http.ResponseWriter, c *Call, found any, notes []string, err error) {
	result, unfit := resultOf(found)
	reason, message := explain(cmp.Or(err, unfit))
	verdict := c.Operation.Verdict && len(result) > len("[]") && reason != reasonInterrupted
	if reason == "" || reason == reasonPartial || verdict {
		if reason == reasonUsage { // the result is complete; the message is part of it
			notes, message = append(notes, message), ""
		}
		reply(w, http.StatusOK, Answer{c.command(), result, notes, message})
		return
	}
	code := statusOf(reason)
	reply(w, code, Problem{Type: "about:blank", Title: http.StatusText(code), Status: code, Detail: message, Reason: reason, Command: c.command(), Notes: notes, Result: result})
}

// resultOf returns a result as JSON, nil for none.
func resultOf(found any) (json.RawMessage, error) {
	text, err := json.Marshal(found)
	if err != nil || string(text) == "null" {
		return nil, err
	}
	return text, nil
}

// statusOf maps the reason of a failure to an HTTP status.
func statusOf(reason string) int {
	statuses := map[string]int{reasonUsage: http.StatusUnprocessableEntity, reasonConflict: http.StatusConflict, reasonInterrupted: http.StatusServiceUnavailable, reasonRegions: http.StatusForbidden}
	return cmp.Or(statuses[reason], http.StatusInternalServerError)
}

// read reads a request's values and document.
func (o *Operation) read(w http.ResponseWriter, r *http.Request) (v values, document string, err error) {
	v = values{}
	for _, in := range o.Inputs {
		if text := r.PathValue(in.Name); text != "" {
			v[in.Name] = []string{text}
		}
	}
	if o.Method == http.MethodGet {
		for name, list := range r.URL.Query() {
			if !o.takes(name) {
				return nil, "", o.unknown(name)
			}
			v[name] = slices.DeleteFunc(list, func(text string) bool { return text == "" })
		}
		return v, "", nil
	}
	if r.URL.RawQuery != "" {
		return nil, "", errors.New("what a POST is about goes into its body, a JSON object")
	}
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind != "application/json" {
		return nil, "", errors.New("Content-Type: must be application/json")
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, mostBody))
	if err != nil {
		return nil, "", err
	}
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(body, &fields); err != nil {
		return nil, "", fmt.Errorf("the body must be a JSON object: %w", err)
	}
	for name, raw := range fields {
		if name == "document" && o.Document != "" {
			if err := json.Unmarshal(raw, &document); err != nil {
				return nil, "", errors.New("document: must be a string, the text of the document")
			}
			continue
		}
		i := slices.IndexFunc(o.Inputs, func(in Input) bool { return in.Name == name })
		if i < 0 || strings.Contains(o.Path, "{"+name+"}") {
			return nil, "", o.unknown(name)
		}
		if v[name], err = o.Inputs[i].decode(raw); err != nil {
			return nil, "", err
		}
	}
	if o.Document != "" && fields["document"] == nil {
		return nil, "", errors.New("document: is missing; it is the text of the document")
	}
	return v, document, nil
}

func (in *Input) decode(raw json.RawMessage) (list []string, err error) {
	switch in.Shape {
	case List:
		err = json.Unmarshal(raw, &list)
		if err != nil {
			err = fmt.Errorf("%s: must be a list of strings", in.Name)
		}
		return list, err
	case Bool:
		var is bool
		if err := json.Unmarshal(raw, &is); err != nil {
			return nil, fmt.Errorf("%s: must be true or false", in.Name)
		}
		return []string{fmt.Sprint(is)}, nil
	}
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		return nil, fmt.Errorf("%s: must be a string", in.Name)
	}
	if text == "" {
		return nil, nil
	}
	return []string{text}, nil
}

func (o *Operation) takes(name string) bool {
	return slices.ContainsFunc(o.Inputs, func(in Input) bool { return in.Name == name })
}

func (o *Operation) unknown(name string) error {
	var known []string
	for _, in := range o.Inputs {
		known = append(known, in.Name)
	}
	if o.Document != "" {
		known = append(known, "document")
	}
	if o.Upload != "" {
		known = append(known, "log")
	}
	if len(known) == 0 {
		return fmt.Errorf("%s: unknown; it takes no parameters", clip(name))
	}
	return fmt.Errorf("%s: unknown; this takes %s", clip(name), strings.Join(known, ", "))
}

// reply writes a JSON answer.
func reply(w http.ResponseWriter, status int, v any) {
	kind := "application/json"
	if _, is := v.(Problem); is {
		kind = "application/problem+json"
	}
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(status)
	_, _ = w.Write(append(encode(v), '\n')) // fails only if the client hung up
}

func refuse(w http.ResponseWriter, status int, detail string) { refuseFor(w, status, "", detail) }

func refuseFor(w http.ResponseWriter, status int, reason, detail string) {
	reply(w, status, Problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: detail, Reason: reason})
}
