package global

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/pkg/limiter"
)

// All regions together have the whole burst and the whole rate. Tiers that share a bucket have
// the same part of their rates in a region, because the bucket refills at the rate of the tier
// that asks: if a small burst's rate were where its tokens are, regions could refill more than
// the largest tier's rate together.
func TestPortions(t *testing.T) {
	for regions := 1; regions <= 6; regions++ {
		for burst := range int64(9) {
			for largest := burst; largest < 9; largest++ {
				l := &limiter.Limit{Algorithm: limiter.TokenBucket, Limit: 10, Window: 1e9, Burst: burst + 1, Largest: largest + 1}
				large := &limiter.Limit{Algorithm: limiter.TokenBucket, Limit: 100, Window: 1e9, Burst: largest + 1, Largest: largest + 1}
				key := fmt.Sprint("k", burst, largest)
				tokens, rate := int64(0), 0.0
				for part := range regions {
					h := Held{{Always, part, regions}}
					p := PortionsAt(h, l, 1e15)
					b, portion, ok := PortionOf(&p, l, key)
					require.True(t, ok)
					tokens += b
					rate += float64(portion.Num) / float64(portion.Den)
					_, of, _ := PortionOf(&p, large, key)
					require.InDelta(t, float64(of.Num)/float64(of.Den), float64(portion.Num)/float64(portion.Den), 1e-9)
				}
				require.Equal(t, l.Burst, tokens, "%d regions", regions)
				require.InDelta(t, 1, rate, 1e-9, "%d regions, %d of %d", regions, l.Burst, l.Largest)
			}
		}
	}
}
