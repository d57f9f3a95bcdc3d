package blocklist

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/weir-edge/weir/internal/clientlist"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// Region is where a list is published.
type Region struct {
	Name   string
	Consul *consul.Client
	Token  func(context.Context) *consul.Identity // whose it is, for the history
}

// Config is a list, and how it is followed.
type Config struct {
	Name    string // shown as who decided
	Source  *Source
	Reason  string
	Regions []Region
	Every   time.Duration
	Most    int     // networks
	Loss    float64 // the share of its networks that it may lose at once, 0 to 1
	Log     *slog.Logger
	Now     func() time.Time // by the fleet's clock
}

// Outcome is what a round did in one region.
type Outcome struct {
	Region  string `json:"region"`
	Added   int    `json:"added"`
	Removed int    `json:"removed"`
	Yielded int    `json:"decided_otherwise"` // by hand, or by another list
	Has     int    `json:"networks"`          // of the list
	Error   string `json:"error,omitempty"`
	Failure error  `json:"-"`
}

// Sync follows one list.
type Sync struct {
	*Config
	metrics *metrics
	last    *Contents // the latest that was good
}

// New returns what follows a list.
func New(c *Config) *Sync {
	s := &Sync{Config: c}
	s.metrics = newMetrics(c)
	return s
}

// The kinds of failures.
const (
	failedFetch  = "fetch"  // the list cannot be read
	failedList   = "list"   // what was read is no list, or a dangerous one
	failedLoss   = "loss"   // a region would lose too much of it
	failedRegion = "region" // a region cannot be read or written
)

// Round fetches the list once and publishes it in all regions. Regions get what was fetched last,
// even if it has not changed: one may have been away. The error is that of the list; those of
// regions are in their outcomes.
func (s *Sync) Round(ctx context.Context) ([]Outcome, error) {
	if err := s.read(ctx); err != nil {
		return nil, err
	}
	at := s.Now().UTC().Round(0)
	list := make([]Outcome, len(s.Regions))
	var all sync.WaitGroup
	for i := range s.Regions {
		all.Go(func() { list[i] = s.publish(ctx, &s.Regions[i], at) })
	}
	all.Wait()
	failed := false
	for i := range list {
		o := &list[i]
		if o.Failure == nil {
			s.metrics.entries.WithLabelValues(s.Name, o.Region).Set(float64(o.Has))
			continue
		}
		failed, o.Error = true, o.Failure.Error()
		kind := failedRegion
		if errors.Is(o.Failure, ErrLoss) {
			kind = failedLoss
		}
		s.metrics.failed(s.Name, kind)
	}
	if !failed {
		s.metrics.succeeded(time.Now())
	}
	return list, nil
}

// read leaves what the list says in last.
func (s *Sync) read(ctx context.Context) error {
	text, use, err := s.Source.Fetch(ctx)
	if err != nil {
		s.metrics.failed(s.Name, failedFetch)
		return err
	}
	if text == nil {
		return nil
	}
	c, err := Parse(text, s.Most)
	if err != nil {
		s.metrics.failed(s.Name, failedList)
		return fmt.Errorf("%s: %w", s.Source, err)
	}
	use()
	s.last = c
	s.metrics.private.WithLabelValues(s.Name).Set(float64(c.Private))
	return nil
}

// publish makes a region hold the list.
func (s *Sync) publish(ctx context.Context, r *Region, at time.Time) (o Outcome) {
	o.Region = r.Name
	held, err := clientlist.Read(ctx, r.Consul)
	if err != nil {
		o.Failure = err
		return o
	}
	d := &clientlist.Decision{Action: clientlist.Block, By: clientlist.ByList(s.Name), Reason: s.Reason, Since: at.Truncate(time.Second)}
	p, err := newPlan(d, s.last.Networks, held, s.Loss, at)
	if err != nil {
		o.Failure = fmt.Errorf("%s: %w; to accept that, run regionctl clients sync with --once --max-loss 1", s.Source, err)
		return o
	}
	o.Added, o.Removed, o.Yielded, o.Has = p.added, p.removed, p.yielded, p.has
	if len(p.edits) == 0 {
		return o
	}
	e := &clientlist.Edits{List: p.edits, Own: true, By: d.By, Message: fmt.Sprintf("%d added, %d removed: %s", p.added, p.removed, s.Reason), Now: at}
	if r.Token != nil {
		e.Token = r.Token(ctx)
	}
	_, o.Failure = e.Apply(ctx, r.Consul)
	return o
}

// roundBound is how long a round may take in all: a region whose Consul hangs must not end
// the refreshes of the others.
const roundBound = 5 * time.Minute

// Run follows the list until ctx ends. Each round is reported by the log.
func (s *Sync) Run(ctx context.Context) {
	for ctx.Err() == nil {
		bounded, cancel := context.WithTimeout(ctx, roundBound)
		list, err := s.Round(bounded)
		cancel()
		if ctx.Err() != nil {
			return
		}
		good := s.report(list, err)
		_ = consul.Pause(ctx, s.pause(good, rand.Float64()))
	}
}

// pause returns how long to wait before the next round: a tenth shorter or longer, so that
// those who follow a list do not ask for it in the same second. After a failure it is sooner.
func (s *Sync) pause(good bool, chance float64) time.Duration {
	wait := s.Every
	if !good {
		wait = min(wait, max(time.Minute, wait/10))
	}
	return time.Duration(float64(wait) * (0.9 + 0.2*chance))
}

// report writes a round to the log.
func (s *Sync) report(list []Outcome, err error) (good bool) {
	if err != nil {
		s.Log.Error("list not read; what is published stays", "list", s.Name, "error", err.Error())
		return false
	}
	good = true
	for _, o := range list {
		switch {
		case o.Failure != nil:
			good = false
			s.Log.Error("list not published; the region keeps what it has", "list", s.Name, "region", o.Region, "error", o.Error)
		case o.Added+o.Removed > 0:
			s.Log.Info("list published", "list", s.Name, "region", o.Region, "networks", o.Has, "added", o.Added, "removed", o.Removed, "decided_otherwise", o.Yielded, "private", s.last.Private)
		}
	}
	return good
}
