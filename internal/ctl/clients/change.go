package clients

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/weir-edge/weir/internal/clientlist"
	"github.com/weir-edge/weir/internal/ctl/command"
	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/kinds"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// Changed is what a change of the networks prints about a region.
type Changed struct {
	Region  string `json:"region"`
	Changed int    `json:"changed"` // networks
	Version string `json:"version,omitempty"`
	// Obey are the nodes that have the version; Behind those that have not received it, and
	// Without those that do not follow the networks.
	Obey    int      `json:"obey"`
	Behind  []string `json:"behind,omitempty"`
	Without []string `json:"without,omitempty"`
	Error   string   `json:"error,omitempty"`
	failure error
}

// change edits all regions, and waits for their nodes. It calls make for each region with
// its current list, one at a time.
func change(ctx context.Context, p *command.Program, o *Options, make func(at time.Time, held *clientlist.List) *clientlist.Edits) ([]*Changed, error) {
	all, err := p.TargetsToChange(ctx, kinds.Clients, o.Regions, false)
	if err != nil {
		return nil, err
	}
	answers := readLists(ctx, all)
	if failed, err := fleet.Failures(answers); len(failed) == len(answers) {
		return nil, term.Failed("nothing was changed; no region can be read:\n%w", err)
	}
	p.WarnOfClock()
	now := p.Now().UTC().Round(0)
	type job struct {
		target *fleet.Target
		edits  *clientlist.Edits
		failed error
	}
	jobs := map[*fleet.Target]*job{}
	var targets []*fleet.Target
	for _, a := range answers {
		j := &job{target: a.Target, failed: a.Err}
		if a.Err == nil {
			j.edits = make(now.Truncate(time.Second), a.Value)
			j.edits.Now, j.edits.Token = now, a.Target.Identity(ctx)
		}
		jobs[a.Target], targets = j, append(targets, a.Target)
	}
	done := fleet.AskUnbounded(ctx, targets, func(ctx context.Context, t *fleet.Target) (*Changed, error) {
		r := &Changed{Region: t.Name, failure: jobs[t].failed}
		if r.failure == nil {
			var out clientlist.Outcome
			out, r.failure = jobs[t].edits.Apply(ctx, t.Consul)
			r.Changed, r.Version = out.Changed, out.Version
		}
		if r.failure != nil {
			r.Error = r.failure.Error()
			return r, nil
		}
		r.await(ctx, t, o.wait)
		return r, nil
	})
	var list []*Changed
	for _, a := range done {
		list = append(list, a.Value)
	}
	return list, outcome(ctx, list)
}

// lookEvery is how often the registrations of nodes are read while they are awaited.
const lookEvery = 200 * time.Millisecond

// await waits until the nodes of a region have what its Consul has, which others may change
// meanwhile.
func (r *Changed) await(ctx context.Context, t *fleet.Target, wait time.Duration) {
	deadline := time.Now().Add(wait)
	for {
		nodes, err := t.Registered(ctx)
		if err == nil {
			if now, _, failure := t.Docs.Current(ctx); failure == nil && now != nil {
				r.Version = now.Version
			}
			r.Error = ""
			r.sort(nodes)
		} else {
			r.Error = err.Error()
		}
		if r.Error == "" && len(r.Behind) == 0 || time.Now().After(deadline) || ctx.Err() != nil {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(lookEvery):
		}
	}
}

func (r *Changed) sort(nodes []consul.Node) {
	r.Obey, r.Behind, r.Without = 0, nil, nil
	for _, n := range nodes {
		switch {
		case n.ClientsSchema < clientlist.Schema:
			r.Without = append(r.Without, n.ID)
		case n.ClientsVersion == r.Version:
			r.Obey++
		default:
			r.Behind = append(r.Behind, n.ID)
		}
	}
}

func writeChanged(list []*Changed, b *bytes.Buffer, s term.Style) {
	t := term.Table{}
	t.Row("REGION", "RESULT", "EDGES")
	for _, r := range list {
		result := s.Green("unchanged")
		switch {
		case r.failure != nil:
			result = s.Red("failed")
		case r.Changed > 0:
			result = s.Green(term.Plural(r.Changed, "network") + " changed")
		}
		edges := fmt.Sprintf("%d obey", r.Obey)
		if len(r.Behind) > 0 {
			edges += s.Yellow(fmt.Sprintf(", %d not yet", len(r.Behind)))
		}
		if len(r.Without) > 0 {
			edges += s.Red(fmt.Sprintf(", %d never", len(r.Without)))
		}
		t.Row(r.Region, result, edges)
	}
	t.Print(b)
}

// outcome returns what is wrong after a change, or nil.
func outcome(ctx context.Context, list []*Changed) error {
	var wrong []string
	failed, changed := 0, 0
	for _, r := range list {
		changed += r.Changed
		switch {
		case r.failure != nil:
			failed++
			wrong = append(wrong, r.Region+": "+r.Error)
			continue
		case r.Error != "":
			wrong = append(wrong, fmt.Sprintf("%s: its edges are unknown: %s", r.Region, r.Error))
		}
		if len(r.Without) > 0 {
			wrong = append(wrong, fmt.Sprintf("%s: %s: without rules.source consul, so they neither block nor allow any client", r.Region, term.OrDashes(r.Without)))
		}
		if len(r.Behind) > 0 {
			wrong = append(wrong, fmt.Sprintf("%s: %s: have not received it yet", r.Region, term.OrDashes(r.Behind)))
		}
	}
	text := strings.Join(wrong, "\n")
	switch {
	case len(wrong) == 0:
		return nil
	case failed == len(list) && changed == 0:
		return term.Failed("nothing was changed:\n%s", text)
	case failed > 0:
		text += "\nonce that is repaired, the same command again finishes it"
	}
	if ctx.Err() != nil {
		return term.Interrupted("interrupted:\n%s", text)
	}
	return &term.Failure{Status: term.StatusPartial, Err: errors.New("not all edges apply it:\n" + text)}
}
