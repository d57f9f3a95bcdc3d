package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/experiment"
	"github.com/weir-edge/weir/pkg/limiter/rules"
)

// variantOf names the variant of a rule with an experiment; "" without one.
func variantOf(c *rules.Compiled) string {
	switch {
	case c.IsVariant():
		return adminapi.VariantExperiment
	case c.Experiment != nil:
		return adminapi.VariantBase
	}
	return ""
}

// showExperiment shows the counts of an experiment. It asks the store for the memory of one
// counter per slice.
func (a *Admin) showExperiment(w http.ResponseWriter, r *http.Request) {
	if _, ok := a.runningRules(w); !ok {
		return
	}
	id := r.URL.Query().Get("rule")
	t := a.Tally(id)
	if t == nil {
		adminError(w, http.StatusNotFound, fmt.Errorf("rule: must name a running rule with an experiment (got %q); see /v1/rules", id))
		return
	}
	out := adminapi.Experiment{
		Node: a.Config.Node.ID, Rule: id, RulesVersion: a.Rules.State().Version(), Version: t.Trial.Version, Since: t.Since.UTC(), Cut: t.Trial.Cut, Slices: t.Counts(),
	}
	if err := a.weigh(r.Context(), t.Keys(), out.Slices); err != nil {
		out.MemoryError = err.Error()
	}
	writeJSON(w, http.StatusOK, out)
}

// weighWithin bounds the time for asking the store about the memory of counters, weighing
// how many are asked about at once.
const (
	weighWithin = time.Second
	weighing    = 8
)

var errNoMemory = errors.New("store.kind: memory does not report the memory of a counter")

// weigh determines the memory of keys, one of each slice. It returns the first error.
func (a *Admin) weigh(ctx context.Context, keys [][]byte, slices []experiment.Counts) error {
	if a.Chain.Shared == nil {
		return errNoMemory
	}
	ctx, cancel := context.WithTimeout(ctx, weighWithin)
	defer cancel()
	var next atomic.Int64
	var asking sync.WaitGroup
	failures := make([]error, weighing)
	for n := range weighing {
		asking.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(keys) {
					return
				}
				if keys[i] == nil {
					continue
				}
				size, err := a.Chain.Shared.Memory(ctx, keys[i])
				switch {
				case err != nil:
					failures[n] = err
					return
				case size > 0: // otherwise it has expired
					slices[i].Bytes, slices[i].Keys = size, 1
				}
			}
		})
	}
	asking.Wait()
	return cmp.Or(failures...)
}
