package e2e

import (
	"cmp"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
)

// A drill breaks one thing under load and checks what weir guarantees for that failure.
type drill struct {
	breaks    string        // what breaks
	guarantee string        // besides: no request fails, and the limit holds within the bound
	local     bool          // Redis cannot decide during the outage, so the nodes' shares must
	short     bool          // also part of make test
	budget    time.Duration // of the store, unless the default; guarantee says why
	within    steps         // the steps of its recovery
	// forgives says why a count may restart although Redis did not lose it. cuts says why
	// requests went unanswered although they were not in flight on the killed process.
	forgives, cuts string
	run            func(t *testing.T, x *exercise)
}

// step is a part of a recovery, with its longest duration.
type step struct {
	what string
	most time.Duration
}

// steps are consecutive.
type steps []step

func (s steps) bound() (sum time.Duration) {
	for _, part := range s {
		sum += part.most
	}
	return sum
}

func (s steps) String() string {
	var list []string
	for _, part := range s {
		list = append(list, part.what+" "+elapsed(part.most))
	}
	return strings.Join(list, ", ")
}

const (
	drillLimit = 40
	drillNodes = 2
	workers    = 8                     // half of them send as greedy clients
	pace       = 10 * time.Millisecond // between a worker's requests
	greedy     = 8                     // clients that exhaust their limit before, during and after
	// share is what a node admits for a client while Redis does not decide; shares is the sum
	// over the nodes.
	share  = (drillLimit + drillNodes - 1) / drillNodes
	shares = drillNodes * share
)

var drillRules = fmt.Sprintf(`
rules:
  - {id: tight, match: {paths: [/tight]}, key: [client_ip], algorithm: fixed_window, limit: %d, window: %[2]s}
  - {id: roomy, match: {paths: [/]}, key: [client_ip], algorithm: fixed_window, limit: 1000000, window: %[2]s}
`, drillLimit, testenv.LongWindow())

// dayRules are drillRules with windows that end at midnight, UTC.
var dayRules = strings.ReplaceAll(drillRules, testenv.LongWindow(), "24h")

func drills() []drill {
	return slices.Concat(redisDrills(), consulDrills(), edgeDrills(), uploadDrills(), http2Drills(), timeDrills(), worldDrills())
}

// written returns the file to which make drills writes the table.
func written() string { return os.Getenv("WEIR_DRILLS") }

// long reports whether all drills run, on an otherwise idle machine, with bounds on their
// recovery times.
func long() bool { return written() != "" }

// TestDrills runs the short drills, or all if WEIR_DRILLS names the document that make drills
// updates.
func TestDrills(t *testing.T) {
	const file = "../../docs/DRILLS.md"
	into := written()
	var table strings.Builder
	table.WriteString("| what breaks | guarantee | requests | failed because of weir | over the limit of 40 | its bound | made of | recovered after | its bound | made of |\n|---|---|---|---|---|---|---|---|---|---|\n")
	ran := 0
	for _, d := range drills() {
		if into == "" && !d.short {
			continue
		}
		t.Run(d.breaks, func(t *testing.T) {
			x := &exercise{t: t, budget: d.budget}
			d.run(t, x)
			x.stop()
			require.Zero(t, x.failed.Load(), "of %d requests; the last: %v", x.asked.Load(), x.why.Load())
			over, bound, because := x.limits(d)
			cut := ""
			if n := x.cut.Load(); n > 0 {
				cut = fmt.Sprintf(", and %d %s", n, cmp.Or(d.cuts, "in flight on the killed process"))
			}
			row := fmt.Sprintf("| %s | %s | %d | %d%s | %d | %d | %s | %s | %s | %s |\n", d.breaks, d.guarantee, x.asked.Load(), x.failed.Load(), cut, over, bound, because, elapsed(x.recovered), elapsed(d.within.bound()), d.within)
			if long() {
				require.LessOrEqual(t, x.recovered, d.within.bound(), row)
			}
			t.Log(row, x.aside.causes)
			table.WriteString(row)
			ran++
		})
	}
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	marked := regexp.MustCompile(`(?s)(<!-- make drills -->\n).*(<!-- end -->)`)
	require.Regexp(t, marked, string(text))
	if into != "" && !t.Failed() && ran == len(drills()) { // -run may select fewer
		require.NoError(t, os.WriteFile(into, marked.ReplaceAll(text, []byte("${1}\n"+table.String()+"\n${2}")), 0o644))
		return
	}
	for _, d := range drills() {
		require.Contains(t, string(text), "\n| "+d.breaks+" | "+d.guarantee+" |", "docs/DRILLS.md is out of date; run make drills")
	}
}

func elapsed(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}
