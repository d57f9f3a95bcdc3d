package edge

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/edge/config"
	"github.com/weir-edge/weir/internal/edge/documents"
	"github.com/weir-edge/weir/pkg/certs"
)

// ruleFile is the state of the rule file.
type ruleFile struct {
	builtin string // for -dev; otherwise path is read
	path    string

	mu      sync.Mutex        // serializes loads
	seen    [sha256.Size]byte // at the last look
	last    [sha256.Size]byte // activated, or refused
	refused *adminapi.Refusal
}

// load reads the rule file and activates it. A bad document changes nothing: the previous
// rules keep running, and the fault is counted, logged and shown by /v1/rules. An unchanged
// file is not checked twice. Unless asked to load, it waits until two checks find the same
// content: the beginning of a document that is still being written can be a valid document
// with fewer rules.
func (k *ruleKeeper) load(asked bool) error {
	f := &k.file
	f.mu.Lock()
	defer f.mu.Unlock()
	data, source := []byte(f.builtin), adminapi.SourceBuiltin
	if f.builtin == "" {
		source = adminapi.SourceFile
		var err error
		if data, err = os.ReadFile(f.path); err != nil {
			k.metrics.setSourceUp(false)
			return k.refuse("", fmt.Errorf("rules.file: %w", err))
		}
	}
	k.metrics.setSourceUp(true)
	sum := sha256.Sum256(data)
	settled := sum == f.seen
	f.seen = sum
	if sum == f.last {
		if f.refused != nil && f.refused.Version == "" { // the file was missing for a while
			f.refused = nil
			k.publish(ruleState{source: source})
		}
		if asked && k.running.Load() != nil {
			k.log.Info("the rule file is unchanged since the last load", "refused", f.refused != nil)
		}
		return nil
	}
	if !settled && !asked {
		return nil
	}
	f.last = sum
	set, err := k.compile(data)
	if err != nil {
		return k.refuse(fmt.Sprintf("%x", sum)[:12], fmt.Errorf("rules refused: %w", err))
	}
	f.refused = nil
	k.enforce(set, source, false)
	k.publish(ruleState{source: source})
	return nil
}

// refuse records a file that is not activated, and returns why.
func (k *ruleKeeper) refuse(version string, err error) error {
	f := &k.file
	standing := f.refused
	if f.refused = documents.Refuse(standing, version, false, messages(err)); f.refused != standing {
		k.metrics.rulesRejected.Inc()
	}
	k.publish(ruleState{source: adminapi.SourceFile, refused: f.refused, stale: true})
	return err
}

// watchEvery is how often files are checked. Polling sees a file replaced by a rename or
// behind a changed link; inode notifications do not.
const watchEvery = time.Second

// watchedFiles are checked once a second.
type watchedFiles struct {
	config.Certificates
	rulesFault, publicFault, adminFault, decideFault, spoeFault, rlsFault, peerFault string // last logged
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
		case e.consul == nil && e.rules.file.builtin == "":
			e.report("reload rules", &e.files.rulesFault, e.rules.load(asked))
		}
		e.reloadSecret()
		if k := e.conduct; k != nil && k.follower == nil {
			e.report("reload policy", &k.fault, k.reload())
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
