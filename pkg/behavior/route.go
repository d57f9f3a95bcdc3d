package behavior

import (
	"net/http"
	"time"
)

// clientPart is the part of a route's threshold that one client may count for in its minute, as
// a divisor. Two such minutes may overlap one of the route, so it takes five clients, unless
// this part of a node's is less than one failure.
const clientPart = 10

// ObserveRoute counts a request for a route, in a table whose subjects are routes. It
// counts only answers 401 and 403, and their share of all answers; status is the origin's.
// client is what Observe returned for the request. No client may slow the route for everyone:
// denials do not count if it was detected separately, nor beyond its part of the threshold.
// A route enters the table with its first denial.
func (t *Table) ObserveRoute(route uint64, now time.Time, status int, client Status) Status {
	e := Event{Route: route, Status: http.StatusOK}
	denied := status == http.StatusUnauthorized || status == http.StatusForbidden
	if denied {
		most := t.policy.Load().Signals[Failures].AtLeast / clientPart / int(max(1, t.nodes.Load()))
		if client.Tier > 0 || client.denied > max(1, most) {
			return Status{}
		}
		e.Status = status
	}
	return t.observe(route, now, &e, denied)
}
