package consul

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// reply is one scripted answer: a revision of the value, 0 when it is missing.
type reply struct {
	revision int
	index    uint64
	after    time.Duration
	err      error
}

var errAway = errors.New("away")

// scripted follows a source with these replies, the last one forever, for told. It returns the
// queries with their times, and the deliveries.
type scripted struct {
	asked     []query
	at        []time.Duration
	delivered []int
	failures  int
	answers   int
}

func follows(t *testing.T, long time.Duration, replies ...reply) *scripted {
	t.Helper()
	s := &scripted{}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), long)
		defer cancel()
		start := time.Now()
		follow(ctx, source[int]{
			read: func(ctx context.Context, q query) (int, uint64, error) {
				r := replies[min(len(s.asked), len(replies)-1)]
				s.asked, s.at = append(s.asked, q), append(s.at, time.Since(start))
				_ = Pause(ctx, r.after)
				return r.revision, r.index, r.err
			},
			same:  func(a, b int) bool { return a == b },
			older: func(last, now int) bool { return now < last },
		}, func(err error) {
			if err != nil {
				s.failures++
			} else {
				s.answers++
			}
		}, func(revision int) { s.delivered = append(s.delivered, revision) })
		require.Equal(t, long, time.Since(start), "ends with its context")
	})
	return s
}

func TestFollowDeliversChangesOnly(t *testing.T) {
	s := follows(t, time.Minute,
		reply{revision: 1, index: 10},
		reply{revision: 1, index: 11, after: time.Second}, // something else changed
		reply{revision: 2, index: 12, after: time.Second},
		reply{revision: 2, index: 12, after: 31 * time.Second}, // nothing did
		reply{revision: 3, index: 13, after: time.Second},
		reply{revision: 3, index: 13, after: time.Hour},
	)
	require.Equal(t, []int{1, 2, 3}, s.delivered)
	require.Equal(t, []query{{}, {index: 10}, {index: 11}, {index: 12}, {index: 12}, {index: 13}}, s.asked)
	require.Equal(t, 5, s.answers)
	require.Zero(t, s.failures)
}

func TestFollowDeliversAMissingValueAtOnce(t *testing.T) {
	s := follows(t, time.Second, reply{revision: 0, index: 7}, reply{after: time.Hour})
	require.Equal(t, []int{0}, s.delivered)
	require.Equal(t, []query{{}, {index: 7}}, s.asked)
}

func TestFollowAsksTheLeaderBeforeItGoesBack(t *testing.T) {
	t.Run("a server that lags behind", func(t *testing.T) {
		s := follows(t, time.Minute,
			reply{revision: 2, index: 20},
			reply{revision: 1, index: 21, after: time.Second},
			reply{revision: 2, index: 22},
			reply{after: time.Hour},
		)
		require.Equal(t, []int{2}, s.delivered)
		require.Equal(t, []query{{}, {index: 20}, {consistent: true}, {index: 22}}, s.asked)
	})
	t.Run("an empty answer", func(t *testing.T) {
		s := follows(t, time.Minute, reply{revision: 2, index: 20}, reply{index: 21, after: time.Second}, reply{revision: 3, index: 22}, reply{after: time.Hour})
		require.Equal(t, []int{2, 3}, s.delivered)
	})
	t.Run("deleted", func(t *testing.T) {
		s := follows(t, time.Minute, reply{revision: 2, index: 20}, reply{index: 21, after: time.Second}, reply{index: 21}, reply{after: time.Hour})
		require.Equal(t, []int{2, 0}, s.delivered)
		require.Equal(t, []query{{}, {index: 20}, {consistent: true}, {index: 21}}, s.asked)
	})
	t.Run("restored from an old snapshot", func(t *testing.T) {
		s := follows(t, time.Minute,
			reply{revision: 5, index: 50},
			reply{revision: 3, index: 30, after: time.Second}, // index and content go backwards
			reply{revision: 3, index: 30},
			reply{revision: 4, index: 31, after: time.Second}, // newer than the restored state
			reply{after: time.Hour},
		)
		require.Equal(t, []int{5, 3, 4}, s.delivered)
		require.Equal(t, []query{{}, {index: 50}, {consistent: true}, {index: 30}, {index: 31}}, s.asked)
	})
	t.Run("which may take a while", func(t *testing.T) {
		s := follows(t, 2*time.Minute,
			reply{revision: 2, index: 20},
			reply{index: 21, after: time.Second},
			reply{err: errAway}, reply{err: errAway},
			reply{revision: 2, index: 20},
			reply{after: time.Hour},
		)
		require.Equal(t, []int{2}, s.delivered, "an outage confirms nothing")
		require.Equal(t, []query{{}, {index: 20}, {consistent: true}, {consistent: true}, {consistent: true}, {index: 20}}, s.asked)
	})
}

func TestFollowNeverWaitsForIndexZero(t *testing.T) {
	s := follows(t, time.Minute, reply{revision: 1, index: 0})
	require.Equal(t, []int{1}, s.delivered)
	for _, q := range s.asked {
		require.Equal(t, query{}, q)
	}
	atMostFourASecond(t, s)
}

func TestFollowStartsOverAfterAFailure(t *testing.T) {
	s := follows(t, time.Minute, reply{revision: 1, index: 5000}, reply{err: errAway, after: time.Second}, reply{revision: 1, index: 12}, reply{after: time.Hour})
	require.Equal(t, []int{1}, s.delivered, "the same content is not a change")
	require.Equal(t, []query{{}, {index: 5000}, {}, {index: 12}}, s.asked, "waiting for 5001 would be long")
	require.Equal(t, 1, s.failures)
}

func TestFollowIsNeverATightLoop(t *testing.T) {
	for name, r := range map[string]reply{
		"the same at once":     {revision: 1, index: 9},
		"without an index":     {revision: 1},
		"in a millisecond":     {revision: 1, index: 9, after: time.Millisecond},
		"nothing, at once":     {index: 9},
		"half the spacing":     {revision: 1, index: 9, after: 125 * time.Millisecond},
		"longer than that too": {revision: 1, index: 9, after: 499 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			s := follows(t, 5*time.Minute, r)
			atMostFourASecond(t, s)
			require.Greater(t, len(s.asked), 500, "but it continues")
		})
	}
	t.Run("failing at once", func(t *testing.T) {
		s := follows(t, 5*time.Minute, reply{err: errAway})
		require.Less(t, len(s.asked), 110)
		require.Greater(t, len(s.asked), 60, "but it continues")
	})
	t.Run("index to and fro", func(t *testing.T) {
		replies := []reply{{revision: 1, index: 10}}
		for range 1000 {
			replies = append(replies, reply{revision: 1, index: 5}, reply{revision: 1, index: 10})
		}
		atMostFourASecond(t, follows(t, time.Minute, replies...))
	})
	t.Run("changing without end", func(t *testing.T) {
		var replies []reply
		for i := range 1000 {
			replies = append(replies, reply{revision: i, index: uint64(i)})
		}
		s := follows(t, time.Minute, replies...)
		atMostFourASecond(t, s)
		require.Greater(t, len(s.delivered), 100)
	})
}

func TestFollowBacksOffAsScheduled(t *testing.T) {
	s := follows(t, 10*time.Minute, reply{revision: 1, index: 3}, reply{err: errAway})
	for i := 2; i < len(s.at); i++ {
		gap := s.at[i] - s.at[i-1]
		require.LessOrEqual(t, gap, Backoff(i-2, 0), "failure %d", i-2)
		require.Positive(t, gap)
	}
	require.Equal(t, 1, s.answers)
}

// A change after a quiet period is delivered immediately, and the next one within half a
// second.
func TestFollowDeliversWithinASecond(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		quiet := time.Duration(rapid.IntRange(0, 60_000).Draw(rt, "quiet ms")) * time.Millisecond
		next := time.Duration(rapid.IntRange(0, 2_000).Draw(rt, "next ms")) * time.Millisecond
		s := follows(t, 5*time.Minute, reply{revision: 1, index: 1}, reply{revision: 2, index: 2, after: quiet}, reply{revision: 3, index: 3, after: next}, reply{after: time.Hour})
		require.Equal(rt, []int{1, 2, 3}, s.delivered)
		require.Less(rt, s.at[1], 500*time.Millisecond)
		require.Less(rt, s.at[2]-s.at[1], max(quiet, 500*time.Millisecond)+1)
		require.Less(rt, s.at[3]-s.at[2], max(next, 500*time.Millisecond)+1)
	})
}

func atMostFourASecond(t *testing.T, s *scripted) {
	t.Helper()
	for i := 1; i < len(s.at); i++ {
		require.GreaterOrEqual(t, s.at[i]-s.at[i-1], spacing, "query %d", i)
	}
}
