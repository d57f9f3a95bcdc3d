package memory

import (
	"testing"

	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/storetest"
)

func TestTimelines(t *testing.T) {
	storetest.Run(t, func(_ *testing.T, clock func() int64) limiter.TakeReturner {
		return New(Config{Clock: clock})
	})
}
