// Package storetest is the specification of a store, as timelines that any store
// can run. A timeline is a text file of testdata:
//
//	# comment
//	rule r token_bucket limit=3 window=1s burst=5
//	#  at     question             verdict  remaining/retry/reset of each check
//	   0s     take r            -> pass     4 0s 334ms
//	   0s     take r*2 s/other  -> refuse   +4 0s 334ms | 0 5s 5s
//	   10ms   take r as first   -> pass     3 0s 657ms
//	   20ms   return first
//	   20ms   peek r            -> pass     4 0s 314ms
//	   20ms   reset r
//
// A check is RULE, RULE/KEY (another client) and RULE*COST in any combination. A sign
// marks a check that disagrees with the verdict: + would pass alone, - (a shadow) would
// refuse. Times count from a moment that is aligned to every window that divides a week.
// Repeating a rule line with other values changes the rule. Options of a rule: limit
// window burst min_interval storage count_denied shadow leased global.
package storetest

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/pkg/limiter"
)

//go:embed testdata/*.txt
var timelines embed.FS

// Epoch is when timelines begin, in Unix microseconds: a multiple of a week.
const Epoch = int64(2800) * 7 * 24 * 3600 * 1e6

// Clock is a clock that a test sets by hand.
type Clock struct{ now atomic.Int64 }

// Now returns Unix microseconds.
func (c *Clock) Now() int64 { return c.now.Load() }

// Set moves the clock to Epoch + d.
func (c *Clock) Set(d time.Duration) { c.now.Store(Epoch + d.Microseconds()) }

// Open returns an empty store that uses that clock.
type Open func(t *testing.T, clock func() int64) limiter.FullStore

// Run runs every timeline against the store, each as a subtest.
func Run(t *testing.T, open Open) {
	files, err := fs.Glob(timelines, "testdata/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(path.Base(file), ".txt"), func(t *testing.T) {
			text, err := timelines.ReadFile(file)
			require.NoError(t, err)
			r := &runner{t: t, file: file, rules: map[string]*limiter.Limit{}, taken: map[string]taken{}}
			r.store = open(t, r.clock.Now)
			for i, line := range strings.Split(string(text), "\n") {
				r.line, r.text = i+1, strings.TrimSpace(line)
				r.run(r.text)
			}
		})
	}
}

type runner struct {
	t     *testing.T
	file  string
	line  int
	text  string
	clock Clock
	store limiter.FullStore
	rules map[string]*limiter.Limit
	taken map[string]taken
	slot  uint64
}

type taken struct {
	checks   []limiter.Check
	decision limiter.Decision
}

func (r *runner) fail(format string, args ...any) {
	r.t.Helper()
	r.t.Fatalf("%s:%d: %s\n\t%s", r.file, r.line, fmt.Sprintf(format, args...), r.text)
}

func (r *runner) run(line string) {
	r.t.Helper()
	if line == "" || strings.HasPrefix(line, "#") {
		return
	}
	question, want, _ := strings.Cut(line, "->")
	words := strings.Fields(question)
	if words[0] == "rule" {
		l, err := ParseLimit(words[1:])
		if err != nil {
			r.fail("%v", err)
		}
		r.rules[l.Rule] = l
		return
	}
	r.clock.Set(r.duration(words[0]))
	var name string
	if n := len(words); n > 3 && words[n-2] == "as" {
		name, words = words[n-1], words[:n-2]
	}
	ctx := context.Background()
	switch op, rest := words[1], words[2:]; op {
	case "take", "peek":
		checks := r.checks(rest, op == "peek")
		var d limiter.Decision
		if err := r.store.Take(ctx, checks, &d); err != nil {
			r.fail("%v", err)
		}
		r.compare(&d, strings.Fields(want))
		r.taken[name] = taken{checks, d}
	case "return":
		was := r.taken[rest[0]]
		if err := r.store.Return(ctx, was.checks, &was.decision); err != nil {
			r.fail("%v", err)
		}
	case "reset":
		if err := r.store.Reset(ctx, r.checks(rest, false)); err != nil {
			r.fail("%v", err)
		}
	case "merge", "tally":
		r.merge(op, rest, strings.Fields(want))
	case "give", "got", "burn":
		r.move(op, rest, strings.Fields(want))
	default:
		r.fail("unknown operation %q", op)
	}
}

func (r *runner) duration(s string) time.Duration {
	d, err := time.ParseDuration(s)
	if err != nil {
		r.fail("%v", err)
	}
	return d
}

func (r *runner) checks(words []string, peek bool) []limiter.Check {
	var checks []limiter.Check
	r.slot++
	for _, w := range words {
		w, costText, hasCost := strings.Cut(w, "*")
		rule, subject, hasSubject := strings.Cut(w, "/")
		l := r.rules[rule]
		if l == nil {
			r.fail("unknown rule %q", rule)
		}
		if !hasSubject {
			subject = "client"
		}
		cost := int64(1)
		if hasCost {
			var err error
			if cost, err = strconv.ParseInt(costText, 10, 64); err != nil {
				r.fail("%v", err)
			}
		}
		checks = append(checks, limiter.Check{Limit: l, Key: Key(subject, l), Cost: cost, Slot: r.slot, Peek: peek})
	}
	return checks
}

// Key returns the key of a rule for one client.
func Key(subject string, l *limiter.Limit) []byte {
	return fmt.Appendf(nil, "weir:{%s}:%s:%s", subject, l.Rule, l.Tag())
}

func (r *runner) compare(d *limiter.Decision, want []string) {
	r.t.Helper()
	verdict := "refuse"
	if d.Allowed {
		verdict = "pass"
	}
	got := []string{verdict}
	for i, res := range d.Results {
		if i > 0 {
			got = append(got, "|")
		}
		remaining := strconv.FormatInt(res.Remaining, 10)
		if res.Allowed != d.Allowed {
			remaining = map[bool]string{true: "+", false: "-"}[res.Allowed] + remaining
		}
		got = append(got, remaining, res.RetryAfter.String(), res.ResetAfter.String())
	}
	for i, w := range want { // 90s is 1m30s
		if d, err := time.ParseDuration(w); err == nil && strings.ContainsAny(w, "smh") {
			want[i] = d.String()
		}
	}
	if g, w := strings.Join(got, " "), strings.Join(want, " "); g != w {
		r.fail("got %s, want %s", g, w)
	}
}

// ParseLimit parses the words of a rule line: name, algorithm, options.
func ParseLimit(words []string) (*limiter.Limit, error) {
	if len(words) < 2 {
		return nil, fmt.Errorf("a rule needs a name and an algorithm")
	}
	algorithm, ok := limiter.ParseAlgorithm(words[1])
	if !ok {
		return nil, fmt.Errorf("unknown algorithm %q", words[1])
	}
	l := &limiter.Limit{Rule: words[0], Algorithm: algorithm}
	for _, w := range words[2:] {
		name, value, _ := strings.Cut(w, "=")
		var err error
		switch name {
		case "limit":
			l.Limit, err = strconv.ParseInt(value, 10, 64)
		case "burst":
			l.Burst, err = strconv.ParseInt(value, 10, 64)
		case "window":
			l.Window, err = time.ParseDuration(value)
		case "min_interval":
			l.MinInterval, err = time.ParseDuration(value)
		case "storage":
			if value == limiter.SortedSet.String() {
				l.Storage = limiter.SortedSet
			}
		case "overdraft":
			l.Overdraft = true
		case "count_denied":
			l.CountDenied = true
		case "global":
			l.Global = &limiter.Global{}
		case "escrow":
			l.Global = &limiter.Global{Escrow: true}
		case "leased":
			l.Leased = true
		case "shadow":
			l.Shadow = true
		default:
			err = fmt.Errorf("unknown option %q", name)
		}
		if err != nil {
			return nil, err
		}
	}
	if errs := l.Validate(); len(errs) > 0 {
		return nil, errs[0]
	}
	return l, nil
}
