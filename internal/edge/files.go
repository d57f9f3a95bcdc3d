package edge

import (
	"context"
	"os"
	"time"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/edge/config"
	"github.com/weir-edge/weir/pkg/certs"
)

// watchEvery is how often files are checked. Polling sees a file replaced by a rename or
// behind a changed link; inode notifications do not.
const watchEvery = time.Second

// watchedFiles are checked once a second.
type watchedFiles struct {
	config.Certificates
	rulesFault, policyFault, publicFault, adminFault, decideFault, spoeFault, rlsFault, peerFault string // last logged
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
		asked := false
		select {
		case <-ctx.Done():
			return
		case <-now:
			e.log.Info("reload requested")
			asked = true
			if e.access != nil {
				e.access.Reopen()
			}
		case <-tick.C:
			e.chain.Local.Sweep()
			look()
		}
		switch {
		case e.consul != nil && asked:
			e.log.Info("nothing to reload: rules are followed in consul, and its token is read at each request")
		case e.consul == nil && e.rules.Source != adminapi.SourceBuiltin:
			e.report("reload rules", &e.files.rulesFault, e.rules.Load(asked))
		}
		e.reloadSecret()
		if k := e.conduct; k != nil && k.policy.Read != nil {
			e.report("reload policy", &e.files.policyFault, k.policy.Load(asked))
		}
		e.reloadCertificates(e.files.Public, &e.files.publicFault)
		e.reloadCertificates(e.files.Admin, &e.files.adminFault)
		e.reloadCertificates(e.files.Decide, &e.files.decideFault)
		e.reloadCertificates(e.files.SPOE, &e.files.spoeFault)
		e.reloadCertificates(e.files.RLS, &e.files.rlsFault)
		e.reloadCertificates(e.files.Peer, &e.files.peerFault)
	}
}

func (e *Edge) reloadCertificates(s *certs.Server, fault *string) {
	if s != nil {
		e.report("reload certificate", fault, s.Reload())
	}
}

// report logs a new fault once, not at every check.
func (e *Edge) report(what string, last *string, err error) {
	if err == nil {
		*last = ""
		return
	}
	if text := err.Error(); text != *last {
		*last = text
		e.log.Error(what, "error", err)
	}
}
