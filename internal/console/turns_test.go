package console

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns, began := newTurns(3, 2), time.Now()
		takes := func(person string) func() {
			end, ok := turns.take(t.Context(), person)
			require.True(t, ok, person)
			return end
		}
		refuses := func(person string) {
			began := time.Now()
			_, ok := turns.take(t.Context(), person)
			require.False(t, ok, person)
			require.Equal(t, turnWait, time.Since(began))
		}
		ends := []func(){takes("ana"), takes("ana")}
		refuses("ana")
		ends = append(ends, takes("bob"))
		refuses("eve")
		next := make(chan func())
		go func() { next <- takes("eve") }()
		synctest.Wait()
		ends[0]()
		ends[0] = <-next
		for _, end := range ends {
			end()
		}
		require.Empty(t, turns.people)
		require.Empty(t, turns.all)
		require.Equal(t, 2*turnWait, time.Since(began), "the others did not wait")
	})
}
