// Package behavior judges the subjects of a site, by default its clients, by their
// requests: signals over short windows add up to a score, which decays and selects a tier.
// It only judges; a limiter enforces.
//
// All state has a fixed size. Nothing here blocks on I/O, and observing a request allocates
// nothing. A refusal by the limiter is not a signal: a client that stops when told to is
// never worse off for having been refused.
package behavior

import "time"

// Signal is one kind of behavior.
type Signal uint8

// The signals. A count covers a minute unless stated otherwise.
const (
	Burst      Signal = iota // requests in 10 s, compared with the subject's own past
	Repetition               // requests with the same fingerprint, or for the same route
	Scan                     // distinct routes, many of them missing, in a minute or in 15
	Denials                  // limited again before the time that Retry-After named
	Failures                 // answers of one sort: 401 and 403, 404, or 5xx
	Presence                 // requests that lack what real clients of the site send
	numSignals
)

// Signals lists all of them, in the order of their values.
var Signals = [...]Signal{Burst, Repetition, Scan, Denials, Failures, Presence}

func (s Signal) String() string {
	return [...]string{"burst", "repetition", "scan", "denials", "failures", "presence"}[s]
}

// Event is one finished request. Its hashes must be keyed with a secret, or clients could
// choose requests that look alike here.
type Event struct {
	Route        uint64 // hash of the path
	Fingerprint  uint64 // hash of what a repeated request has in common: method, path, query names, headers
	LacksHeaders bool   // a header that real clients always send is absent
	// Status is the origin's answer; 0 if none came.
	Status int
	// Login is set if the request carried credentials to a route where credentials are guessed.
	Login bool
	// Refused is set if the limiter or the shedder refused the request. Such a request
	// counts only toward Denials, and only if an earlier RetryAfter was ignored.
	Refused    bool
	RetryAfter time.Duration // what the refusal told the client; 0 if nothing
}

// Status is a subject's state at one moment.
type Status struct {
	Tier    int           // index in the policy's tiers
	Score   float64       // 0 to 100
	Refused time.Duration // for how long the tier refuses it from now on; 0 if it does not
	// Proven is set if the latest answer to credentials of the subject accepted them, at routes
	// where credentials are guessed. Such a route's tier should not apply to it.
	Proven bool
	// Rose is set if the observed request moved the subject to a severer tier. From Table.Status,
	// it is set if counts of other nodes did and Announce has not been called since.
	Rose bool

	denied int // 401 and 403 in the minute
}

// Reason is what one signal contributes to a score.
type Reason struct {
	Signal    Signal
	Points    float64 // what is left of the points
	Value     float64 // the count when the signal last rose
	Threshold float64 // what it was compared with
}

// CrossSite returns the subject that stands for the cross-site requests of a client. A browser
// sends those because some page says so: they say nothing about the client's other requests.
func CrossSite(client uint64) uint64 { return client ^ 0x9e3779b97f4a7c15 }
