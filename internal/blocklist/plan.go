package blocklist

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/weir-edge/weir/internal/clientlist"
)

// ErrLoss says that a list has lost more networks than it may at once.
var ErrLoss = errors.New("has lost more than it may at once")

// plan is what a list changes in one region.
type plan struct {
	edits          []clientlist.Edit
	added, removed int
	// yielded networks are of the list, and decided about by hand or by another list.
	yielded int
	has     int // networks of the list after the edits
}

// newPlan compares a list with what a region holds. Of what it holds of the list, at most the
// share loss may lose its block.
func newPlan(d *clientlist.Decision, list []netip.Prefix, held *clientlist.List, loss float64, now time.Time) (*plan, error) {
	at := make(map[netip.Prefix]*clientlist.Entry)
	own := 0
	for _, e := range held.Entries() {
		if at[e.Network] = e; e.By == d.By {
			own++
		}
	}
	p := &plan{}
	wanted := make(map[netip.Prefix]bool, len(list))
	entries := make([]*clientlist.Entry, len(list))
	for i, n := range list {
		wanted[n], entries[i] = true, &clientlist.Entry{Network: n, Decision: *d}
		switch was := at[n]; {
		case was != nil && was.By != d.By && !was.Expired(now):
			p.yielded++
			continue
		case was == nil || was.By != d.By:
			p.added++
		case was.Action == d.Action && was.Reason == d.Reason && was.Until.Equal(d.Until):
			p.has++
			continue
		}
		p.has++
		p.edits = append(p.edits, clientlist.Edit{Network: n, Decision: d})
	}
	covered, lost := clientlist.NewTable("", entries, now), 0
	for n, e := range at {
		if e.By != d.By || wanted[n] {
			continue
		}
		p.removed++
		p.edits = append(p.edits, clientlist.Edit{Network: n})
		if len(covered.Covering(n)) == 0 {
			lost++
		}
	}
	if float64(lost) > loss*float64(own) {
		return nil, fmt.Errorf("%w: of %d networks in the region, %d are no longer in the list (%.0f%%, allowed are %.0f%%)", ErrLoss, own, lost, 100*float64(lost)/float64(own), 100*loss)
	}
	return p, nil
}
