package edge

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/weir-edge/weir/pkg/limiter/rules"
)

// ruleset is the rules in force with what is counted for them, swapped as one.
type ruleset struct {
	set      *rules.Set
	since    time.Time
	counters []ruleCounters // by rule index
	samplers []sampler      // by rule index
}

// rejection is a rule document that was refused.
type rejection struct {
	At      time.Time `json:"at"`
	Version string    `json:"version"`
	Errors  []string  `json:"errors"`
}

// ruleSource loads the rules and keeps the last good ones running.
type ruleSource struct {
	mu       sync.Mutex        // one load at a time
	seen     [sha256.Size]byte // at the last look
	last     [sha256.Size]byte // put in force, or refused
	rejected *rejection
}

// loadRules reads the rule file and puts it in force. A bad document changes
// nothing: the rules before it go on, and the fault is counted, logged and shown by
// /v1/rules. An unchanged file is not looked at twice. Unless asked to, it waits for
// two looks to find the same: the beginning of a document that is just being written
// can be a good document, with fewer rules.
func (e *Edge) loadRules(asked bool) error {
	s := &e.rules
	s.mu.Lock()
	defer s.mu.Unlock()
	data := []byte(e.builtinRules)
	if e.builtinRules == "" {
		var err error
		if data, err = os.ReadFile(e.config.Rules.File); err != nil {
			return s.reject("", fmt.Errorf("rules.file: %w", err), e.metrics)
		}
	}
	sum := sha256.Sum256(data)
	settled := sum == s.seen
	s.seen = sum
	if sum == s.last {
		if s.rejected != nil && s.rejected.Version == "" {
			s.rejected = nil // the file was missing for a while
		}
		if asked && e.running.Load() != nil {
			e.log.Info("the rule file is as it was at the last load", "refused", s.rejected != nil)
		}
		return nil
	}
	if !settled && !asked {
		return nil
	}
	s.last = sum
	set, err := rules.Load(data)
	if err != nil {
		return s.reject(fmt.Sprintf("%x", sum)[:12], fmt.Errorf("rules refused: %w", err), e.metrics)
	}
	s.rejected = nil
	e.enforce(set)
	return nil
}

// reject notes a document that is not put in force, once, and returns why.
func (s *ruleSource) reject(version string, err error, m *metrics) error {
	why := messages(err)
	if s.rejected == nil || s.rejected.Version != version || !slices.Equal(s.rejected.Errors, why) {
		s.rejected = &rejection{At: time.Now(), Version: version, Errors: why}
		m.rulesRejected.Inc()
	}
	return err
}

func messages(err error) []string {
	var list rules.Errors
	if !errors.As(err, &list) {
		return []string{err.Error()}
	}
	var out []string
	for _, e := range list {
		out = append(out, e.Error())
	}
	return out
}

// enforce swaps the rules. Requests under way finish by the ones they began with.
func (e *Edge) enforce(set *rules.Set) {
	before := e.running.Load()
	n := len(set.Rules())
	next := &ruleset{set: set, since: time.Now(), counters: make([]ruleCounters, n), samplers: make([]sampler, n)}
	e.running.Store(next)
	var old *rules.Set
	if before != nil {
		old = before.set
	}
	e.metrics.running(set, old)
	e.log.Info("rules in force", "version", set.Version(), "rules", len(set.Rules()))
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
		if e.builtinRules == "" {
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
