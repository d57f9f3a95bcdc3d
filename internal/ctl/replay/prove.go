package replay

import (
	"context"
	"errors"
	"io"

	"github.com/weir-edge/weir/pkg/limiter/memory"
)

// Request is a request of the log, for a model of another program.
type Request struct{ *entry }

// Path returns the path as sent.
func (r *Request) Path() []byte { return r.path }

// Query returns what follows the path, as sent.
func (r *Request) Query() []byte { return r.query }

// Decided returns when the request counts as having arrived, in Unix microseconds; it never
// runs backwards.
func (r *Request) Decided() int64 { return r.decided }

// Duration returns how long the request took, in microseconds; -1 if the log does not say.
func (r *Request) Duration() int64 { return r.duration }

// Proof is a comparison of a document with a model of another program.
type Proof struct {
	Requests, Skipped int64
	// OnlyModel are the requests that only the model refuses; OnlyRules, those that only
	// the rules refuse; BadRequests, those that the rules answer with 400.
	OnlyModel, OnlyRules, BadRequests int64
	Disagreements                     []Disagreement // the first ones
}

// Disagreement is a request that the two decide differently.
type Disagreement struct {
	*Example
	ByRules bool // the rules refuse it
}

// maxDisagreements is how many are kept.
const maxDisagreements = 10

// Prove replays the log r against c.Candidate and a model. It is an error if no line can be read.
func Prove(ctx context.Context, c Config, r io.Reader, refuses func(*Request) bool) (*Proof, error) {
	if c.MaxKeys <= 0 {
		c.MaxKeys = memory.DefaultMaxKeys
	}
	in, parse, b := newInput(r), &parser{config: &c}, &batch{entries: make([]entry, batchLines)}
	p := newPlayback(&c)
	p.candidate.examples = true
	out := &Proof{}
	for b.err == nil {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		in.fill(b, parse)
		out.Skipped += b.skipped
		p.play(b)
		for i := range b.entries[:b.n] {
			out.compare(&b.entries[i], &p.candidate.judged[i], refuses(&Request{&b.entries[i]}))
		}
	}
	switch {
	case b.err != io.EOF:
		return nil, b.err
	case out.Requests == 0:
		return nil, errors.New("no line of the log can be read")
	}
	return out, nil
}

func (p *Proof) compare(e *entry, rules *judgement, model bool) {
	p.Requests++
	x := rules.example
	switch {
	case rules.verdict == badRequest:
		p.BadRequests++
		return
	case model == (rules.verdict == limited):
		return
	case model:
		p.OnlyModel++
		x = newExample(e)
	default:
		p.OnlyRules++
	}
	if len(p.Disagreements) < maxDisagreements {
		p.Disagreements = append(p.Disagreements, Disagreement{x, !model})
	}
}
