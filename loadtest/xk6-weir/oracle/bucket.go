package oracle

import "math"

// bucket is token_bucket and leaky_bucket: requests fill it, time drains it, and it
// holds no more than its capacity.
type bucket struct {
	capacity int64
	rate     float64 // drained in a microsecond
}

// A thousandth of a request is rounding.
const tolerance = 1e-3

// lookback: the level accounts for everything before the first known request.
func (bucket) lookback(sent int64) int64 { return sent }

// beyond: the requests sent and answered within [x, y] are at most the capacity plus
// what drains in y - x. The level of a bucket filled at the times of sending is the
// largest excess over all x.
func (m bucket) beyond(c *count, y int64) int64 {
	if over := c.least.level(y) - float64(m.capacity); over > tolerance {
		return int64(math.Ceil(over))
	}
	return 0
}

// mustRefuse: the level is at least that of a bucket where everyone before was decided
// as early as possible, and those in flight not at all.
func (m bucket) mustRefuse(c *count, sent, answered, cost int64) bool {
	underWay := c.sure.answered.upTo(farAhead) - c.sure.answered.upTo(sent)
	return c.floor.level(answered)+float64(cost-underWay) > float64(m.capacity)+tolerance
}

// most returns the highest level that the request can have met: everything answered
// before came as late as possible, and everything in flight came just before it.
func (m bucket) most(c *count, r *refusal) float64 {
	level := c.most.level(r.sent) + float64(c.sentBy(r.answered)-c.maybe.answered.upTo(r.sent)-r.own)
	return min(float64(m.capacity), level)
}

func (m bucket) mayRefuse(c *count, r *refusal) bool {
	return m.most(c, r)+float64(r.cost) > float64(m.capacity)-tolerance
}

func (m bucket) wait(c *count, r *refusal) (shortest, longest int64) {
	free := func(level float64) float64 { return (level + float64(r.cost-m.capacity)) / m.rate }
	most := m.most(c, r) + float64(r.own) // a counted refusal fills it further
	underWay := c.kept.sent.upTo(r.sent) - c.kept.answered.upTo(r.sent)
	least := min(float64(m.capacity), c.least.level(r.sent)-float64(underWay))
	return max(0, int64(free(least))-(r.answered-r.sent)), max(0, int64(math.Ceil(free(min(most, float64(m.capacity))))))
}
