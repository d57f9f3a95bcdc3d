package replay

import (
	"bytes"
	"cmp"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const largeLines = 200_000

// A large log's figures match plain arithmetic.
func TestALargeLog(t *testing.T) {
	const limit, login = 20, 3
	doc := func(limit int) string {
		return fmt.Sprintf(`rules: [{id: per-client, key: [client_ip], algorithm: fixed_window, limit: %d, window: 1m},
			{id: login, match: {paths: [/login]}, key: [client_ip], algorithm: fixed_window, limit: %d, window: 1m, mode: shadow}]`, limit, login)
	}
	for _, c := range []struct {
		name  string
		lines int64
		write func(*bytes.Buffer, *sample)
	}{{"json", largeLines, asJSON}, {"combined", largeLines / 5, asCombined}} {
		t.Run(c.name, func(t *testing.T) {
			type window struct {
				client netip.Addr
				minute int64
			}
			asked, logins, limited := map[window]int{}, map[window]int{}, map[netip.Addr]int64{}
			var after, before, shadow int64
			log := newTraffic(int(c.lines), 5_000, func(b *bytes.Buffer, x *sample) {
				c.write(b, x)
				w := window{x.client, x.time.Unix() / 60}
				asked[w]++
				if asked[w] > limit {
					after++
					limited[x.client]++
				}
				if asked[w] > 2*limit {
					before++
				}
				// A request that another rule refuses is not charged to this one.
				if x.path == "/login" {
					if logins[w] == login {
						shadow++
					} else if asked[w] <= limit {
						logins[w]++
					}
				}
			})
			r, err := Run(t.Context(), Config{Candidate: load(t, doc(limit)), Running: load(t, doc(2*limit)), Top: 3}, log)
			require.NoError(t, err)
			require.Equal(t, c.lines, r.Requests)
			require.Zero(t, r.Skipped+r.OutOfOrder)
			require.Equal(t, []int64{c.lines - after, after}, []int64{r.Candidate.Passed, r.Candidate.Limited})
			require.Equal(t, []int64{c.lines - before, before}, []int64{r.Running.Passed, r.Running.Limited})
			require.Equal(t, after-before, r.Changes.NewlyLimited.Requests)
			require.Zero(t, r.Changes.NoLongerLimited.Requests)
			require.Equal(t, shadow, r.Candidate.Rules[1].ShadowLimited)
			require.EqualValues(t, len(limited), r.Candidate.Rules[0].Clients)

			var top []ClientCount
			for client, n := range limited {
				top = append(top, ClientCount{client.String(), n})
			}
			slices.SortFunc(top, func(a, b ClientCount) int { return cmp.Compare(b.Requests, a.Requests) })
			require.Equal(t, top[:3], r.Candidate.Rules[0].Top)
		})
	}
}

// Every line has a different client, and each is limited: memory must stay bounded.
func TestMemoryIsBounded(t *testing.T) {
	const maxKeys, most = 5_000, 64 << 20
	candidate := load(t, `rules: [{id: per-path, key: [client_ip, path], limit: 100, window: 24h},
		{id: all, key: [], algorithm: rolling_window, storage: sorted_set, limit: 1, window: 744h, mode: shadow}]`) // expires last
	n := uint32(0)
	log := newTraffic(largeLines, 1, func(b *bytes.Buffer, x *sample) {
		n++
		x.client = netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)})
		asCombined(b, x)
	})
	var m runtime.MemStats
	peak := uint64(0)
	r, err := Run(t.Context(), Config{Candidate: candidate, Running: candidate, MaxKeys: maxKeys, Progress: func(_, _ int64) {
		runtime.ReadMemStats(&m)
		peak = max(peak, m.HeapAlloc)
	}}, log)
	require.NoError(t, err)
	require.Less(t, peak, uint64(most))
	require.EqualValues(t, largeLines-1, r.Candidate.Rules[1].ShadowLimited, "the counts are exact")
	require.LessOrEqual(t, r.Candidate.Rules[1].Clients, int64(maxKeys), "the number of clients is not")
	notes := strings.Join(r.Notes, "\n")
	require.Contains(t, notes, "at most 5,000 counters are kept at a time, and about that many existed: clients whose counters were dropped passed; allow more keys")
	require.Contains(t, notes, "more than 5,000 clients were limited; the numbers of clients are too low, and the lists may lack some")
}
