package paired

import (
	"context"
	"errors"
	"math"
	"math/rand"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The machine's speed cancels out, and order and rounds are as documented.
func TestRun(t *testing.T) {
	var turns []string
	speed := 100.0
	contender := func(name string, factor float64) *Contender {
		return &Contender{Name: name, Measure: func(context.Context, int) (Sample, error) {
			turns = append(turns, name)
			if name == "bare" && len(turns)%2 == 1 {
				speed *= 1.5
			}
			return Sample{Rate: speed * factor, P99: time.Millisecond, Calls: 2}, nil
		}}
	}
	bare, weir := contender("bare", 1), contender("weir", 0.5)
	require.NoError(t, Run(t.Context(), Length{Least: 2}, bare, weir))
	require.Equal(t, []string{"bare", "weir", "weir", "bare"}, turns)
	require.Equal(t, 2.0, weir.Median(func(s Sample) float64 { return s.Calls }))

	seldom := contender("seldom", 0.25)
	seldom.Every, seldom.Loose = 5, true
	turns, bare.Samples, weir.Samples = nil, nil, nil
	require.NoError(t, Run(t.Context(), Length{Least: 1, Most: 20, Precision: 0.01}, bare, seldom))
	require.Len(t, bare.Samples, 1, "a loose contender does not prolong the measurement")
	turns, bare.Samples, seldom.Samples = nil, nil, nil
	require.NoError(t, Run(t.Context(), Length{Least: 6}, bare, seldom))
	ratio, _ := seldom.Ratio(bare)
	require.Equal(t, 0.25, ratio)

	failing := &Contender{Name: "broken", Measure: func(context.Context, int) (Sample, error) { return Sample{}, errors.New("no") }}
	require.EqualError(t, Run(t.Context(), Length{Least: 1}, failing), "broken: no")
}

// A measurement ends when it is precise, and its stated error is true: in about two of
// three runs the result is within it.
func TestPrecision(t *testing.T) {
	within, runs := 0, 200
	r := rand.New(rand.NewSource(1))
	for range runs {
		noisy := func(rate float64) *Contender {
			return &Contender{Measure: func(context.Context, int) (Sample, error) {
				return Sample{Rate: rate * (1 + 0.03*r.NormFloat64())}, nil
			}}
		}
		base, c := noisy(100), noisy(90)
		require.NoError(t, Run(t.Context(), Length{Least: 15, Most: 2000, Precision: 0.005}, base, c))
		require.Less(t, len(c.Samples), 2000)
		ratio, err := c.Ratio(base)
		require.LessOrEqual(t, err, 0.005*ratio)
		if math.Abs(ratio-0.9) <= 0.005*0.9 {
			within++
		}
	}
	require.Greater(t, within, runs/2)
}

func TestCompareOfFewRounds(t *testing.T) {
	ratio, err := Compare([]float64{1, 2}, []float64{2, 2})
	require.Equal(t, 0.75, ratio)
	require.True(t, math.IsInf(err, 1))
	ratio, _ = Compare([]float64{0}, []float64{1})
	require.True(t, math.IsNaN(ratio))
	_, err = Compare([]float64{1, 1, 1, 1, 1}, []float64{1, 1, 1, 1, 1})
	require.Zero(t, err)
}
