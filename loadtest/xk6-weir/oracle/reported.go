package oracle

// reportable are the algorithms of rules whose nodes decide by reports.
var reportable = map[string]bool{"fixed_window": true, "sliding_window": true, "token_bucket": true}

// reported is a method whose limit may be exceeded by what nodes are asked for in a delay,
// and by spare.
type reported struct {
	method
	spare int64
}

// beyond proves only what exceeds the most that was asked for in any delay so far.
func (m reported) beyond(c *count, y int64) int64 {
	return m.method.beyond(c, y) - c.demand.most - m.spare
}

// bucketOf returns the bucket that a method is.
func bucketOf(m method) (bucket, bool) {
	if r, ok := m.(reported); ok {
		m = r.method
	}
	b, ok := m.(bucket)
	return b, ok
}

// demand is the most that a key's nodes can have been asked for in any interval of a length:
// whatever was sent by its end and not answered before its beginning.
type demand struct {
	length int64
	demand int64
	ended  series
	most   int64
}

func newDemand(length int64) demand { return demand{length: length, ended: newSeries()} }

func (d *demand) begin(sent, cost int64) {
	d.demand += cost
	d.ended.prune(sent - d.length - 1)
	d.most = max(d.most, d.demand-d.ended.upTo(sent-d.length-1))
}

func (d *demand) end(answered, cost int64) { d.ended.add(answered, cost, 0) }
