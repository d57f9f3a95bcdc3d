package main

import (
	"fmt"
	"slices"
)

// Short says that k6 could not send nearly all its requests, or returns "". How much should have
// passed is unknown then, and a limit that no client reached is not broken. The scripts allow as
// much (tried in global.js).
func (r *result) Short() string {
	if r.Dropped == 0 || float64(r.Dropped) < 0.02*float64(r.Sent) {
		return ""
	}
	return fmt.Sprintf("k6 had time for only %d of %d requests, the machine is too busy", r.Sent, r.Sent+r.Dropped)
}

// busy says why the machine was too busy for a verdict, or returns "".
func (r *result) busy() string {
	if n := r.starved(); n > 0 {
		return fmt.Sprintf("%d decisions were made without Redis where nothing was broken: it did not answer within store.timeout, the machine is too busy", n)
	}
	return r.Short()
}

// starved counts decisions made without Redis where nothing was broken: Redis or the edge
// waited longer than store.timeout for a processor. An edge makes such a decision on its
// own, against its share of the limit, so it does not prove the region's limit.
func (r *result) starved() int {
	n := 0
	for region, v := range r.Fallback {
		if !slices.ContainsFunc(r.Bounds, func(b bound) bool { return b.Region == region }) {
			n += v
		}
	}
	return n
}
