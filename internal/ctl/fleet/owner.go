package fleet

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// Foreign says that a Consul is not that of the region, as far as is known.
type Foreign struct {
	text string
	// Unnamed: no region's name is recorded there.
	Unnamed bool
	// Edges are the regions of registered edges that are of another one.
	Edges string
}

func (e *Foreign) Error() string { return e.text }

// Confirm returns a *Foreign unless the Consul is that of the region, by its recorded name and
// its registered edges. Every write is preceded by it. Once confirmed, it asks no more.
func (t *Target) Confirm(ctx context.Context) error {
	if t.confirmed.Load() {
		return nil
	}
	ctx, cancel := t.Bounded(ctx)
	defer cancel()
	var name string
	var nodes []consul.Node
	var hidden error
	if err := Together(func() (err error) {
		name, err = t.Consul.RegionName(ctx)
		return err
	}, func() error {
		nodes, hidden = t.Consul.Nodes(ctx)
		return nil
	}); err != nil {
		return err
	}
	if name == "" && hidden != nil {
		return hidden
	}
	if f := t.foreign(name, nodes); f != nil {
		f.text = fmt.Sprintf("%s %s", t.Consul, f.text)
		return f
	}
	t.warnOfForeign(nodes)
	t.confirmed.Store(true)
	return nil
}

// foreign judges by the recorded name; without one, by the registered edges. Edges do not
// outweigh the name: anyone with an edge's token can register some.
func (t *Target) foreign(name string, nodes []consul.Node) *Foreign {
	own, others := 0, []string(nil)
	for _, n := range nodes {
		switch {
		case t.owns(n):
			own++
		case n.Prefix == "" || n.Prefix == t.Prefix:
			others = append(others, term.OrDash(n.Region))
		}
	}
	slices.Sort(others)
	switch {
	case name == t.Name:
		return nil
	case name != "":
		return &Foreign{text: fmt.Sprintf("belongs to region %s; correct consul.addr of %s in the fleet file", name, t.Name)}
	case len(others) > 0:
		edges := strings.Join(slices.Compact(others), ", ")
		return &Foreign{text: fmt.Sprintf("has edges of region %s; correct consul.addr of %s in the fleet file, or node.region of those edges; if it is %[2]s's, name it: regionctl init --region %[2]s", edges, t.Name), Unnamed: true, Edges: edges}
	case own == 0:
		return &Foreign{text: fmt.Sprintf("has no region's name and no edges; if it is %s's, name it: regionctl init --region %[1]s", t.Name), Unnamed: true}
	}
	return nil
}

// Claim records the region's name in its Consul. It reports false if the name was there.
func (t *Target) Claim(ctx context.Context) (bool, error) {
	t.Trust()
	done, err := t.Consul.NameRegion(ctx, t.Name)
	if err == nil && !done {
		t.confirmed.Store(false)
		err = t.Confirm(ctx)
	}
	return done, err
}

// Trust lets writes go without a comparison of the region's name.
func (t *Target) Trust() { t.confirmed.Store(true) }
