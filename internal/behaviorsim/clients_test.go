package behaviorsim

import (
	"math/rand/v2"
	"time"
)

// actor is one subject's side: it gets the last answer, and says after which wait it sends
// what next.
type actor func(last answer) (wait time.Duration, q request)

// kind is a kind of subjects.
type kind struct {
	name    string
	hostile bool
	lasts   time.Duration
	make    func(r *rand.Rand) actor
	clients int           // that act together; 0: one
	within  time.Duration // hostile: when it must be detected, if not within 200 requests
	share   float64       // of a long run's subjects that are simulated; 0: all
	reports bool          // no goal: reported as it is
}

const second = float64(time.Second)

// around returns a wait with the given mean, exponentially distributed.
func around(r *rand.Rand, seconds float64) time.Duration {
	return time.Duration(r.ExpFloat64() * seconds * second)
}

func between(r *rand.Rand, low, high float64) float64 { return low + r.Float64()*(high-low) }

// get is a request whose fingerprint follows from its route and the client's software.
func get(route uint64, software uint64, status int) request {
	return request{route: mix(route), print: mix(route ^ software<<40), status: status}
}

// sometimes returns status with a probability, and otherwise 200.
func sometimes(r *rand.Rand, p float64, status int) int {
	if r.Float64() < p {
		return status
	}
	return 200
}

// bursts sends n() requests spread over span, then pauses.
func bursts(r *rand.Rand, n func() int, span time.Duration, pause func() time.Duration, q func(i int) request) actor {
	left, size := 0, 1
	return func(answer) (time.Duration, request) {
		if left == 0 {
			size = max(1, n())
			left = size
			left--
			return pause(), q(0)
		}
		left--
		return time.Duration(r.Float64() * 2 * float64(span) / float64(size)), q(size - 1 - left)
	}
}

// obedient waits as long as Retry-After says, and then sends the same request again.
func obedient(inner actor) actor {
	var pending request
	return func(last answer) (time.Duration, request) {
		if last.retryAfter > 0 {
			return last.retryAfter, pending
		}
		wait, q := inner(last)
		pending = q
		return wait, q
	}
}

// page is someone who reads pages of 100 assets; some are cached.
func page(r *rand.Rand) actor {
	current := uint64(0)
	return bursts(r, func() int { current++; return 20 + r.IntN(81) }, 2*time.Second, func() time.Duration { return 5*time.Second + around(r, 30) },
		func(i int) request {
			if i == 0 {
				return get(current%40, 1, sometimes(r, 0.01, 404))
			}
			return get(1000+uint64(r.IntN(300)), 1, sometimes(r, 0.005, 404))
		})
}

// photos is a library that syncs: 50 events in 8 s, for a new file each.
func photos(r *rand.Rand) actor {
	file := uint64(0)
	return obedient(bursts(r, func() int { return 40 + r.IntN(21) }, 8*time.Second, func() time.Duration { return around(r, 90) }, func(int) request {
		file++
		return get(file, 2, 201)
	}))
}

// chat polls, sends, and says that someone is typing.
func chat(r *rand.Rand) actor {
	rate := between(r, 0.5, 4)
	return func(answer) (time.Duration, request) {
		return around(r, 1/rate), get(uint64(r.IntN(3)), 3, sometimes(r, 0.002, 503))
	}
}

// poller asks for the same thing for ever, and expects to see failures.
func poller(r *rand.Rand) actor {
	every, down := between(r, 2, 15), 0
	return func(answer) (time.Duration, request) {
		if down == 0 && r.Float64() < 0.002 {
			down = 1 + r.IntN(5)
		}
		status := 200
		if down > 0 {
			down--
			status = 503
		}
		return time.Duration(every * second), request{route: 1, print: 1, status: status}
	}
}

// mobile wakes up after a pause with an expired token, and then fetches what is new.
func mobile(r *rand.Rand) actor {
	expired := 0
	return bursts(r, func() int { expired = 1 + r.IntN(20); return 30 + r.IntN(40) }, 3*time.Second, func() time.Duration { return 60*time.Second + around(r, 300) },
		func(i int) request {
			if i < expired {
				return get(uint64(r.IntN(25)), 4, 401)
			}
			return get(uint64(r.IntN(25)), 4, 200)
		})
}

// mirror walks a repository as fast as it may.
func mirror(r *rand.Rand) actor {
	rate, file := between(r, 5, 18), uint64(0)
	return obedient(func(answer) (time.Duration, request) {
		file++
		return around(r, 1/rate), get(file, 5, sometimes(r, 0.004, 404))
	})
}

// crawler is a search engine's: steady, and some of the links that it follows are dead.
func crawler(r *rand.Rand) actor {
	rate, dead, at := between(r, 0.5, 3), between(r, 0, 0.03), uint64(0)
	return obedient(func(answer) (time.Duration, request) {
		at++
		return around(r, 1/rate), get(at, 6, sometimes(r, dead, 404))
	})
}

// office is 500 people behind one address, with the software of 40.
func office(r *rand.Rand) actor {
	rate := between(r, 5, 15)
	return func(answer) (time.Duration, request) {
		route := uint64(float64(r.IntN(600)) * r.Float64())
		status := sometimes(r, 0.01, 404)
		if r.Float64() < 0.01 {
			status = 401
		}
		return around(r, 1/rate), get(route, uint64(r.IntN(40)), status)
	}
}

// batch sends as fast as it is let, and obeys Retry-After.
func batch(r *rand.Rand) actor {
	rate := between(r, 5, 60)
	return obedient(func(answer) (time.Duration, request) {
		return around(r, 1/rate), get(uint64(r.IntN(4)), 7, sometimes(r, 0.01, 409))
	})
}

// twice is a client with a bug: it sends what failed twice again, at once.
func twice(r *rand.Rand) actor {
	again, failed := 0, request{}
	return func(last answer) (time.Duration, request) {
		if last.status >= 400 && again == 0 {
			again = 2
		}
		if again > 0 {
			if again--; again == 0 {
				failed.status = 200
			}
			return 50 * time.Millisecond, failed
		}
		failed = get(uint64(r.IntN(30)), 8, sometimes(r, 0.08, []int{500, 404, 409}[r.IntN(3)]))
		return around(r, 0.7), failed
	}
}

// scraper enumerates; some of what it asks for has never been there. It does not obey.
func scraper(slow bool) func(r *rand.Rand) actor {
	return func(r *rand.Rand) actor {
		rate, at, missing := between(r, 10, 60), uint64(0), between(r, 0.15, 0.5)
		if slow {
			rate = between(r, 0.25, 0.6)
		}
		return func(answer) (time.Duration, request) {
			at++
			return around(r, 1/rate), get(at, 9, sometimes(r, missing, 404))
		}
	}
}

// scanner looks for admin pages and backups that are not there.
func scanner(r *rand.Rand) actor {
	rate, at := between(r, 2, 50), uint64(0)
	return func(answer) (time.Duration, request) {
		at++
		q := get(at, 10, []int{404, 404, 404, 404, 404, 404, 404, 404, 403, 200}[r.IntN(10)])
		q.lacks = r.IntN(2) == 0
		return around(r, 1/rate), q
	}
}

// guesser tries stolen passwords from one address.
func guesser(r *rand.Rand) actor {
	rate := between(r, 1, 20)
	return func(answer) (time.Duration, request) {
		return around(r, 1/rate), get(1, uint64(r.IntN(10)), []int{401, 200}[min(1, r.IntN(100)/99)])
	}
}

// guessers are 1,000 addresses that try one password a minute or less each, at a site
// whose own users mistype one in ten.
func guessers(r *rand.Rand) actor {
	rate := between(r, 5, 15)
	return func(answer) (time.Duration, request) {
		q := get(1, uint64(r.IntN(50)), 401)
		q.client = r.IntN(1000)
		if r.Float64() < 0.15 {
			q.client = 1000 + r.IntN(1000)
			q.status = sometimes(r, 0.1, 401)
		}
		return around(r, 1/rate), q
	}
}

// retrier is stuck: it sends what failed again, as often as it can.
func retrier(r *rand.Rand) actor {
	rate, status := between(r, 2, 60), []int{500, 503, 401, 404}[r.IntN(4)]
	return func(answer) (time.Duration, request) { return around(r, 1/rate), get(1, 11, status) }
}

// buster makes every request miss every cache: its query is random, with names that are,
// too, half of the time.
func buster(r *rand.Rand) actor {
	rate, names := between(r, 60, 400), r.IntN(2) == 0
	return func(answer) (time.Duration, request) {
		q := request{route: 1, print: 1, status: 200}
		if names {
			q.print = r.Uint64()
		}
		return around(r, 1/rate), q
	}
}

// rotator changes its software, headers and query names with each request.
func rotator(r *rand.Rand) actor {
	rate := between(r, 50, 150)
	return func(answer) (time.Duration, request) {
		return around(r, 1/rate), request{route: 1, print: r.Uint64(), lacks: r.IntN(3) == 0, status: 200}
	}
}

// careful knows the shipped policy, and walks every route at 18 a second: 7 % of them are
// missing, it lacks a header in 6 of 7 requests, and guesses 36 passwords a minute.
func careful(r *rand.Rand) actor {
	at := uint64(0)
	return func(answer) (time.Duration, request) {
		at++
		q := get(at, 12, sometimes(r, 0.07, 404))
		q.lacks = at%7 != 0
		if at%30 == 0 {
			q = get(1, 12, 401)
		}
		return time.Second / 18, q
	}
}

const half = 30 * time.Minute

var kinds = []kind{
	{name: "a page of 100 assets", lasts: half, make: page},
	{name: "a photo library that syncs", lasts: half, make: photos},
	{name: "a chat client", lasts: half, make: chat},
	{name: "a monitoring poller", lasts: half, make: poller},
	{name: "a mobile client that wakes up", lasts: half, make: mobile},
	{name: "a mirror or package manager", lasts: half, make: mirror, share: 0.2},
	{name: "a verified crawler", lasts: half, make: crawler},
	{name: "an office of 500 behind one address", lasts: half, make: office, share: 0.2},
	{name: "an API batch that obeys Retry-After", lasts: half, make: batch, share: 0.2},
	{name: "a client that retries twice", lasts: half, make: twice},

	{name: "a fast scraper", hostile: true, lasts: 5 * time.Minute, make: scraper(false), within: time.Minute},
	{name: "a slow scraper", hostile: true, lasts: half, make: scraper(true), within: 15 * time.Minute},
	{name: "a route scan", hostile: true, lasts: 5 * time.Minute, make: scanner, within: time.Minute},
	{name: "credential stuffing, one address", hostile: true, lasts: 5 * time.Minute, make: guesser, within: time.Minute},
	{name: "credential stuffing, 1,000 addresses", hostile: true, lasts: 5 * time.Minute, make: guessers, clients: 2000, within: time.Minute, share: 0.2},
	{name: "a retry loop", hostile: true, lasts: 5 * time.Minute, make: retrier, within: time.Minute},
	{name: "a cache-busting flood", hostile: true, lasts: 2 * time.Minute, make: buster, within: time.Minute, share: 0.2},
	{name: "a fingerprint rotator", hostile: true, lasts: 5 * time.Minute, make: rotator, within: time.Minute, share: 0.2},
	{name: "one just below each threshold", hostile: true, lasts: half, make: careful, within: time.Minute, share: 0.2, reports: true},
}
