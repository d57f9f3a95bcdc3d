// Package replay runs a log of requests through a rule document, in memory and
// by the log's own times, and reports who would have been limited and by which
// rule. Beside the running document it shows the effect of a change before it is
// made.
//
// # Logs
//
// A log is text, one request a line, plain or compressed with gzip. Three formats
// are known; a line that begins with { is JSON, any other is one of the two others:
//
//   - JSON, as below
//   - Combined Log Format as nginx and Apache write it, with or without a virtual
//     host in front; the host may also be given by Config.Host
//   - Common Log Format: the same without referer and user agent
//
// These fields of a JSON line are read, in the order of preference where several
// names are given. Only the time, the client and the target must be there; other
// fields are ignored.
//
//	time      time, StartUTC, ts, timestamp, @timestamp, msec, time_iso8601, time_local:
//	          RFC 3339, the form of the Common Log Format, or a Unix time in seconds,
//	          milliseconds, microseconds or nanoseconds, recognized by its size
//	client    client, client_ip, remote_ip, remote_addr, ClientHost: an IP address, perhaps with a port
//	target    target, request_uri, uri, path, url, RequestPath: as sent, with its query; or
//	          a request line in request
//	query     query, query_string, args: where the target has none
//	method    method, request_method, RequestMethod; GET by default
//	host      host, http_host, vhost, RequestHost
//	headers   {name: value or [values]}; without it, user_agent, referer, referrer, and
//	          http_name for the header Name, as nginx names its variables
//	tier      the client's tier
//	status    status, status_code, DownstreamStatus: of the answer, for a behavior policy
//	trusted   true if the request came through a trusted proxy
//	duration  duration or request_time in seconds (or text such as "12ms"), duration_ms,
//	          Duration in nanoseconds
//
// If request is an object, its fields are read as those of the line, which is how
// Caddy logs. Cookies are those of the Cookie header.
//
// # Time
//
// The clock is the log's: a line's time is taken for the moment at which the request
// arrived. Logs are often slightly out of order, because a line is written when its
// request ends. The clock never runs back: a line older than one before it is decided
// at the time of that one, as a store would. Such lines are counted, and the report
// warns if they are more than 1%.
//
// Concurrency slots are taken for the logged duration. Without one they are returned
// at once, and the report says so.
//
// # Trust
//
// The tier field of a line counts as it is, because the log's writer determined it. A cost from a header counts only if the line says trusted, or Config.Trusted
// speaks for all lines; so does a tier from Config.TierHeader.
//
// # Limits of a replay
//
// A log holds what clients sent to the rules of then. A client that is refused may
// give up, or try again; a replay does neither. And counts are shared by the nodes of
// a region: only the merged log of all of them shows what a region would have counted.
package replay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/weir-edge/weir/pkg/limiter/memory"
	"github.com/weir-edge/weir/pkg/limiter/rules"
)

// Format is how a log is written.
type Format uint8

// The formats. Combined includes the Common Log Format.
const (
	Auto Format = iota // each line by its first character
	JSONLines
	Combined
)

var formatNames = [...]string{Auto: "auto", JSONLines: "json", Combined: "combined"}

func ParseFormat(name string) (Format, error) {
	for f, known := range formatNames {
		if known == name {
			return Format(f), nil
		}
	}
	return Auto, fmt.Errorf("format %q: unknown; use auto, json or combined", name)
}

// Config says what to replay, and how to read the log.
type Config struct {
	// Candidate is the document to test.
	Candidate *rules.Set
	// Running is the document for comparison; nil for none.
	Running *rules.Set
	Format  Format
	// Host applies to lines that name none.
	Host string
	// Trusted says that lines without a trusted field came through a trusted proxy.
	Trusted bool
	// TierHeader names the header that holds the tier of a trusted request, as in the
	// edge's configuration. A tier field in the line takes precedence.
	TierHeader string
	// Paths is server.paths of the nodes: match_all, strict or normalized; "" is match_all.
	Paths string
	// Top is how many clients are listed for each rule; 0 means 10.
	Top int
	// MaxKeys bounds the memory: how many counters each document may keep at a time,
	// and how many limited clients each list can tell apart. 0 means
	// memory.DefaultMaxKeys.
	MaxKeys int
	// Progress, if not nil, is called with the bytes (before decompression) and lines read
	// so far, at most ten times per second and at the end.
	Progress func(bytes, lines int64)
}

const (
	defaultTop    = 10
	progressEvery = 100 * time.Millisecond
)

// Run replays the log r. Lines that cannot be read are skipped and counted; it is an error
// if no line can be read, and if r fails. When ctx ends, Run returns immediately; a hanging
// Read of r is left to finish separately.
func Run(ctx context.Context, c Config, r io.Reader) (*Report, error) {
	if c.Candidate == nil {
		return nil, errors.New("no document to test")
	}
	if c.Top <= 0 {
		c.Top = defaultTop
	}
	if c.MaxKeys <= 0 {
		c.MaxKeys = memory.DefaultMaxKeys
	}
	p := newPlayback(&c)
	if err := each(ctx, &c, r, p.play); err != nil {
		return nil, err
	}
	return p.finish()
}

// playback joins the documents under replay.
type playback struct {
	config    *Config
	report    Report
	candidate *document
	running   *document // nil for none

	clock clock
	log   facts

	budget         budget
	limited, freed tally
	ruleChanges    map[string]*RuleChange
}

// facts are what the log turned out to carry.
type facts struct {
	fractions, hosts, tiers, trusted bool
}

func newPlayback(c *Config) *playback {
	p := &playback{config: c, budget: budget{left: c.MaxKeys}, ruleChanges: map[string]*RuleChange{}}
	p.candidate = newDocument(c.Candidate, c)
	if c.Running != nil {
		p.running = newDocument(c.Running, c)
	}
	return p
}

// play decides a batch of requests by both documents concurrently.
func (p *playback) play(b *batch) {
	b.count(&p.report.Lines, &p.report.Skipped, &p.report.Skips)
	entries := b.entries[:b.n]
	for i := range entries {
		p.log.learn(&entries[i])
		p.clock.tick(&entries[i])
	}
	if p.running == nil {
		p.candidate.judge(entries)
		return
	}
	p.candidate.examples, p.running.examples = p.limited.first == nil, p.freed.first == nil
	var both sync.WaitGroup
	both.Go(func() { p.running.judge(entries) })
	p.candidate.judge(entries)
	both.Wait()
	for i := range entries {
		p.compare(&entries[i], &p.candidate.judged[i], &p.running.judged[i])
	}
}

func (p *playback) compare(e *entry, after, before *judgement) {
	switch {
	case after.verdict == limited && before.verdict == passed:
		p.limited.add(&p.budget, e, func() *Example { return after.example })
		for _, rule := range after.refused {
			p.change(p.candidate, rule).NewlyLimited++
		}
	case after.verdict == passed && before.verdict == limited:
		p.freed.add(&p.budget, e, func() *Example { return before.example })
		for _, rule := range before.refused {
			p.change(p.running, rule).NoLongerLimited++
		}
	}
}

// learn records what the log carries.
func (f *facts) learn(e *entry) {
	f.fractions = f.fractions || e.time%1e6 != 0
	f.hosts = f.hosts || len(e.host) > 0
	f.tiers = f.tiers || len(e.tier) > 0
	f.trusted = f.trusted || e.trusted
}

// change returns the tally of changes by a rule.
func (p *playback) change(d *document, rule int) *RuleChange {
	id := d.set.Rules()[rule].ID
	c := p.ruleChanges[id]
	if c == nil {
		c = &RuleChange{Rule: id}
		p.ruleChanges[id] = c
	}
	return c
}
