package edge

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"sync"
	"time"
)

// ruleFile is what is known of the rule file.
type ruleFile struct {
	mu      sync.Mutex        // one load at a time
	seen    [sha256.Size]byte // at the last look
	last    [sha256.Size]byte // put in force, or refused
	refused *refusal
}

// loadRules reads the rule file and puts it in force. A bad document changes
// nothing: the rules before it go on, and the fault is counted, logged and shown by
// /v1/rules. An unchanged file is not looked at twice. Unless asked to, it waits for
// two looks to find the same: the beginning of a document that is just being written
// can be a good document, with fewer rules.
func (e *Edge) loadRules(asked bool) error {
	f := &e.ruleFile
	f.mu.Lock()
	defer f.mu.Unlock()
	data, source := []byte(e.builtinRules), fromBuiltin
	if e.builtinRules == "" {
		source = fromFile
		var err error
		if data, err = os.ReadFile(e.config.Rules.File); err != nil {
			e.metrics.setSourceUp(false)
			return e.refuseFile("", fmt.Errorf("rules.file: %w", err))
		}
	}
	e.metrics.setSourceUp(true)
	sum := sha256.Sum256(data)
	settled := sum == f.seen
	f.seen = sum
	if sum == f.last {
		if f.refused != nil && f.refused.Version == "" { // the file was missing for a while
			f.refused = nil
			e.publish(ruleState{source: source})
		}
		if asked && e.running.Load() != nil {
			e.log.Info("the rule file is as it was at the last load", "refused", f.refused != nil)
		}
		return nil
	}
	if !settled && !asked {
		return nil
	}
	f.last = sum
	set, err := e.compile(data)
	if err != nil {
		return e.refuseFile(fmt.Sprintf("%x", sum)[:12], fmt.Errorf("rules refused: %w", err))
	}
	f.refused = nil
	e.enforce(set, source, false)
	e.publish(ruleState{source: source})
	return nil
}

// refuseFile notes a file that is not put in force, and returns why.
func (e *Edge) refuseFile(version string, err error) error {
	f := &e.ruleFile
	standing := f.refused
	if f.refused = refused(standing, version, false, err); f.refused != standing {
		e.metrics.rulesRejected.Inc()
	}
	e.publish(ruleState{source: fromFile, refused: f.refused, stale: true})
	return err
}

// watchEvery is how often files are looked at. Polling sees a file replaced by a
// rename or behind a changed link, which notifications of an inode do not.
const watchEvery = time.Second

// watchFiles reloads rules and certificate when their files change, or at once when
// asked (SIGHUP), until ctx ends. It keeps the memory store swept meanwhile.
func (e *Edge) watchFiles(ctx context.Context, now <-chan os.Signal) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		asked := false
		select {
		case <-ctx.Done():
			return
		case <-now:
			e.log.Info("reload asked for")
			asked = true
		case <-tick.C:
			e.local.Sweep()
		}
		switch {
		case e.consul != nil && asked:
			e.log.Info("rules are followed in consul anyway, and its token is read at each request")
		case e.consul == nil && e.builtinRules == "":
			e.report("reload rules", &e.rulesFault, e.loadRules(asked))
		}
		if e.certificate != nil {
			e.report("reload certificate", &e.certificateFault, e.certificate.reload())
		}
	}
}

// report logs a fault when it is new, not at every look.
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
