package limiter

// Share returns the limit divided among n nodes, rounded up: what each may pass while the shared
// store is unreachable. The last result is cached, so an unchanged n costs nothing.
func (l *Limit) Share(n int) *Limit {
	if n <= 1 {
		return l
	}
	divide := func(v int64) int64 { return (v + int64(n) - 1) / int64(n) }
	limit, burst := divide(l.Limit), divide(l.Burst)
	if l.Algorithm == LeakyBucket {
		burst = divide(l.Capacity()) - 1
	}
	if s := l.share.Load(); s != nil && s.Limit == limit && s.Burst == burst {
		return s
	}
	s := &Limit{
		Rule: l.Rule, Algorithm: l.Algorithm, Storage: l.Storage,
		Limit: limit, Window: l.Window, Burst: burst, MinInterval: l.MinInterval,
		CountDenied: l.CountDenied, Overdraft: l.Overdraft, Shadow: l.Shadow, OnFailure: l.OnFailure, Shared: l.Shared,
		Slowest: divide(l.Slowest), Global: l.Global,
	}
	l.share.Store(s)
	return s
}
