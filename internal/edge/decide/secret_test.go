package decide

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/pkg/shedder"
)

// half is a decider whose shedder sheds half of the reads at a fixed time.
func half(t *testing.T, secret *Secret) *Decider {
	t.Helper()
	d, _ := decider(t, "rules: []", calm)
	d.Secret = func() *Secret { return secret }
	settings, err := d.Shedding().Document.Settings("default")
	require.NoError(t, err)
	settings.Custom = func(shedder.State, time.Duration, *shedder.Reading, *shedder.Settings) shedder.State {
		return shedder.State{Level: 1.5}
	}
	require.NoError(t, d.Shedders[0].Configure(settings))
	at := time.Unix(1_000_000_000, 0)
	for range 2 { // the first only begins the time
		at = at.Add(shedder.Interval)
		d.Shedders[0].Tick(at, nil)
	}
	return d
}

// passes returns which /64 of a /48 are not shed.
func (d *Decider) passes(t *testing.T, networks int) map[int]bool {
	t.Helper()
	pass := map[int]bool{}
	r := &Request{}
	for i := range networks {
		r.Reset()
		d.ask(t, r, fmt.Sprintf("2001:db8:1:%x::1", i), []byte("/"), fields{})
		if d.Decide(r) == Pass {
			pass[i] = true
			r.Permit.Done()
		}
	}
	return pass
}

func common(a, b map[int]bool) (n int) {
	for i := range a {
		if b[i] {
			n++
		}
	}
	return n
}

// Whoever holds a /48 has 65,536 users. Without a secret, this program tells which of them pass.
func TestSecretHidesWhoIsShed(t *testing.T) {
	const networks = 4000
	site := NewSecret(bytes.Repeat([]byte{1}, 32))
	computed := half(t, nil).passes(t, networks)
	require.InDelta(t, networks/2, len(computed), networks/20)
	require.Equal(t, computed, half(t, nil).passes(t, networks), "public constants give the same everywhere")

	here := half(t, site).passes(t, networks)
	require.InDelta(t, 0.5, float64(common(computed, here))/float64(len(computed)), 0.05, "what was computed is no better than chance")
	require.InDelta(t, networks/2, len(here), networks/20)
	require.Equal(t, here, half(t, NewSecret(bytes.Repeat([]byte{1}, 32))).passes(t, networks), "all nodes agree")
	next := half(t, NewSecret(bytes.Repeat([]byte{2}, 32))).passes(t, networks)
	require.InDelta(t, 0.5, float64(common(here, next))/float64(len(here)), 0.05, "another secret moves all users at once")
	require.NotEqual(t, half(t, RandomSecret()).passes(t, networks), half(t, RandomSecret()).passes(t, networks))
}

func TestFingerprint(t *testing.T) {
	require.Equal(t, "none", (*Secret)(nil).Fingerprint())
	require.Nil(t, NewSecret(nil))
	one := NewSecret(bytes.Repeat([]byte{1}, 32))
	require.Regexp(t, "^[0-9a-f]{4}$", one.Fingerprint())
	require.Equal(t, one.Fingerprint(), NewSecret(bytes.Repeat([]byte{1}, 32)).Fingerprint())
	require.NotEqual(t, one.Fingerprint(), NewSecret(bytes.Repeat([]byte{2}, 32)).Fingerprint())
}

// A user's name is up to the client. Nothing that it can compute finds two names with one
// place: names that collide under the public hash do not under the keyed one.
func TestSecretPlacesNamesApart(t *testing.T) {
	s := NewSecret(bytes.Repeat([]byte{1}, 32))
	seen := map[uint64]bool{}
	for i := range 100_000 {
		seen[s.hash(fmt.Appendf(nil, "user-%d", i))] = true
	}
	require.Len(t, seen, 100_000)
	// A pair that an attacker with the public hash would use.
	a, b := collision(t)
	require.NotEqual(t, a, b)
	require.Equal(t, (*Secret)(nil).hash(a)>>collides, (*Secret)(nil).hash(b)>>collides)
	require.NotEqual(t, s.hash(a)>>collides, s.hash(b)>>collides)
}

// collides leaves the bits in which a collision is quick to find.
const collides = 64 - 24

// collision finds two names that the public hash puts close together.
func collision(t *testing.T) (a, b []byte) {
	t.Helper()
	seen := map[uint64]int{}
	for i := range 1 << 20 {
		name := fmt.Appendf(nil, "user-%d", i)
		at := (*Secret)(nil).hash(name) >> collides
		if other, taken := seen[at]; taken {
			return fmt.Appendf(nil, "user-%d", other), name
		}
		seen[at] = i
	}
	require.Fail(t, "no collision")
	return nil, nil
}

func TestPlaceAllocatesNothing(t *testing.T) {
	s := NewSecret(bytes.Repeat([]byte{1}, 32))
	user := []byte("203.0.113.7")
	require.Zero(t, testing.AllocsPerRun(100, func() { s.hash(user) }))
}

func BenchmarkPlace(b *testing.B) {
	s := NewSecret(bytes.Repeat([]byte{1}, 32))
	for _, n := range []int{8, 16, 64, 1024} {
		user := bytes.Repeat([]byte{'u'}, n)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				s.hash(user)
			}
		})
	}
}
