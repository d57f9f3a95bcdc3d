package rollout

import (
	"context"
	"errors"
	"fmt"
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

// Two operators see the same difference. However their operations interleave, one changes all
// regions and the other none, and both learn it.
func TestInterleavings(t *testing.T) {
	for seed := range uint64(400) {
		same := seed%4 == 0 // both want the same version
		synctest.Test(t, func(t *testing.T) {
			fakes := newFakeRegions(3)
			s := &schedule{random: rand.New(rand.NewPCG(seed, 0))}
			wanted := []string{"ana's", "bob's"}
			if same {
				wanted[1] = wanted[0]
			}
			if seed%3 == 0 { // ana finishes her earlier change, so she does not write the first region
				fakes[0].put(wanted[0])
			}
			changes, errs := make([]*Change[value], 2), make([]error, 2)
			var all sync.WaitGroup
			for i, by := range []string{"ana", "bob"} {
				changes[i], _ = changeTo(wanted[i], by, fakes, s.turn)
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

			for _, p := range fakes {
				require.Equal(t, fakes[0].now.text, p.now.text, "seed %d: the fleet is divided", seed)
				require.Nil(t, p.lock, "seed %d", seed)
			}
			for i, c := range changes {
				has := fakes[0].now.text == wanted[i]
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
			require.True(t, changes[0].Wrote || changes[1].Wrote, "seed %d: no change wrote", seed)
		})
	}
}

// sleeps suspends a change before its first write of a place, like a stopped process, while
// another change runs.
func sleeps(p *fakeRegion, meanwhile func()) {
	writes := 0
	p.fault = func(operation string) (error, bool) {
		if operation == "write" {
			if writes++; writes == 1 {
				p.mu.Unlock()
				meanwhile()
				p.mu.Lock()
			}
		}
		return nil, false
	}
}

// A change sleeps past its locks, and another reverts it: the first learns that at its next
// write, which fails.
func TestSleepsPastItsLocks(t *testing.T) {
	for name, bobs := range map[string]func(*Change[value]){
		"taken over": func(*Change[value]) {},
		"broken":     func(c *Change[value]) { c.BreakLock = true },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fakes := newFakeRegions(3)
				ana, _ := changeTo("ana's", "ana", fakes, atOnce)
				sleeps(fakes[1], func() {
					synctest.Wait() // c is written at the same time
					for _, p := range fakes {
						p.mu.Lock()
						p.fault = func(operation string) (error, bool) { // she does not renew
							if operation == "renew" {
								return errLost, true
							}
							return nil, false
						}
						p.mu.Unlock()
					}
					bob, reported := changeTo("old", "bob", fakes, atOnce)
					bobs(bob)
					began := time.Now()
					require.NoError(t, bob.prepared(t).Write(t.Context()))
					require.Equal(t, []Outcome{Applied, AlreadyThere, Applied}, ends(bob))
					require.Equal(t, bob.BreakLock, len(bob.Broke) > 0)
					require.Equal(t, []string{fmt.Sprint([]string{"a", "b", "c"}, "ana", bob.BreakLock)}, reported.takes)
					if !bob.BreakLock {
						require.GreaterOrEqual(t, time.Since(began), consul.StaleAfter)
						require.Less(t, time.Since(began), consul.StaleAfter+time.Second)
					}
				})
				require.NoError(t, ana.prepared(t).Write(t.Context()))
				require.Equal(t, []Outcome{Lost, Untouched, Lost}, ends(ana))
				require.Equal(t, Displaced, ana.Displaced.Why)
				require.Equal(t, "b", ana.Displaced.Region)
				require.True(t, ana.Wrote)
				for _, p := range fakes {
					require.Equal(t, "old", p.now.text)
				}
			})
		})
	}
}

// A slow region delays no other.
func TestSlowRegion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fakes := newFakeRegions(50)
		sleeps(fakes[7], func() { time.Sleep(time.Minute) })
		c, _ := changeTo("new", "ana", fakes, atOnce)
		began, fast := time.Now(), make(chan bool, len(fakes))
		write := c.Subject.Write
		c.Subject.Write = func(ctx context.Context, r *Region[value]) (bool, error) {
			done, err := write(ctx, r)
			fast <- time.Since(began) == 0
			return done, err
		}
		require.NoError(t, c.prepared(t).Write(t.Context()))
		require.Len(t, With(c.Regions, Applied), 50)
		for range 49 {
			require.True(t, <-fast)
		}
		require.False(t, <-fast)
	})
}

// A change that was suspended checks its locks before its next write, wherever it lost one.
func TestDisplacedElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fakes := newFakeRegions(3)
		c, _ := changeTo("new", "ana", fakes, atOnce)
		sleeps(fakes[0], func() { fakes[2].take(consul.NewLock("bob")); time.Sleep(consul.RenewEvery + time.Second) })
		require.NoError(t, c.prepared(t).Write(t.Context()))
		require.Equal(t, []Outcome{Applied, Untouched, Untouched}, ends(c))
		require.Equal(t, "c", c.Displaced.Region)
		require.Equal(t, "bob", c.Displaced.Other.By)

		fakes = newFakeRegions(2)
		c, _ = changeTo("new", "ana", fakes, atOnce)
		c.Ready = func(context.Context) error {
			_ = (&actor{fakes[1], atOnce}).Unlock(t.Context(), "", fakes[1].lock.Lock)
			time.Sleep(consul.RenewEvery + time.Second)
			return nil
		}
		require.Equal(t, Displaced, reason(t, c.prepared(t).Write(t.Context())), "removed by hand")
		require.Equal(t, []Outcome{Untouched, Untouched}, ends(c))
	})
}

// A slow holder keeps its locks, in 50 regions too.
func TestRenews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fakes := newFakeRegions(50)
		ana, _ := changeTo("ana's", "ana", fakes, atOnce)
		ana.Ready = func(context.Context) error { time.Sleep(45 * time.Second); return nil }
		var all sync.WaitGroup
		all.Go(func() {
			time.Sleep(time.Second)
			bob, reported := changeTo("bob's", "bob", fakes, atOnce)
			require.Equal(t, Moved, reason(t, bob.prepared(t).Write(t.Context())))
			require.Equal(t, []string{"a ana"}, reported.waits)
			require.Empty(t, reported.takes)
		})
		require.NoError(t, ana.prepared(t).Write(t.Context()))
		all.Wait()
		require.Len(t, With(ana.Regions, Applied), 50)
	})
}

// The renewal takes effect but its answer is lost: the write finds a newer index of the same
// holder.
func TestRenewalUnanswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fakes := newFakeRegions(3)
		fakes[1].fault = func(operation string) (error, bool) {
			if operation == "renew" {
				fakes[1].fault = nil
				return errLost, false
			}
			return nil, false
		}
		c, _ := changeTo("new", "ana", fakes, atOnce)
		c.Ready = func(context.Context) error { time.Sleep(consul.RenewEvery + time.Second); return nil }
		require.NoError(t, c.prepared(t).Write(t.Context()))
		require.Nil(t, c.Displaced)
		require.Equal(t, []Outcome{Applied, Applied, Applied}, ends(c))
		require.Nil(t, fakes[1].lock)
	})
}

// However many regions a change had locked when it died, the next one waits at most 15 s.
func TestHolderDied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fakes := newFakeRegions(50)
		for _, p := range fakes {
			p.take(consul.NewLock("ana"))
		}
		c, reported := changeTo("new", "bob", fakes, atOnce)
		began := time.Now()
		require.NoError(t, c.prepared(t).Write(t.Context()))
		require.GreaterOrEqual(t, time.Since(began), consul.StaleAfter)
		require.LessOrEqual(t, time.Since(began), 15*time.Second)
		require.Len(t, reported.takes, 1)
		require.Len(t, With(c.Regions, Applied), 50)
	})
}

func TestLockIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fakes := newFakeRegions(2)
		bob := consul.NewLock("bob")
		holds, stop := context.WithCancel(t.Context())
		var renewing sync.WaitGroup
		renewing.Go(func() {
			for ; holds.Err() == nil; time.Sleep(consul.RenewEvery) {
				fakes[1].take(bob)
			}
		})
		synctest.Wait()
		c, reported := changeTo("new", "ana", fakes, atOnce)
		began := time.Now()
		err := c.prepared(t).Write(t.Context())
		require.Equal(t, Busy, reason(t, err))
		require.GreaterOrEqual(t, time.Since(began), c.LockWait)
		require.Equal(t, []string{"b bob"}, reported.waits, "reported once")
		require.Nil(t, fakes[0].lock, "a waiting change holds nothing")
		require.Equal(t, []Outcome{Untouched, Untouched}, ends(c))

		stop()
		renewing.Wait()
		c.BreakLock = true
		require.NoError(t, c.Write(t.Context()))
		require.Equal(t, []Outcome{Applied, Applied}, ends(c))
		require.Equal(t, []string{"bob"}, c.Broke)

		ctx, cancel := context.WithCancel(t.Context())
		fakes[0].take(bob)
		c, _ = changeTo("newer", "ana", fakes, atOnce)
		time.AfterFunc(time.Second, cancel)
		require.Equal(t, Interrupted, reason(t, c.prepared(t).Write(ctx)))
	})
}

// A write's answer and the region's state afterwards determine the outcome.
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
		fault func(*fakeRegion) func(string) (error, bool)
		want  Outcome
	}{
		"lost, and it took effect": {func(*fakeRegion) func(string) (error, bool) { return on("write", errLost, false, nil) }, Applied},
		"lost, and it did not":     {func(*fakeRegion) func(string) (error, bool) { return on("write", errLost, true, nil) }, Unknown},
		"lost, and another came": {func(p *fakeRegion) func(string) (error, bool) {
			return on("write", errLost, true, func() { p.now = value{"bob's", 7} })
		}, Lost},
		"refused": {func(*fakeRegion) func(string) (error, bool) { return on("write", refused, true, nil) }, Failed},
		"another came": {func(p *fakeRegion) func(string) (error, bool) {
			return on("write", nil, false, func() { p.now = value{"bob's", 7} })
		}, Lost},
		"another wants the same": {func(p *fakeRegion) func(string) (error, bool) {
			return on("write", nil, false, func() { p.now = value{"new", 7} })
		}, AlreadyThere},
	} {
		t.Run(name, func(t *testing.T) {
			fakes := newFakeRegions(3)
			c, _ := changeTo("new", "ana", fakes, atOnce)
			c.prepared(t)
			fakes[1].fault = test.fault(fakes[1])
			require.NoError(t, c.Write(t.Context()))
			require.Equal(t, []Outcome{Applied, test.want, Applied}, ends(c), "the others follow anyway")

			fakes = newFakeRegions(2)
			c, _ = changeTo("new", "ana", fakes, atOnce)
			c.prepared(t)
			fakes[0].fault = test.fault(fakes[0])
			require.NoError(t, c.Write(t.Context()))
			second := Untouched
			if test.want.Has() {
				second = Applied
			}
			require.Equal(t, []Outcome{test.want, second}, ends(c), "without the first, none follow")

			c, _ = changeTo("newest", "ana", newFakeRegions(1), atOnce)
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
	for _, operation := range []string{"look", "store", "locked", "lock"} {
		for _, partial := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				fakes := newFakeRegions(2)
				c, _ := changeTo("new", "ana", fakes, atOnce)
				c.Partial = partial
				if operation != "look" {
					c.prepared(t)
				}
				fakes[0].fault = away(operation)
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
					require.Equal(t, "old", fakes[1].now.text)
				}
			})
		}
	}
}

// A lock that cannot be returned is reported; it expires.
func TestStaysLocked(t *testing.T) {
	fakes := newFakeRegions(1)
	fakes[0].fault = func(operation string) (error, bool) {
		if operation == "unlock" {
			return errLost, true
		}
		return nil, false
	}
	c, reported := changeTo("new", "ana", fakes, atOnce)
	require.NoError(t, c.prepared(t).Write(t.Context()))
	require.Equal(t, []string{"a"}, reported.locked)
}

// An interruption between two regions lets the write in progress finish.
func TestInterruptedBetween(t *testing.T) {
	fakes := newFakeRegions(2)
	ctx, cancel := context.WithCancel(t.Context())
	c, _ := changeTo("new", "ana", fakes, atOnce)
	c.prepared(t)
	fakes[0].fault = func(operation string) (error, bool) {
		if operation == "write" {
			cancel()
		}
		return nil, false
	}
	require.NoError(t, c.Write(ctx))
	require.Equal(t, []Outcome{Applied, Untouched}, ends(c))
	require.Nil(t, fakes[0].lock)
}

// Ready runs with all locks held, and if it fails nothing changes.
func TestReady(t *testing.T) {
	fakes := newFakeRegions(2)
	c, _ := changeTo("new", "ana", fakes, atOnce)
	wrong := errors.New("not yet")
	c.Ready = func(context.Context) error {
		for _, p := range fakes {
			require.NotNil(t, p.lock)
		}
		return wrong
	}
	require.ErrorIs(t, c.prepared(t).Write(t.Context()), wrong)
	require.Equal(t, []Outcome{Untouched, Untouched}, ends(c))
	fakes[1].put("bob's")
	require.Equal(t, Moved, reason(t, c.Write(t.Context())), "another change came before the locks")
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
