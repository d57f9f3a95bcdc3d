package behavior

import (
	"net/http"
	"time"
)

// ObserveRoute counts a request for a route, in a table whose subjects are routes. Only answers
// 401 and 403 are counted, and their share of all; status is the origin's. Pass how the client
// stands after the request: denials of one that is found alone do not count, since they must
// not slow the route for all. A route gets a place with its first denial.
func (t *Table) ObserveRoute(route uint64, now time.Time, status int, client Standing) Standing {
	e := Event{Route: route, Status: http.StatusOK}
	denied := status == http.StatusUnauthorized || status == http.StatusForbidden
	if denied {
		if client.Tier > 0 {
			return Standing{}
		}
		e.Status = status
	}
	return t.observe(route, now, &e, denied)
}
