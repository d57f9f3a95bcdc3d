package recent

import (
	"cmp"
	"errors"
	"net/netip"
	"slices"
	"time"
)

// Filter selects requests.
type Filter struct {
	Client  netip.Prefix // not valid: all clients
	ByRules bool         // only those that the rules decided
	Refused bool         // only those that did not pass
	Most    int          // the latest ones
}

// Found is the result of a search.
type Found struct {
	// Since is the time from which no request is missing, except Lost ones.
	Since time.Time
	Lost  uint64 // since the start
	Share float64
	refs  []ref
}

// ref is a found request; it may be overwritten before it is read.
type ref struct {
	began int64
	seq   uint64
}

// ErrBusy means that other callers are reading.
var ErrBusy = errors.New("other callers are reading the recent requests; ask again")

// Find searches for requests and passes the result to use before another caller may search.
func (g *Ring) Find(f Filter, use func(*Found)) error {
	select {
	case g.reads <- struct{}{}:
		defer func() { <-g.reads }()
	default:
		return ErrBusy
	}
	found := &Found{Since: g.began, Lost: g.lost.Load(), Share: g.config.Share}
	oldest := ref{seq: ^uint64(0)}
	for i := range g.slots {
		s := &g.slots[i]
		s.mu.Lock()
		if s.seq > 0 {
			r := ref{s.began, s.seq}
			if r.seq < oldest.seq {
				oldest = r
			}
			if s.wanted(&f) {
				found.refs = append(found.refs, r)
			}
		}
		s.mu.Unlock()
	}
	if oldest.seq > 1 && oldest.began > 0 { // the first request has been overwritten
		found.Since = time.UnixMicro(oldest.began)
	}
	slices.SortFunc(found.refs, func(a, b ref) int { return cmp.Or(cmp.Compare(a.began, b.began), cmp.Compare(a.seq, b.seq)) })
	if n := len(found.refs) - f.Most; n > 0 {
		found.refs = found.refs[n:]
		found.Since = time.UnixMicro(found.refs[0].began)
	}
	use(found)
	return nil
}

func (s *slot) wanted(f *Filter) bool {
	return (!f.ByRules || s.verdict.byRules()) && (!f.Refused || s.verdict != passed) && (!f.Client.IsValid() || f.Client.Contains(s.address()))
}

// Lines calls write with each request that still exists, the oldest first, until write
// fails. The line belongs to the ring.
func (g *Ring) Lines(found *Found, write func(line []byte) error) error {
	var b []byte
	var held slot
	for _, r := range found.refs {
		s := &g.slots[(r.seq-1)%uint64(len(g.slots))]
		s.mu.Lock()
		there := s.seq == r.seq
		if there {
			held.began, held.took, held.client, held.status, held.verdict, held.flags, held.length = s.began, s.took, s.client, s.status, s.verdict, s.flags, s.length
			copy(held.text[:], s.text[:s.length])
		}
		s.mu.Unlock()
		if !there {
			continue
		}
		b = g.append(b[:0], &held)
		if err := write(b); err != nil {
			return err
		}
	}
	return nil
}
