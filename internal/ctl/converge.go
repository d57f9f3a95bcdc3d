package ctl

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/weir-edge/weir/pkg/region"
)

const (
	// lookEvery is how often nodes are asked that are not there yet.
	lookEvery = 250 * time.Millisecond
	// refusedFor is how long a node must go on refusing before that is final: one
	// that refused the same version before may still be about to look again.
	refusedFor = 2 * time.Second
	// afterwards is how long the other regions have once one has said no.
	afterwards = 2 * time.Second
	// registering is how long edges that lost their place in the catalogue, as when
	// Consul lost its data, take to return to it.
	registering = 15 * time.Second
)

// awaiting is the wait for the nodes of some regions to run a version.
type awaiting struct {
	p       *program
	version func(*target) string
	wanted  func(region.Node) bool // nil: all nodes
	// moved, which may be nil, reports that a region no longer wants that version.
	moved func(*target, *regionView) bool
}

// arrival is how the wait ended in one region.
type arrival struct {
	target  *target
	view    *regionView // the last look; nil if there was none
	err     error       // why the last look failed
	moved   bool        // someone changed what the nodes should run
	refused []nodeView  // that will not run it
	empty   bool        // no node is registered, and none came
	done    bool
}

// arrived reports whether all that was waited for is there.
func (a *arrival) arrived() bool {
	return a.err == nil && a.view != nil && !a.moved && a.view.Converged
}

// run waits until all nodes run the version, or it is clear that they will not, or
// limit is over, or ctx ends. It shows progress meanwhile.
func (w *awaiting) run(ctx context.Context, targets []*target, limit time.Duration) []arrival {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	progress := &lines{w: w.p.errOut, live: w.p.live, width: w.p.width}
	var (
		mu       sync.Mutex
		all      sync.WaitGroup
		arrivals = make([]arrival, len(targets))
		text     = make([]string, len(targets))
	)
	for i, t := range targets {
		arrivals[i].target = t
		if progress.live {
			text[i] = fmt.Sprintf("%-*s  asking", longest(targets), t.name)
		}
	}
	for i := range targets {
		all.Go(func() {
			w.follow(ctx, &arrivals[i], func() {
				mu.Lock()
				defer mu.Unlock()
				if a := &arrivals[i]; a.done && !a.arrived() && !a.empty {
					time.AfterFunc(afterwards, cancel)
				}
				text[i] = fmt.Sprintf("%-*s  %s", longest(targets), targets[i].name, w.describe(&arrivals[i]))
				progress.update(text)
			})
		})
	}
	all.Wait()
	return arrivals
}

// follow looks at one region again and again.
func (w *awaiting) follow(ctx context.Context, a *arrival, changed func()) {
	refusing := map[string]time.Time{}
	began := time.Now()
	for {
		view, err := w.p.view(ctx, a.target, w.wanted, w.version(a.target))
		if ctx.Err() != nil {
			return // what was seen last is better than half a look
		}
		a.err = err
		if err == nil {
			a.view = view
			a.moved = w.moved != nil && w.moved(a.target, view)
			a.refused = nil
			for _, n := range view.Nodes {
				if !n.refuses() {
					delete(refusing, n.ID)
					continue
				}
				if _, before := refusing[n.ID]; !before {
					refusing[n.ID] = time.Now()
				}
				if time.Since(refusing[n.ID]) >= refusedFor {
					a.refused = append(a.refused, n)
				}
			}
			a.empty = len(view.Nodes) == 0 && time.Since(began) >= w.p.registering
			a.done = a.moved || len(a.refused) > 0 || view.Converged || a.empty
		}
		changed()
		if a.done {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(lookEvery):
		}
	}
}

// describe is one line of progress.
func (w *awaiting) describe(a *arrival) string {
	v := a.view
	switch {
	case a.err != nil:
		return "cannot look: " + clip(printable(a.err.Error()), 120)
	case a.moved:
		return "changed by someone else"
	case len(v.Nodes) == 0:
		return "no edge is registered"
	}
	behind := v.behind()
	text := fmt.Sprintf("%d of %d edges run %s", len(v.Nodes)-len(behind), len(v.Nodes), w.version(a.target))
	if len(behind) > 0 {
		var names []string
		for _, n := range behind[:min(3, len(behind))] {
			names = append(names, n.why())
		}
		if len(behind) > 3 {
			names = append(names, fmt.Sprintf("%d more", len(behind)-3))
		}
		text += "; " + strings.Join(names, ", ")
	}
	return text
}

// verdict turns arrivals into what is wrong, nil if all nodes are there. A region
// without nodes is none of it.
func (w *awaiting) verdict(arrivals []arrival, limit time.Duration) error {
	var wrong, versions []string
	refused := false
	k := arrivals[0].target.kind
	for i := range arrivals {
		a := &arrivals[i]
		versions = append(versions, w.version(a.target))
		switch {
		case a.arrived():
		case a.moved:
			return conflict("%s: %s", a.target.name, k.whoMoved(a.view.Pointer))
		case len(a.refused) > 0:
			refused = true
			for _, n := range a.refused {
				wrong = append(wrong, fmt.Sprintf("%s: node %s refuses %s and goes on with %s:\n    %s", a.target.name, printable(n.ID),
					n.Expected, orDash(n.Version), indented(n.reasons())))
			}
		case a.err != nil:
			wrong = append(wrong, fmt.Sprintf("%s: %v", a.target.name, a.err))
		case a.view == nil:
			wrong = append(wrong, fmt.Sprintf("%s: not known yet", a.target.name))
		default:
			if a.view.Error != "" {
				wrong = append(wrong, fmt.Sprintf("%s: %s", a.target.name, a.view.Error))
			}
			for _, n := range a.view.behind() {
				wrong = append(wrong, fmt.Sprintf("%s: %s", a.target.name, n.why()))
			}
		}
	}
	version := strings.Join(distinct(versions), " and ")
	switch {
	case len(wrong) == 0:
		return nil
	case refused:
		return partial("not all edges run %s:\n  %s\ncorrect the document, or go back with regionctl %s rollback", version, strings.Join(wrong, "\n  "), k.name)
	}
	return partial("not all edges run %s after %s:\n  %s\n%s shows whether they get there; running this again waits again",
		version, limit, strings.Join(wrong, "\n  "), k.watch)
}

func (k *kind) whoMoved(now *region.Pointer) string {
	if now == nil {
		return fmt.Sprintf("someone deleted the pointer to the %s meanwhile; %s again to set it", k.what, k.put)
	}
	return fmt.Sprintf("%s %s %s at %s meanwhile; look at it with regionctl %s show, and %s again if yours is to stand",
		printable(now.AppliedBy), k.did, now.Version, stamp(now.AppliedAt), k.name, k.put)
}

func longest(targets []*target) int {
	n := 0
	for _, t := range targets {
		n = max(n, len(t.name))
	}
	return n
}
