package lease

import (
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/pkg/limiter"
)

// usage counts the leased units of one rule.
type usage struct {
	limit                              atomic.Pointer[limiter.Limit] // the newest
	leases                             atomic.Int64
	granted, spent, returned, stranded atomic.Int64
}

// strand counts units that were neither spent nor returned.
func (u *usage) strand(j *job) { j.count(&u.stranded) }

func (u *usage) giveBack(j *job) { j.count(&u.returned) }

// count excludes units already counted as spent, because counters must not decrease.
func (j *job) count(as *atomic.Int64) {
	if !j.spent {
		as.Add(j.units)
	}
}

func (s *Store) usage(l *limiter.Limit) *usage {
	found, ok := s.usages.Load(l.Rule)
	if !ok {
		found, _ = s.usages.LoadOrStore(l.Rule, &usage{})
	}
	u := found.(*usage)
	u.limit.Store(l)
	return u
}

// forgetRules drops the counts of removed rules.
func (s *Store) forgetRules(holds func(*limiter.Limit) bool) {
	s.usages.Range(func(rule, u any) bool {
		if !holds(u.(*usage).limit.Load()) {
			s.usages.Delete(rule)
		}
		return true
	})
}

// Usage summarizes the leases of one rule.
type Usage struct {
	Rule string
	// Leases is how many keys have a lease now; Held is how many units they hold.
	Leases, Held int64
	// Granted is the sum of all grants. Each unit ends up in Spent, Returned or Stranded
	// (neither spent nor returned) when its grant ends. Spent includes units of requests
	// that another limit refused.
	Granted, Spent, Returned, Stranded int64
}

// Usages returns the usage of each rule that has had leases, in no order.
func (s *Store) Usages() (list []Usage) {
	held := map[*usage]int64{}
	for i := range s.shards {
		sh := &s.shards[i]
		sh.Lock()
		for _, l := range sh.leases {
			held[l.use] += l.older.units + l.newer.units
		}
		sh.Unlock()
	}
	s.usages.Range(func(rule, value any) bool {
		u := value.(*usage)
		list = append(list, Usage{
			Rule: rule.(string), Leases: u.leases.Load(), Held: held[u], Granted: u.granted.Load(),
			Spent: u.spent.Load(), Returned: u.returned.Load(), Stranded: u.stranded.Load(),
		})
		return true
	})
	return list
}

// Held returns how many units of a key this node may spend, and the longest time it may
// spend them.
func (s *Store) Held(key []byte) (units int64, left time.Duration) {
	now := s.clock.Now()
	sh := s.shard(key)
	sh.Lock()
	defer sh.Unlock()
	l := sh.leases[string(key)]
	if l == nil {
		return 0, 0
	}
	for _, p := range [...]*parcel{&l.older, &l.newer} {
		if p.units > 0 && p.valid(now) {
			units, left = units+p.units, max(left, p.until-now)
		}
	}
	return units, left
}
