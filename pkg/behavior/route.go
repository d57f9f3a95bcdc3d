package behavior

import (
	"net/http"
	"time"
)

// ObserveRoute counts a request for a route, in a table whose subjects are routes. It
// counts only answers 401 and 403, and their share of all answers; status is the origin's.
// client is the client's standing after the request: denials of a client that was already
// detected separately do not count, because they must not slow the route for everyone. A
// route enters the table with its first denial.
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
