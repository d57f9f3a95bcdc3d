package spillsim

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	update = flag.Bool("update", false, "write the table in docs/STEERING.md")
	trace  = flag.Bool("trace", false, "print what each PoP is asked for, every 5 s")
	seed   = flag.Uint64("seed", 1, "the first of all chance")
	seeds  = flag.Uint64("seeds", 0, "judge every scenario over so many seeds, from -seed on")
)

// The ways to spill, in the order of the table.
var ways = []struct {
	name    string
	routers []func(*world) router
}{
	{"weir", []func(*world) router{newSpilling, second}},
	{"omniscient", []func(*world) router{newOmniscient}},
	{"no spill", []func(*world) router{newStaying}},
}

func TestSpill(t *testing.T) {
	rows := make([][]result, len(scenarios)) // of the first seed
	judgments := make([]judgment, len(scenarios))
	t.Run("scenarios", func(t *testing.T) {
		for i, s := range scenarios {
			rows[i] = make([]result, len(ways))
			for n := range cmp.Or(*seeds, s.seeds, 1) {
				t.Run(fmt.Sprintf("%s/%d", s.name, *seed+n), func(t *testing.T) {
					t.Parallel()
					all := rows[i]
					if n > 0 {
						all = make([]result, 2)
					}
					for k, way := range ways {
						if k < 2 || *update && n == 0 {
							all[k] = newWorld(s, *seed+n, way.routers...).run()
						}
					}
					if *trace {
						fmt.Println(strings.Join(all[0].trace, "\n"))
					}
					logged(t, all[0], all[1])
					judgments[i].add(all[0], all[1])
					if *seeds == 0 {
						require.Empty(t, outOfBounds(all[0], all[1], s.allowances))
					}
				})
			}
		}
	})
	t.Log("\n" + table(judgments))
	if *update && !t.Failed() {
		write(t, comparison(rows))
	}
}

const page = "../../docs/STEERING.md"

// write replaces the table of the page.
func write(t *testing.T, table string) {
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	const begin, end = "<!-- make steering -->\n", "<!-- end -->"
	before, rest, found := strings.Cut(string(text), begin)
	require.True(t, found, begin)
	_, after, found := strings.Cut(rest, end)
	require.True(t, found)
	require.NoError(t, os.WriteFile(page, []byte(before+begin+table+end+after), 0o644))
}

// comparison shows what each way sheds.
func comparison(rows [][]result) string {
	var b strings.Builder
	b.WriteString("| what changes | demand | weir | omniscient | no spill | moves |\n|---|---:|---:|---:|---:|---:|\n")
	for i, s := range scenarios {
		r := rows[i]
		fmt.Fprintf(&b, "| %s | %.0f |", s.name, r[0].demand)
		for _, way := range r {
			fmt.Fprintf(&b, " %.0f / %.0f |", way.shedEarly, way.shedLate)
		}
		fmt.Fprintf(&b, " %.1f |\n", r[0].worstMinute)
	}
	return b.String()
}
