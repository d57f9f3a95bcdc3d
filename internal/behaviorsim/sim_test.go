package behaviorsim

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/behaviorsim/corpus"
	"github.com/weir-edge/weir/pkg/behavior"
)

var (
	update = flag.Bool("update", false, "simulate 1,000 subjects of each kind, and write the tables in docs/CORPUS.md")
	few    = flag.Int("subjects", 50, "of each kind, without -update")
)

const long = 1000

var start = time.Date(2026, 1, 5, 9, 0, 0, 0, time.UTC)

// outcome is a defense's effect on one kind's subjects.
type outcome struct {
	subjects, refusedSubjects, detected, inTime int
	requests, refused, delayed, static          int
	toRequests                                  []int // until detection
	toTime                                      []time.Duration
}

var ways = []struct {
	name string
	make func(k *corpus.Kind) defense
}{
	{"weir", func(k *corpus.Kind) defense { return newShipped(start, max(1, k.Clients)) }},
	{"static", func(*corpus.Kind) defense { return &static{newLimits()} }},
	{"published", func(*corpus.Kind) defense { return &published{newLimits(), map[int]*scored{}} }},
}

// run simulates one kind's subjects. All defenses get the same seeds.
func run(k *corpus.Kind, subjects int, draw func(*corpus.Kind, int) corpus.Actor, make func(*corpus.Kind) defense) (o outcome) {
	if k.Share > 0 {
		subjects = max(5, int(float64(subjects)*k.Share))
	}
	for n := range subjects {
		o.subject(k, draw(k, n), make(k))
	}
	return o
}

// subject simulates one subject from its first request.
func (o *outcome) subject(k *corpus.Kind, act corpus.Actor, d defense) {
	now, n, was, refused := start, 0, false, false
	var last corpus.Answer
	for {
		wait, q := act(last)
		if now = now.Add(wait); now.Sub(start) > k.Lasts {
			break
		}
		n++
		v := d.decide(now, &q)
		last = v.Answer
		o.requests++
		if v.static {
			o.static++
		}
		if v.own {
			o.refused++
			refused = true
		}
		if v.delayed && !v.own {
			o.delayed++
			now = now.Add(tarpit)
		}
		if v.detected && !was {
			was = true
			o.detected++
			o.toRequests, o.toTime = append(o.toRequests, n), append(o.toTime, now.Sub(start))
			if n <= 200 || now.Sub(start) <= k.Within {
				o.inTime++
			}
		}
	}
	o.subjects++
	if refused {
		o.refusedSubjects++
	}
}

func percent(part, all int) float64 { return 100 * float64(part) / float64(max(1, all)) }

// The goals of the shipped policy.
func TestCorpus(t *testing.T) {
	subjects := *few
	if *update {
		subjects = long
	}
	results := make([][]outcome, len(corpus.Kinds))
	var benign outcome
	for i := range corpus.Kinds {
		k := &corpus.Kinds[i]
		results[i] = make([]outcome, len(ways))
		for w, way := range ways {
			if w == 0 {
				results[i][w] = run(k, subjects, (*corpus.Kind).Subject, way.make)
			} else if *update { // their shares need no precision
				results[i][w] = run(k, subjects/10, (*corpus.Kind).Subject, way.make)
			}
		}
		o := results[i][0]
		t.Logf("%-38s %+v", k.Name, []string{row(k, &o)})
		if !k.Hostile {
			benign.add(&o)
		} else if !k.Reports {
			require.GreaterOrEqual(t, percent(o.inTime, o.subjects), 95.0, "%s: detected within 200 requests or %s", k.Name, k.Within)
		}
	}
	benign.harmless(t)
	if *update {
		write(t, results)
	}
}

// The same goals hold when each client's requests are spread over three nodes.
func TestCorpusOverThreeNodes(t *testing.T) {
	var benign outcome
	for i := range corpus.Kinds {
		k := &corpus.Kinds[i]
		o := run(k, max(5, *few/5), (*corpus.Kind).Subject, func(k *corpus.Kind) defense { return newSpread(start, max(1, k.Clients)) })
		t.Logf("%-38s %+v", k.Name, []string{row(k, &o)})
		if !k.Hostile {
			benign.add(&o)
		} else if !k.Reports {
			require.GreaterOrEqual(t, percent(o.inTime, o.subjects), 95.0, "%s: detected within 200 requests or %s", k.Name, k.Within)
		}
	}
	benign.harmless(t)
}

// heldOut draws subjects that the shipped policy was not tuned on.
func heldOut(k *corpus.Kind, n int) corpus.Actor {
	return k.HeldOut(fmt.Sprintf("%+v %+v", *behavior.Default(), *behavior.DefaultRoutes()), n)
}

// The shipped policy meets its goals on subjects that it was not tuned on.
func TestCorpusHeldOut(t *testing.T) {
	subjects := max(5, *few/2)
	if *update {
		subjects = long
	}
	var benign outcome
	for i := range corpus.Kinds {
		k := &corpus.Kinds[i]
		o := run(k, subjects, heldOut, ways[0].make)
		t.Logf("%-38s %+v", k.Name, []string{row(k, &o)})
		if !k.Hostile {
			benign.add(&o)
		} else if !k.Reports {
			require.GreaterOrEqual(t, percent(o.inTime, o.subjects), 95.0, "%s: detected within 200 requests or %s", k.Name, k.Within)
		}
	}
	benign.harmless(t)
}

func (o *outcome) add(other *outcome) {
	o.subjects += other.subjects
	o.refusedSubjects += other.refusedSubjects
	o.requests += other.requests
	o.refused += other.refused
	o.delayed += other.delayed
}

// harmless requires the goals for benign subjects.
func (o *outcome) harmless(t *testing.T) {
	t.Helper()
	require.LessOrEqual(t, percent(o.refusedSubjects, o.subjects), 0.1, "benign subjects refused")
	require.LessOrEqual(t, percent(o.refused+o.delayed, o.requests), 0.05, "benign requests refused or delayed")
}

// row describes weir's effect on one kind, for the log.
func row(k *corpus.Kind, o *outcome) string {
	return fmt.Sprintf("subjects %d refused %d detected %d in time %d; requests %d static %d refused %d delayed %d", o.subjects, o.refusedSubjects, o.detected, o.inTime,
		o.requests, o.static, o.refused, o.delayed)
}

// shareText formats a percentage, with enough digits for those between 0 and 0.01.
func shareText(part, all int) string {
	switch v := percent(part, all); {
	case part == 0:
		return "0"
	case v < 0.01:
		return "< 0.01%"
	case v < 1:
		return fmt.Sprintf("%.2f%%", v)
	case part == all:
		return "100%"
	default:
		return fmt.Sprintf("%.1f%%", v)
	}
}

func median[T int | time.Duration](list []T) T {
	if len(list) == 0 {
		return 0
	}
	slices.Sort(list)
	return list[len(list)/2]
}

func write(t *testing.T, results [][]outcome) {
	t.Helper()
	var b strings.Builder
	b.WriteString("| benign kind | subjects | refused: weir | published | requests | refused or delayed: weir | published | by the limit alone |\n|---|---|---|---|---|---|---|---|\n")
	for i, k := range corpus.Kinds {
		if w, p := results[i][0], results[i][2]; !k.Hostile {
			fmt.Fprintf(&b, "| %s | %d | %s | %s | %d | %s | %s | %s |\n", k.Name, w.subjects, shareText(w.refusedSubjects, w.subjects), shareText(p.refusedSubjects, p.subjects),
				w.requests, shareText(w.refused+w.delayed, w.requests), shareText(p.refused+p.delayed, p.requests), shareText(w.static, w.requests))
		}
	}
	b.WriteString("\n| hostile kind | subjects | detected in time: weir | published | limit alone | weir: median requests | time | refused or delayed after all |\n|---|---|---|---|---|---|---|---|\n")
	for i, k := range corpus.Kinds {
		if w, s, p := results[i][0], results[i][1], results[i][2]; k.Hostile {
			requests, after := "–", "–"
			if len(w.toTime) > 0 {
				requests, after = fmt.Sprint(median(w.toRequests)), fmt.Sprintf("%.0f s", median(w.toTime).Seconds())
			}
			fmt.Fprintf(&b, "| %s | %d | %s | %s | %s | %s | %s | %s |\n", k.Name, w.subjects, shareText(w.inTime, w.subjects), shareText(p.inTime, p.subjects), shareText(s.inTime, s.subjects),
				requests, after, shareText(w.refused+w.delayed, w.requests))
		}
	}
	replace(t, b.String())
}

// replace writes the tables of docs/CORPUS.md.
func replace(t *testing.T, table string) {
	t.Helper()
	const begin, end = "<!-- make behavior -->\n", "<!-- end -->"
	const name = "../../docs/CORPUS.md"
	page, err := os.ReadFile(name)
	require.NoError(t, err)
	before, rest, ok := strings.Cut(string(page), begin)
	require.True(t, ok)
	_, after, ok := strings.Cut(rest, end)
	require.True(t, ok)
	require.NoError(t, os.WriteFile(name, []byte(before+begin+table+end+after), 0o644))
}
