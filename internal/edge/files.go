package edge

import (
	"context"
	"os"
	"time"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/edge/config"
	"github.com/weir-edge/weir/internal/logs"
)

// watchEvery is how often files are checked. Polling sees a file replaced by a rename or
// behind a changed link; inode notifications do not.
const watchEvery = time.Second

// watchedFiles are checked once per second.
type watchedFiles struct {
	config.Certificates
	rules, policy, spoe logs.Fault
}

// watchFiles reloads rules, certificates and the shedder's secret when their files change,
// or immediately on SIGHUP, until ctx ends. It also sweeps the memory store and watches the
// node's clock.
func (e *Edge) watchFiles(ctx context.Context, now <-chan os.Signal) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	clock := nodeClock{now: time.Now, born: time.Now()}
	look := func() {
		clock.look(func(by time.Duration) { clockSet(e.log, e.metrics, "node", "", by) })
	}
	look() // a step in the first second counts too
	for {
		requested := false
		select {
		case <-ctx.Done():
			return
		case <-now:
			e.log.Info("reload requested")
			requested = true
			if e.access != nil {
				e.access.Reopen()
			}
		case <-tick.C:
			e.chain.Local.Sweep()
			look()
		}
		switch {
		case e.consul != nil && requested:
			e.log.Info("nothing to reload: rules are followed in consul, and its token is read at each request")
		case e.consul == nil && e.rules.Source != adminapi.SourceBuiltin:
			e.files.rules.Report(e.log, "reload rules", e.rules.Load(requested))
		}
		e.secret.Reload()
		if k := e.tiers; k != nil && k.Policies.Read != nil {
			e.files.policy.Report(e.log, "reload policy", k.Policies.Load(requested))
		}
		e.listeners.Reload()
		if e.files.SPOE != nil {
			e.files.spoe.Report(e.log, "reload certificate", e.files.SPOE.Reload())
		}
	}
}
