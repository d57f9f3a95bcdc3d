package limiter

import (
	"context"
	"strconv"
	"time"
)

// Under a reported limit, a node decides from the counts that it last heard plus what it
// has admitted since. Every ReportEvery it reports that to the store, which adds it to
// other nodes' reports and returns the sum. No request waits for a report.

// ReportEvery is the pause between the reports of a node.
const ReportEvery = 100 * time.Millisecond

// minReportWindow keeps what passes during a delay small compared to a limit.
const minReportWindow = 10 * time.Second

// ReportDelay returns for how long nodes may admit beyond a reported limit if a report
// takes at most trip. Requests that use up a limit are reported within ReportEvery and
// trip; a node then learns of it from its own next report, if it receives requests at all.
// So all nodes together exceed a limit by at most the demand in this time.
func ReportDelay(trip time.Duration) time.Duration { return 2 * (ReportEvery + trip) }

// UsualReportDelay is ReportDelay with the default time budget of a store.
const UsualReportDelay = 2 * (ReportEvery + 25*time.Millisecond)

// BoundDemand is the demand, in multiples of the limit, for which a bound is shown to
// operators.
const BoundDemand = 10

// Overshoot returns the fraction by which a limit may be exceeded if clients constantly ask
// for `times` the limit, spread over the given number of nodes: the demand during the
// delay, and two requests per node that has heard nothing for a while. For a token_bucket
// it is a fraction of the burst.
func (l *Limit) Overshoot(times float64, delay time.Duration, nodes int) float64 {
	whole := l.Limit
	if l.Algorithm == TokenBucket {
		whole = l.Burst
	}
	return (times*float64(l.Limit)*delay.Seconds()/l.Window.Seconds() + 2*float64(nodes)) / float64(whole)
}

// Report is what a node has admitted under a reported limit for one key since its last
// report, and the answer.
type Report struct {
	Limit *Limit
	// Key names the counter. For a window, the name ends with its start; see AppendWindow.
	Key []byte
	// Units are added to the counter; 0 only reads it, and negative units take back.
	Units int64
	// Earlier is the counter of the previous window, nil if it is not needed, and Late is
	// what is added to it.
	Earlier []byte
	Late    int64
	// Expire, if not 0, is how long to keep the counter of a window; one that received
	// Late, a window less. A bucket expires when it has drained.
	Expire time.Duration

	// Err says why there is no answer. Lost is set if the units may still have been
	// counted: they must not be reported again.
	Err  error
	Lost bool
	// Now is the store's clock in Unix microseconds, read just before the counts.
	Now int64
	// Count and Before are what all nodes have reported in this window and in the previous
	// one.
	Count, Before int64
	// Level is how many requests a bucket must drain until it is full again. It may exceed
	// the burst: the bucket is then in debt.
	Level float64
}

// Reporter is the store of reported limits. Report answers all reports, each with its own
// error, and bounds its own time. Forget deletes counters.
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

// Consistency returns the word used in rule documents.
func (l *Limit) Consistency() string {
	switch {
	case l.Leased:
		return "leased"
	case l.Reported:
		return "reported"
	}
	return "strict"
}

// reportedTag returns the tag for reported limits, whose state differs from that of the
// deciding scripts.
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
		bad("consistency", "leaky_bucket spaces requests evenly, but nodes learn of each other's requests too late for that; use consistency: strict, or token_bucket")
	case Concurrency:
		bad("consistency", "concurrency counts requests in flight, which have ended before they are reported; use consistency: strict")
	case RollingWindow:
		bad("consistency", "rolling_window keeps the time of each request, but reports carry only sums; use sliding_window, or consistency: leased")
	}
	switch {
	case l.CountDenied:
		bad("consistency", "count_denied counts refused attempts, but nodes report only what they admit; use consistency: strict, or remove count_denied")
	case l.Window < minReportWindow:
		bad("consistency", "reported needs a window of at least %s (got %s); use consistency: strict", minReportWindow, l.Window)
	case l.Algorithm == TokenBucket && l.Burst < l.minReportBurst():
		bad("consistency", "reported needs a burst of at least %d, twice what refills in %s (got %d); use consistency: strict",
			l.minReportBurst(), UsualReportDelay, l.Burst)
	}
}

// minReportBurst returns twice what refills in a usual delay, rounded up.
func (l *Limit) minReportBurst() int64 {
	window := l.Window.Microseconds()
	return (2*l.Limit*UsualReportDelay.Microseconds() + window - 1) / window
}
