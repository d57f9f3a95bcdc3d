package spillsim

import (
	"fmt"
	"strings"
	"sync"
	"testing"
)

// The bounds. In the first 5 TTLs after a change, at most twice as much is shed as with an
// omniscient router under the same TTL and delay; chance may add a little. After that, hardly more is shed than by the omniscient one, networks stay where
// they are, and no PoP sheds because of others' clients. Without them, a PoP below its
// capacity sheds nothing here: "no spill" has none.
const (
	earlyTimes  = 2.0
	lateTimes   = 1.03
	byChance    = 0.001 // of demand
	movesMinute = 1.0   // % of all networks, in every minute
)

// bounds are what a run must not exceed, in the order of the table, beyond what is allowed.
var bounds = []struct {
	name  string
	value func(is, best *result, allowed allowances) (value, most float64)
}{
	{"shed at first", func(is, best *result, allowed allowances) (value, most float64) {
		return is.shedEarly, earlyTimes*best.shedEarly + max(allowed.shed, byChance)*is.demand
	}},
	{"shed then", func(is, best *result, allowed allowances) (value, most float64) {
		return is.shedLate, lateTimes*best.shedLate + max(allowed.late, byChance)*is.demand
	}},
	{"shed because of others' clients", func(is, best *result, allowed allowances) (value, most float64) {
		return is.pushedLate, best.pushedLate + max(allowed.pushed, byChance)*is.demand
	}},
	{"% of networks moved in the worst minute", func(is, _ *result, allowed allowances) (value, most float64) {
		return is.worstMinute, max(allowed.moves, movesMinute)
	}},
}

// outOfBounds returns which bounds a run breaks.
func outOfBounds(is, best result, allowed allowances) (broken []string) {
	for _, b := range bounds {
		if value, most := b.value(&is, &best, allowed); value > most {
			broken = append(broken, fmt.Sprintf("%s: %.2f, more than %.2f", b.name, value, most))
		}
	}
	return broken
}

func logged(t *testing.T, is, best result) {
	t.Helper()
	t.Logf("demand %.0f; shed at first %.1f (omniscient %.1f), then %.1f (%.1f); moves %.2f%% per minute, at worst %.2f; pushed %.1f (%.1f)",
		is.demand, is.shedEarly, best.shedEarly, is.shedLate, best.shedLate, is.movesLate, is.worstMinute, is.pushedLate, best.pushedLate)
}

// judgment is how often a scenario's runs were within each bound, with nothing allowed.
type judgment struct {
	mu           sync.Mutex
	runs, inside int // inside: within all
	within       []int
	worst        []verdict // the run that exceeds each bound most, or comes nearest
}

type verdict struct{ value, most float64 }

func (j *judgment) add(is, best result) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.runs++; j.runs == 1 {
		j.within, j.worst = make([]int, len(bounds)), make([]verdict, len(bounds))
	}
	if len(outOfBounds(is, best, allowances{})) == 0 {
		j.inside++
	}
	for i, b := range bounds {
		value, most := b.value(&is, &best, allowances{})
		if value <= most {
			j.within[i]++
		}
		if w := j.worst[i]; j.runs == 1 || value-most > w.value-w.most {
			j.worst[i] = verdict{value, most}
		}
	}
}

// table shows the share of runs within each bound, and the worst.
func table(judgments []judgment) string {
	var b strings.Builder
	b.WriteString("| runs within | all bounds |")
	for _, bound := range bounds {
		b.WriteString(" " + bound.name + " |")
	}
	b.WriteString("\n|---|---:" + strings.Repeat("|---:", len(bounds)) + "|\n")
	for i := range judgments {
		j := &judgments[i]
		fmt.Fprintf(&b, "| %s | %d/%d |", scenarios[i].name, j.inside, j.runs)
		for k, w := range j.worst {
			fmt.Fprintf(&b, " %d; %.1f of %.1f |", j.within[k], w.value, w.most)
		}
		b.WriteString("\n")
	}
	return b.String()
}
