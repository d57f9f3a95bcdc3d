package corpus

import (
	"time"
)

// Request is a client's request with the origin's answer.
type Request struct {
	Client int    // which of several that act together
	Route  uint64 // hash of the path
	Print  uint64 // fingerprint: hash of what repeated requests have in common
	Lacks  bool   // User-Agent or Accept is missing
	Status int
}

// Answer is the client's answer.
type Answer struct {
	Status     int
	RetryAfter time.Duration // 0: absent
}

// Actor simulates one subject: given the last answer, it returns its next request and the wait
// before it.
type Actor func(last Answer) (wait time.Duration, q Request)

// Kind is a kind of subject.
type Kind struct {
	Name    string
	Hostile bool
	Lasts   time.Duration
	make    func(r *random) Actor
	Clients int           // clients that act together; 0: one
	Within  time.Duration // Hostile: detection deadline, unless within 200 requests
	Share   float64       // part of a long run's subjects that are simulated; 0: all
	Reports bool          // reported, without a goal
}

const second = float64(time.Second)

// around returns an exponentially distributed wait with the given mean.
func around(r *random, seconds float64) time.Duration {
	return time.Duration(r.ExpFloat64() * seconds * second)
}

// get returns a request whose fingerprint follows from its route and the client's software.
func get(route uint64, software uint64, status int) Request {
	return Request{Route: Mix(route), Print: Mix(route ^ software<<40), Status: status}
}

// sometimes returns status with probability p, otherwise 200.
func sometimes(r *random, p float64, status int) int {
	if r.Float64() < p {
		return status
	}
	return 200
}

// bursts sends n() requests over span, then pauses.
func bursts(r *random, n func() int, span time.Duration, pause func() time.Duration, q func(i int) Request) Actor {
	left, size := 0, 1
	return func(Answer) (time.Duration, Request) {
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

// obedient waits as Retry-After says and then repeats the request.
func obedient(inner Actor) Actor {
	var pending Request
	return func(last Answer) (time.Duration, Request) {
		if last.RetryAfter > 0 {
			return last.RetryAfter, pending
		}
		wait, q := inner(last)
		pending = q
		return wait, q
	}
}

// page reads pages of 100 assets, some of them cached.
func page(r *random) Actor {
	current, size, reads, dead, lost := uint64(0), r.vary(1), r.vary(30), r.vary(0.01), r.vary(0.005)
	return bursts(r, func() int { current++; return int(size * float64(20+r.IntN(81))) }, 2*time.Second, func() time.Duration { return 5*time.Second + around(r, reads) },
		func(i int) Request {
			if i == 0 {
				return get(current%40, 1, sometimes(r, dead, 404))
			}
			return get(1000+uint64(r.IntN(300)), 1, sometimes(r, lost, 404))
		})
}

// photos syncs a photo library: 50 events in 8 s, each for a new file.
func photos(r *random) Actor {
	file, size, rests := uint64(0), r.vary(1), r.vary(90)
	return obedient(bursts(r, func() int { return int(size * float64(40+r.IntN(21))) }, 8*time.Second, func() time.Duration { return around(r, rests) }, func(int) Request {
		file++
		return get(file, 2, 201)
	}))
}

// chat polls, sends, and reports typing.
func chat(r *random) Actor {
	rate, failing := between(r, 0.5, 4), r.vary(0.002)
	return func(Answer) (time.Duration, Request) {
		return around(r, 1/rate), get(uint64(r.IntN(3)), 3, sometimes(r, failing, 503))
	}
}

// poller polls one resource forever, and expects failures.
func poller(r *random) Actor {
	every, down, failing := between(r, 2, 15), 0, r.vary(0.002)
	return func(Answer) (time.Duration, Request) {
		if down == 0 && r.Float64() < failing {
			down = 1 + r.IntN(5)
		}
		status := 200
		if down > 0 {
			down--
			status = 503
		}
		return time.Duration(every * second), Request{Route: 1, Print: 1, Status: status}
	}
}

// mobile wakes after a pause with an expired token, then fetches news.
func mobile(r *random) Actor {
	expired, size, stale, sleeps := 0, r.vary(1), r.vary(1), r.vary(300)
	return bursts(r, func() int {
		expired = int(stale * float64(1+r.IntN(20)))
		return int(size * float64(30+r.IntN(40)))
	}, 3*time.Second, func() time.Duration { return 60*time.Second + around(r, sleeps) },
		func(i int) Request {
			if i < expired {
				return get(uint64(r.IntN(25)), 4, 401)
			}
			return get(uint64(r.IntN(25)), 4, 200)
		})
}

// mirror walks a repository as fast as allowed.
func mirror(r *random) Actor {
	rate, file, lost := between(r, 5, 18), uint64(0), r.vary(0.004)
	return obedient(func(Answer) (time.Duration, Request) {
		file++
		return around(r, 1/rate), get(file, 5, sometimes(r, lost, 404))
	})
}

// crawler is a search engine: steady, and some of its links are dead.
func crawler(r *random) Actor {
	rate, dead, at := between(r, 0.5, 3), between(r, 0, 0.03), uint64(0)
	return obedient(func(Answer) (time.Duration, Request) {
		at++
		return around(r, 1/rate), get(at, 6, sometimes(r, dead, 404))
	})
}

// office is 500 people behind one address, with 40 kinds of software.
func office(r *random) Actor {
	rate, dead, mistyped := between(r, 5, 15), r.vary(0.01), r.vary(0.01)
	return func(Answer) (time.Duration, Request) {
		route := uint64(float64(r.IntN(600)) * r.Float64())
		status := sometimes(r, dead, 404)
		if r.Float64() < mistyped {
			status = 401
		}
		return around(r, 1/rate), get(route, uint64(r.IntN(40)), status)
	}
}

// batch sends as fast as allowed and obeys Retry-After.
func batch(r *random) Actor {
	rate, conflicts := between(r, 5, 60), r.vary(0.01)
	return obedient(func(Answer) (time.Duration, Request) {
		return around(r, 1/rate), get(uint64(r.IntN(4)), 7, sometimes(r, conflicts, 409))
	})
}

// twice is a client with a bug: it repeats failed requests twice, immediately.
func twice(r *random) Actor {
	again, failed, fails, every := 0, Request{}, r.vary(0.08), r.vary(0.7)
	return func(last Answer) (time.Duration, Request) {
		if last.Status >= 400 && again == 0 {
			again = 2
		}
		if again > 0 {
			if again--; again == 0 {
				failed.Status = 200
			}
			return 50 * time.Millisecond, failed
		}
		failed = get(uint64(r.IntN(30)), 8, sometimes(r, fails, []int{500, 404, 409}[r.IntN(3)]))
		return around(r, every), failed
	}
}

// scraper enumerates; some resources never existed. It ignores Retry-After.
func scraper(slow bool) func(r *random) Actor {
	return func(r *random) Actor {
		rate, at, missing := between(r, 10, 60), uint64(0), between(r, 0.15, 0.5)
		if slow {
			rate = between(r, 0.25, 0.6)
		}
		return func(Answer) (time.Duration, Request) {
			at++
			return around(r, 1/rate), get(at, 9, sometimes(r, missing, 404))
		}
	}
}

// scanner looks for admin pages and backups that do not exist.
func scanner(r *random) Actor {
	rate, at := between(r, 2, 50), uint64(0)
	return func(Answer) (time.Duration, Request) {
		at++
		q := get(at, 10, []int{404, 404, 404, 404, 404, 404, 404, 404, 403, 200}[r.IntN(10)])
		q.Lacks = r.IntN(2) == 0
		return around(r, 1/rate), q
	}
}

// guesser tries stolen passwords from one address.
func guesser(r *random) Actor {
	rate := between(r, 1, 20)
	return func(Answer) (time.Duration, Request) {
		return around(r, 1/rate), get(1, uint64(r.IntN(10)), []int{401, 200}[min(1, r.IntN(100)/99)])
	}
}

// guessers are 1,000 addresses that each try at most one password per minute, at a site whose
// users mistype one in ten.
func guessers(r *random) Actor {
	rate, users, mistyped := between(r, 5, 15), r.vary(0.15), r.vary(0.1)
	return func(Answer) (time.Duration, Request) {
		q := get(1, uint64(r.IntN(50)), 401)
		q.Client = r.IntN(1000)
		if r.Float64() < users {
			q.Client = 1000 + r.IntN(1000)
			q.Status = sometimes(r, mistyped, 401)
		}
		return around(r, 1/rate), q
	}
}

// retrier is stuck: it repeats failed requests as often as it can.
func retrier(r *random) Actor {
	rate, status := between(r, 2, 60), []int{500, 503, 401, 404}[r.IntN(4)]
	return func(Answer) (time.Duration, Request) { return around(r, 1/rate), get(1, 11, status) }
}

// buster bypasses caches: its query values are random, and half of the time so are the names.
func buster(r *random) Actor {
	rate, names := between(r, 60, 400), r.IntN(2) == 0
	return func(Answer) (time.Duration, Request) {
		q := Request{Route: 1, Print: 1, Status: 200}
		if names {
			q.Print = r.Uint64()
		}
		return around(r, 1/rate), q
	}
}

// rotator changes its software, headers and query names with each request.
func rotator(r *random) Actor {
	rate := between(r, 50, 150)
	return func(Answer) (time.Duration, Request) {
		return around(r, 1/rate), Request{Route: 1, Print: r.Uint64(), Lacks: r.IntN(3) == 0, Status: 200}
	}
}

// careful knows the shipped policy. It walks every route at 18 requests per second, of which 7%
// are missing and 6 of 7 lack a header, and guesses 36 passwords per minute.
func careful(r *random) Actor {
	at := uint64(0)
	return func(Answer) (time.Duration, Request) {
		at++
		q := get(at, 12, sometimes(r, 0.07, 404))
		q.Lacks = at%7 != 0
		if at%30 == 0 {
			q = get(1, 12, 401)
		}
		return time.Second / 18, q
	}
}

const half = 30 * time.Minute

// Kinds lists all kinds, benign ones first.
var Kinds = []Kind{
	{Name: "a page of 100 assets", Lasts: half, make: page},
	{Name: "a photo library that syncs", Lasts: half, make: photos},
	{Name: "a chat client", Lasts: half, make: chat},
	{Name: "a monitoring poller", Lasts: half, make: poller},
	{Name: "a mobile client that wakes up", Lasts: half, make: mobile},
	{Name: "a mirror or package manager", Lasts: half, make: mirror, Share: 0.2},
	{Name: "a verified crawler", Lasts: half, make: crawler},
	{Name: "an office of 500 behind one address", Lasts: half, make: office, Share: 0.2},
	{Name: "an API batch that obeys Retry-After", Lasts: half, make: batch, Share: 0.2},
	{Name: "a client that retries twice", Lasts: half, make: twice},

	{Name: "a fast scraper", Hostile: true, Lasts: 5 * time.Minute, make: scraper(false), Within: time.Minute},
	{Name: "a slow scraper", Hostile: true, Lasts: half, make: scraper(true), Within: 15 * time.Minute},
	{Name: "a route scan", Hostile: true, Lasts: 5 * time.Minute, make: scanner, Within: time.Minute},
	{Name: "credential stuffing, one address", Hostile: true, Lasts: 5 * time.Minute, make: guesser, Within: time.Minute},
	{Name: "credential stuffing, 1,000 addresses", Hostile: true, Lasts: 5 * time.Minute, make: guessers, Clients: 2000, Within: time.Minute, Share: 0.2},
	{Name: "a retry loop", Hostile: true, Lasts: 5 * time.Minute, make: retrier, Within: time.Minute},
	{Name: "a cache-busting flood", Hostile: true, Lasts: 2 * time.Minute, make: buster, Within: time.Minute, Share: 0.2},
	{Name: "a fingerprint rotator", Hostile: true, Lasts: 5 * time.Minute, make: rotator, Within: time.Minute, Share: 0.2},
	{Name: "one just below each threshold", Hostile: true, Lasts: half, make: careful, Within: time.Minute, Share: 0.2, Reports: true},
}
