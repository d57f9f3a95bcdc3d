package rollout

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/pkg/region/consul"
)

func atOnce() {}

func (c *Change[S]) prepared(t *testing.T) *Change[S] {
	t.Helper()
	c.Prepare(t.Context(), c.Look)
	c.Compare()
	return c
}

func reason(t *testing.T, err error) Reason {
	t.Helper()
	var stop *Stop
	require.ErrorAs(t, err, &stop)
	return stop.Why
}

// Two operators see the same difference. However their operations interleave, one of them
// changes all regions and the other none, and both know it.
func TestInterleavings(t *testing.T) {
	for seed := range uint64(400) {
		same := seed%4 == 0 // both want the same version
		synctest.Test(t, func(t *testing.T) {
			places := newPlaces(3)
			s := &schedule{random: rand.New(rand.NewPCG(seed, 0))}
			wanted := []string{"ana's", "bob's"}
			if same {
				wanted[1] = wanted[0]
			}
			if seed%3 == 0 { // ana finishes her earlier change, so she does not write the first region
				places[0].put(wanted[0])
			}
			changes, errs := make([]*Change[value], 2), make([]error, 2)
			var all sync.WaitGroup
			for i, by := range []string{"ana", "bob"} {
				changes[i], _ = changeTo(wanted[i], by, places, s.turn)
				all.Go(func() {
					c := changes[i]
					c.Prepare(t.Context(), c.Look)
					c.Compare()
					errs[i] = c.Write(t.Context())
				})
			}
			ended := make(chan struct{})
			go func() { all.Wait(); close(ended) }()
			s.run(ended)

			for _, p := range places {
				require.Equal(t, places[0].now.text, p.now.text, "seed %d: the fleet is divided", seed)
				require.Nil(t, p.lock, "seed %d", seed)
			}
			for i, c := range changes {
				has := places[0].now.text == wanted[i]
				for _, r := range c.Results() {
					if r.Outcome.Has() {
						require.True(t, has || errs[1-i] == nil, "seed %d: %s believes in %s", seed, c.By, r.Name)
					}
				}
				if errs[i] != nil {
					require.Equal(t, Moved, reason(t, errs[i]), "seed %d", seed)
					require.False(t, c.Wrote, "seed %d", seed)
				}
			}
			if same {
				require.NoError(t, errors.Join(errs...), "seed %d", seed)
			}
			require.True(t, changes[0].Wrote || changes[1].Wrote, "seed %d: nobody wrote", seed)
		})
	}
}

// A change sleeps past its locks, and another one undoes its writes: the first learns
// that at the end.
func TestSleepsPastItsLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		places := newPlaces(2)
		ana, _ := changeTo("ana's", "ana", places, atOnce)
		writes := 0
		places[1].fault = func(operation string) (error, bool) {
			if operation == "write" {
				if writes++; writes == 1 {
					places[1].mu.Unlock()
					<-time.After(time.Hour) // virtual time, past the expiry of its locks
					bob, _ := changeTo("old", "bob", places, atOnce)
					bob.prepared(t)
					require.NoError(t, bob.Write(t.Context()))
					require.Equal(t, []Outcome{Applied, AlreadyThere}, ends(bob))
					places[1].mu.Lock()
				}
			}
			return nil, false
		}
		require.NoError(t, ana.prepared(t).Write(t.Context()))
		require.Equal(t, []Outcome{Lost, Applied}, ends(ana))
		require.Equal(t, "old", ana.Regions[0].Now.text)
		require.True(t, ana.Wrote)
	})
}

func TestLockIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		places := newPlaces(2)
		places[1].lock = &consul.Lock{By: "bob", Until: time.Now().Add(time.Hour)}
		c, told := changeTo("new", "ana", places, atOnce)
		began := time.Now()
		err := c.prepared(t).Write(t.Context())
		require.Equal(t, Busy, reason(t, err))
		require.GreaterOrEqual(t, time.Since(began), c.LockWait)
		require.Equal(t, []string{"b bob"}, told.waits, "reported once")
		require.Nil(t, places[0].lock, "a waiting change holds nothing")
		require.Equal(t, []Outcome{Untouched, Untouched}, ends(c))

		places[1].lock.Until = time.Now().Add(3 * time.Second)
		require.NoError(t, c.Write(t.Context()), "it expires")
		require.Equal(t, []Outcome{Applied, Applied}, ends(c))

		ctx, cancel := context.WithCancel(t.Context())
		places[0].lock = &consul.Lock{By: "bob", Until: time.Now().Add(time.Hour)}
		c, _ = changeTo("newer", "ana", places, atOnce)
		time.AfterFunc(time.Second, cancel)
		require.Equal(t, Interrupted, reason(t, c.prepared(t).Write(ctx)))
	})
}

// A write's answer and what the region holds afterwards determine the outcome.
func TestAnswers(t *testing.T) {
	on := func(wanted string, err error, taken bool, then func()) func(string) (error, bool) {
		return func(operation string) (error, bool) {
			if operation != wanted {
				return nil, false
			}
			if then != nil {
				then()
			}
			return err, taken
		}
	}
	refused := &consul.StatusError{Code: 403}
	for name, test := range map[string]struct {
		fault func(*place) func(string) (error, bool)
		want  Outcome
	}{
		"lost, and it took effect": {func(*place) func(string) (error, bool) { return on("write", errLost, false, nil) }, Applied},
		"lost, and it did not":     {func(*place) func(string) (error, bool) { return on("write", errLost, true, nil) }, Unknown},
		"lost, and another came": {func(p *place) func(string) (error, bool) {
			return on("write", errLost, true, func() { p.now = value{"bob's", 7} })
		}, Lost},
		"refused": {func(*place) func(string) (error, bool) { return on("write", refused, true, nil) }, Failed},
		"another came": {func(p *place) func(string) (error, bool) {
			return on("write", nil, false, func() { p.now = value{"bob's", 7} })
		}, Lost},
		"another wants the same": {func(p *place) func(string) (error, bool) {
			return on("write", nil, false, func() { p.now = value{"new", 7} })
		}, AlreadyThere},
	} {
		t.Run(name, func(t *testing.T) {
			places := newPlaces(3)
			c, _ := changeTo("new", "ana", places, atOnce)
			c.prepared(t)
			places[1].fault = test.fault(places[1])
			require.NoError(t, c.Write(t.Context()))
			require.Equal(t, []Outcome{Applied, test.want, Applied}, ends(c), "the others follow anyway")

			places = newPlaces(2)
			c, _ = changeTo("new", "ana", places, atOnce)
			c.prepared(t)
			places[0].fault = test.fault(places[0])
			require.NoError(t, c.Write(t.Context()))
			second := Untouched
			if test.want.Has() {
				second = Applied
			}
			require.Equal(t, []Outcome{test.want, second}, ends(c), "without the first, none follow")

			c, _ = changeTo("newest", "ana", newPlaces(1), atOnce)
			c.prepared(t)
			c.Tell(t.Context())
			require.Equal(t, []Outcome{Applied}, ends(c))
		})
	}
}

func TestPartial(t *testing.T) {
	away := func(operations ...string) func(string) (error, bool) {
		return func(operation string) (error, bool) {
			for _, o := range operations {
				if o == operation {
					return errLost, true
				}
			}
			return nil, false
		}
	}
	for _, operation := range []string{"look", "store", "lock"} {
		for _, partial := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				places := newPlaces(2)
				c, _ := changeTo("new", "ana", places, atOnce)
				c.Partial = partial
				if operation != "look" {
					c.prepared(t)
				}
				places[0].fault = away(operation)
				if operation == "look" {
					c.prepared(t)
					require.Equal(t, []Outcome{Unreachable, Untouched}, ends(c))
				}
				err := c.Store(t.Context())
				if operation == "store" {
					require.Equal(t, Failed, c.Regions[0].Outcome)
				}
				if err == nil {
					err = c.Write(t.Context())
				}
				switch {
				case operation == "look" || partial:
					require.NoError(t, err)
					require.Equal(t, Applied, c.Regions[1].Outcome)
				case operation == "store":
					require.Equal(t, NotStored, reason(t, err))
				default:
					require.Equal(t, Unanswered, reason(t, err))
					require.ErrorIs(t, err, errLost)
				}
				if !partial && operation != "look" {
					require.Equal(t, "old", places[1].now.text)
				}
			})
		}
	}
}

// A lock that cannot be returned is reported; it expires.
func TestStaysLocked(t *testing.T) {
	places := newPlaces(1)
	places[0].fault = func(operation string) (error, bool) {
		if operation == "unlock" {
			return errLost, true
		}
		return nil, false
	}
	c, told := changeTo("new", "ana", places, atOnce)
	require.NoError(t, c.prepared(t).Write(t.Context()))
	require.Equal(t, []string{"a"}, told.locked)
}

// An interruption between two regions lets the write in progress finish.
func TestInterruptedBetween(t *testing.T) {
	places := newPlaces(2)
	ctx, cancel := context.WithCancel(t.Context())
	c, _ := changeTo("new", "ana", places, atOnce)
	c.prepared(t)
	places[0].fault = func(operation string) (error, bool) {
		if operation == "write" {
			cancel()
		}
		return nil, false
	}
	require.NoError(t, c.Write(ctx))
	require.Equal(t, []Outcome{Applied, Untouched}, ends(c))
	require.Nil(t, places[0].lock)
}

// Ready runs with all locks held, and if it fails nothing changes.
func TestReady(t *testing.T) {
	places := newPlaces(2)
	c, _ := changeTo("new", "ana", places, atOnce)
	wrong := errors.New("not yet")
	c.Ready = func(context.Context) error {
		for _, p := range places {
			require.NotNil(t, p.lock)
		}
		return wrong
	}
	require.ErrorIs(t, c.prepared(t).Write(t.Context()), wrong)
	require.Equal(t, []Outcome{Untouched, Untouched}, ends(c))
	places[1].put("bob's")
	require.Equal(t, Moved, reason(t, c.Write(t.Context())), "somebody came before the locks")
	require.Equal(t, []Outcome{Untouched, Lost}, ends(c))
}

func TestOutcomeText(t *testing.T) {
	for o := Untouched; o <= Unknown; o++ {
		text, err := o.MarshalText()
		require.NoError(t, err)
		var back Outcome
		require.NoError(t, back.UnmarshalText(text))
		require.Equal(t, o, back)
	}
	require.ErrorContains(t, new(Outcome).UnmarshalText([]byte("perhaps")), `no outcome "perhaps"`)
}
