package limiter

import (
	"context"
	"strconv"
	"time"
)

// Under a reported limit, a node decides by the counts that it last heard and by what it
// has admitted since. Every ReportEvery it reports that to the store, which adds it to
// what other nodes reported and answers with the sum. Nobody waits for a report.

// ReportEvery is the pause between the reports of a node.
const ReportEvery = 100 * time.Millisecond

// minReportWindow keeps what passes during a delay small against a limit.
const minReportWindow = 10 * time.Second

// ReportDelay returns for how long nodes may admit beyond a reported limit if a report
// takes at most trip. Requests that use up a limit are reported within ReportEvery and
// trip; after that a node learns of it from its own next report, if anybody asks it at all.
// So all nodes together exceed a limit by at most what they are asked for in this time.
func ReportDelay(trip time.Duration) time.Duration { return 2 * (ReportEvery + trip) }

// UsualReportDelay is ReportDelay with the default time budget of a store.
const UsualReportDelay = 2 * (ReportEvery + 25*time.Millisecond)

// TenTimes is the demand, in limits, for which a bound is shown to operators.
const TenTimes = 10

// Overshoot returns by what part of itself a limit may be exceeded if clients ask for
// `times` the limit all the time, spread over so many nodes: what they ask for in the
// delay, and two requests a node that has heard nothing for a while. Of a token_bucket
// it is a part of the burst.
func (l *Limit) Overshoot(times float64, delay time.Duration, nodes int) float64 {
	whole := l.Limit
	if l.Algorithm == TokenBucket {
		whole = l.Burst
	}
	return (times*float64(l.Limit)*delay.Seconds()/l.Window.Seconds() + 2*float64(nodes)) / float64(whole)
}

// Report is what a node has admitted under a reported limit of one key since it last
// said so, and the answer.
type Report struct {
	Limit *Limit
	// Key names the counter. That of a window ends with its start, see AppendWindow.
	Key []byte
	// Units are added to the counter; 0 only reads it, and less than 0 takes back.
	Units int64
	// Earlier is the counter of the window before, nil if nobody needs it, and Late what
	// is added to that.
	Earlier []byte
	Late    int64
	// Expire, if not 0, is when the counter of a window may be forgotten; one that got
	// Late a window sooner. A bucket expires when it has drained.
	Expire time.Duration

	// Err says why there is no answer. Lost is set if the units may have been counted all
	// the same: they must not be reported again.
	Err  error
	Lost bool
	// Now is the store's clock in Unix microseconds, read just before the counts.
	Now int64
	// Count and Before are what all nodes have reported in the window, and in the one
	// before.
	Count, Before int64
	// Level is what has to drain from a bucket until it is full again, in requests. It may
	// be more than the burst: the bucket is then in debt.
	Level float64
}

// Reporter is the store of reported limits. Report answers all reports, each with its own
// error, within a bound of its own. Forget deletes counters.
type Reporter interface {
	Report(ctx context.Context, reports []Report)
	Forget(ctx context.Context, keys [][]byte) error
}

// AppendWindow appends the name of the counter of one window: the limit's key and the
// window's start, given in Unix microseconds.
func AppendWindow(name, key []byte, start int64) []byte {
	name = append(append(name, key...), ':')
	return strconv.AppendInt(name, start/1000, 10)
}

// Consistency returns the word of a rule document.
func (l *Limit) Consistency() string {
	switch {
	case l.Leased:
		return "leased"
	case l.Reported:
		return "reported"
	}
	return "strict"
}

// reportedTag is Tag: other states than those of the scripts that decide.
func (l *Limit) reportedTag() string {
	switch l.Algorithm {
	case FixedWindow:
		return "fr" // a plain counter for each window
	case SlidingWindow:
		return "sr"
	case TokenBucket:
		return "tr" // may be in debt
	}
	return "??"
}

// reportFaults reports why the limit cannot be reported.
func (l *Limit) reportFaults(bad func(path, format string, args ...any)) {
	switch l.Algorithm {
	case LeakyBucket:
		bad("consistency", "leaky_bucket spaces requests evenly, and nodes learn of each other's too late for that; use consistency: strict, or token_bucket")
	case Concurrency:
		bad("consistency", "concurrency counts requests in flight, which have ended before they are reported; use consistency: strict")
	case RollingWindow:
		bad("consistency", "rolling_window keeps the time of each request, and reports only have sums; use sliding_window, or consistency: leased")
	}
	switch {
	case l.CountDenied:
		bad("consistency", "count_denied counts refused attempts, and nodes report only what they admit; use consistency: strict, or remove count_denied")
	case l.Window < minReportWindow:
		bad("consistency", "reported needs a window of at least %s (got %s); use consistency: strict", minReportWindow, l.Window)
	case l.Algorithm == TokenBucket && l.Burst < l.minReportBurst():
		bad("consistency", "reported needs a burst of at least %d, twice what refills in %s (got %d); use consistency: strict",
			l.minReportBurst(), UsualReportDelay, l.Burst)
	}
}

// minReportBurst is twice what refills in a usual delay, rounded up.
func (l *Limit) minReportBurst() int64 {
	window := l.Window.Microseconds()
	return (2*l.Limit*UsualReportDelay.Microseconds() + window - 1) / window
}
