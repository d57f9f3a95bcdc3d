package spillsim

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	update = flag.Bool("update", false, "write the table in docs/DNS.md")
	trace  = flag.Bool("trace", false, "print what each PoP is asked for, every 5 s")
	seed   = flag.Uint64("seed", 1, "of all chance")
)

// The ways to spill, in the order of the table.
var ways = []struct {
	name    string
	routers []func(*world) router
}{
	{"this release", []func(*world) router{newSpilling, second}},
	{"omniscient", []func(*world) router{newOmniscient}},
	{"be81f43", []func(*world) router{newByLevel}},
	{"no spill", []func(*world) router{newStaying}},
}

// The bounds. Before the first 5 TTLs after a change are over, no more is shed than twice
// what an omniscient router lets a fleet shed under the same TTL and delay; chance may add a
// little. After that, hardly more is shed than by the omniscient one, networks stay where
// they are, and no PoP sheds because of others' clients. Without them, a PoP below its
// capacity sheds nothing here: "no spill" has none.
const (
	earlyTimes  = 2.0
	lateTimes   = 1.03
	byChance    = 0.001 // of demand
	movesMinute = 1.0   // % of all networks, in every minute
	pushed      = 0.001 // of demand
)

// outOfBounds returns which bounds a run breaks.
func outOfBounds(t *testing.T, s scenario, is, best result) (broken []string) {
	t.Helper()
	t.Logf("demand %.0f; shed at first %.1f (omniscient %.1f), then %.1f (%.1f); moves %.2f %% a minute, at worst %.2f; pushed %.1f (%.1f)",
		is.demand, is.shedEarly, best.shedEarly, is.shedLate, best.shedLate, is.movesLate, is.worstMinute, is.pushedLate, best.pushedLate)
	bound := func(what string, is, most float64) {
		if is > most {
			broken = append(broken, fmt.Sprintf("%s: %.2f, more than %.2f", what, is, most))
		}
	}
	bound("shed at first", is.shedEarly, earlyTimes*best.shedEarly+max(s.shed, byChance)*is.demand)
	bound("shed after 5 TTLs", is.shedLate, lateTimes*best.shedLate+max(s.late, byChance)*is.demand)
	bound("shed because of others' clients", is.pushedLate, best.pushedLate+max(s.pushed, pushed)*is.demand)
	bound("% of networks moved in a minute", is.worstMinute, max(s.moves, movesMinute))
	return broken
}

func TestSpill(t *testing.T) {
	rows := make([][]result, len(scenarios))
	var all sync.WaitGroup
	all.Add(len(scenarios))
	for i, s := range scenarios {
		rows[i] = make([]result, len(ways))
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			defer all.Done()
			for k, way := range ways {
				if k < 2 || *update {
					rows[i][k] = newWorld(s, *seed, way.routers...).run()
				}
			}
			is, best := rows[i][0], rows[i][1]
			if *trace {
				fmt.Println(strings.Join(is.trace, "\n"))
			}
			require.Empty(t, outOfBounds(t, s, is, best))
		})
	}
	t.Cleanup(func() {
		if *update && !t.Failed() {
			write(t, rows)
		}
	})
}

const (
	begin = "<!-- make steering writes what follows -->\n"
	end   = "<!-- end -->"
	page  = "../../docs/DNS.md"
)

func write(t *testing.T, rows [][]result) {
	var b strings.Builder
	b.WriteString("| what changes | demand | this release | omniscient | be81f43 | no spill | moves, be81f43 |\n|---|---:|---:|---:|---:|---:|---:|\n")
	for i, s := range scenarios {
		r := rows[i]
		fmt.Fprintf(&b, "| %s | %.0f |", s.name, r[0].demand)
		for _, way := range r {
			fmt.Fprintf(&b, " %.0f / %.0f |", way.shedEarly, way.shedLate)
		}
		fmt.Fprintf(&b, " %.1f, %.1f |\n", r[0].worstMinute, r[2].worstMinute)
	}
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	before, rest, found := strings.Cut(string(text), begin)
	require.True(t, found)
	_, after, found := strings.Cut(rest, end)
	require.True(t, found)
	require.NoError(t, os.WriteFile(page, []byte(before+begin+b.String()+end+after), 0o644))
}
