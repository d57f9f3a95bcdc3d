package global

import (
	"fmt"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/pkg/limiter/storetest"
)

var keyNames = func() (names []string) {
	for i := range 100_000 {
		names = append(names, fmt.Sprintf("weir:{203.0.%d.%d}:api-by-client:fw", i/256, i%256))
	}
	return names
}()

// busy counts all keys in one period, of which some matter to other regions.
func busy(t testing.TB, c *Counts, keys []string, matter, period int, now time.Duration) {
	l := limitOf(t, "r fixed_window limit=6000 window=60s")
	quiet := limitOf(t, "r fixed_window limit=600000 window=60s")
	for i, key := range keys {
		rule, count := quiet, int64(period+1)*10
		if i < matter {
			rule, count = l, 3000+count
		}
		c.Observe(rule, key, storetest.Epoch, count, now)
	}
}

// Traffic grows with the keys that matter to other regions, not with the active ones.
func TestCostGrowsWithKeysThatMatter(t *testing.T) {
	sizes := map[int]int{}
	for _, matter := range []int{0, 100, 1000} {
		c := NewCounts(Config{Self: 0, Regions: 3, Incarnation: 1})
		now := time.Hour
		for period := range 10 {
			now += Period
			busy(t, c, keyNames[:10_000], matter, period, now)
			m := c.Send(1, now)
			sizes[matter] += len(m.Append(nil))
			peer := NewCounts(Config{Self: 1, Regions: 3, Incarnation: 1})
			peer.Receive(m, storetest.Epoch, now)
			c.Receive(&Message{Header: Header{From: 1, Incarnation: 1, Ack: m.Position, Heard: 1, Stamp: now, Echo: m.Stamp}}, storetest.Epoch, now)
		}
	}
	require.Less(t, sizes[0], 10*100, "an empty message is small")
	require.InDelta(t, 10, float64(sizes[1000])/float64(sizes[100]), 1.5)
}

// The exchange of one region: a message to and from each other region, every period. An
// operation is one period's work. Keys that matter gain 10 units each.
func BenchmarkExchange(b *testing.B) {
	zip, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest))
	require.NoError(b, err)
	for _, regions := range []int{3, 50} {
		for _, matter := range []int{0, 1000, 10_000} {
			b.Run(fmt.Sprintf("regions=%d/matter=%d", regions, matter), func(b *testing.B) {
				c := NewCounts(Config{Self: 0, Regions: regions, Incarnation: 1})
				now := time.Hour
				var sent, packed, ops int
				var text []byte
				for period := 0; b.Loop(); period++ {
					now += Period
					b.StopTimer()
					busy(b, c, keyNames, matter, period, now)
					b.StartTimer()
					m := c.Send(1, now)
					text = m.Append(text[:0])
					for to := 2; to < regions; to++ {
						c.Send(to, now) // the same text
					}
					for from := 1; from < regions; from++ {
						var answer Message
						require.NoError(b, answer.Parse(text))
						answer.From, answer.Heard, answer.Ack, answer.Echo = from, 1, m.Position, m.Stamp
						c.Receive(&answer, storetest.Epoch, now)
					}
					b.StopTimer()
					sent, packed, ops = sent+len(text), packed+len(zip.EncodeAll(text, nil)), ops+1
					b.StartTimer()
				}
				links := float64(regions-1) * float64(time.Second/Period) / float64(ops)
				b.ReportMetric(float64(sent)*links, "B/s_sent")
				b.ReportMetric(float64(packed)*links, "B/s_packed")
				b.ReportMetric(float64(b.Elapsed())/float64(ops)/float64(Period), "cores")
			})
		}
	}
}
