package behaviorsim

import (
	"time"

	"github.com/weir-edge/weir/internal/behaviorsim/corpus"
	"github.com/weir-edge/weir/internal/edge/decide"
	"github.com/weir-edge/weir/pkg/behavior"
)

// verdict is a defense's verdict on a request.
type verdict struct {
	corpus.Answer
	static, own bool // refused by the limits alone; refused by the layer above them
	delayed     bool
	detected    bool // the subject is at least suspicious
}

type defense interface {
	decide(now time.Time, q *corpus.Request) verdict
}

// The rule that all three defenses enforce: 20 requests per second for each client, bursts of
// 200.
const (
	limitRate  = 20.0
	limitBurst = 200.0
)

type bucket struct {
	spent float64
	at    time.Time
}

func (b *bucket) take(now time.Time, factor float64) (ok bool, retryAfter time.Duration) {
	rate, burst := limitRate*factor, limitBurst*factor
	b.spent = max(0, b.spent-now.Sub(b.at).Seconds()*rate)
	b.at = now
	if b.spent+1 > burst {
		wait := time.Duration((b.spent + 1 - burst) / rate * float64(time.Second))
		return false, (wait/time.Second + 1) * time.Second
	}
	b.spent++
	return true, 0
}

// limits are the static limits, and the same scaled by a tier.
type limits struct {
	plain, scaled map[int]*bucket
}

func newLimits() limits { return limits{map[int]*bucket{}, map[int]*bucket{}} }

func (l *limits) decide(now time.Time, client int, factor float64) (v verdict) {
	if l.plain[client] == nil {
		l.plain[client], l.scaled[client] = &bucket{at: now}, &bucket{at: now}
	}
	ok, wait := l.plain[client].take(now, 1)
	okScaled, waitScaled := l.scaled[client].take(now, factor)
	switch {
	case !ok:
		v.static, v.Answer = true, corpus.Answer{Status: 429, RetryAfter: max(wait, waitScaled)}
	case !okScaled:
		v.own, v.Answer = true, corpus.Answer{Status: 429, RetryAfter: waitScaled}
	}
	return v
}

// static is limits alone: a client is detected once it is limited.
type static struct{ limits }

func (d *static) decide(now time.Time, q *corpus.Request) verdict {
	v := d.limits.decide(now, q.Client, 1)
	v.detected = v.static
	if !v.static {
		v.Answer = corpus.Answer{Status: q.Status}
	}
	return v
}

// shipped is weir's layer with its default policy. Its tiers have the effects that `regionctl
// policy example` prints.
type shipped struct {
	limits
	clients, routes *behavior.Table
	worst           int // worst tier of any subject
}

// factors multiply the limits, by tier; suspicious requests also wait.
var factors = [...]float64{1, 0.6, 0.2, 0}

const (
	suspicious = 2
	tarpit     = time.Second
)

func newShipped(start time.Time, clients int) *shipped {
	return &shipped{newLimits(), behavior.NewTable(clients, behavior.Default(), start), behavior.NewTable(64, behavior.DefaultRoutes(), start), 0}
}

func (d *shipped) decide(now time.Time, q *corpus.Request) (v verdict) {
	key := corpus.Mix(uint64(q.Client))
	st := d.clients.Status(key, now)
	guessed := d.routes.Status(q.Route, now).Tier
	if st.Refused > 0 {
		return verdict{own: true, detected: true, Answer: corpus.Answer{Status: 403, RetryAfter: st.Refused}}
	}
	tier := st.Tier
	if !st.Proven {
		tier = max(tier, guessed)
	}
	v = d.limits.decide(now, q.Client, factors[tier])
	v.delayed = tier >= suspicious
	e := behavior.Event{Route: q.Route, Fingerprint: q.Print, LacksHeaders: q.Lacks, Status: q.Status, Login: guessed > 0}
	if v.static || v.own {
		e = behavior.Event{Refused: true, RetryAfter: v.RetryAfter}
	} else {
		v.Answer = corpus.Answer{Status: q.Status}
		guessed = max(guessed, d.routes.ObserveRoute(q.Route, now, q.Status, st).Tier)
	}
	if !e.Refused || !decide.TierMade(factors[tier]) {
		st = d.clients.Observe(key, now, &e)
	}
	v.detected = max(st.Tier, guessed) >= suspicious
	return v
}

// spread is three weir nodes that exchange counts each second, behind a balancer that
// distributes each client's requests in turn.
type spread struct {
	limits
	nodes  [3]*shipped
	next   int
	shared time.Time
}

func newSpread(start time.Time, clients int) *spread {
	d := &spread{limits: newLimits(), shared: start}
	for i := range d.nodes {
		d.nodes[i] = newShipped(start, clients)
		d.nodes[i].limits = d.limits // counted in one Redis
	}
	return d
}

func (d *spread) decide(now time.Time, q *corpus.Request) verdict {
	if now.Sub(d.shared) >= time.Second {
		d.shared = now
		d.exchange(now, func(n *shipped) *behavior.Table { return n.clients })
		d.exchange(now, func(n *shipped) *behavior.Table { return n.routes })
	}
	d.next = (d.next + 1) % len(d.nodes)
	return d.nodes[d.next].decide(now, q)
}

func (d *spread) exchange(now time.Time, table func(*shipped) *behavior.Table) {
	var shared [len(d.nodes)][]byte
	for i, n := range d.nodes {
		table(n).Divide(len(d.nodes))
		shared[i] = table(n).AppendAccounts(nil, now, 1000)
	}
	for i, n := range d.nodes {
		var others behavior.Region
		for k := range shared {
			if k != i {
				others.Add(shared[k])
			}
		}
		table(n).Merge(now, &others)
	}
}

// published is a widely published scoring: five signals, exact counts, no decay; its own
// refusals count.
type published struct {
	limits
	of map[int]*scored
}

type scored struct {
	all     []observed // in the last 5 minutes
	past    float64    // requests in earlier 10 s
	window  time.Time
	inside  int
	blocked time.Time
}

type observed struct {
	at      time.Time
	route   uint64
	print   uint64
	lacks   bool
	refused bool
}

func (s *scored) score(now time.Time) (score int) {
	var recent, minute, denied, lacks, top int
	prints, routes := map[uint64]int{}, map[uint64]bool{}
	for i := len(s.all) - 1; i >= 0; i-- {
		o := &s.all[i]
		age := now.Sub(o.at)
		if o.refused {
			denied++
		}
		if age > time.Minute {
			continue
		}
		if age <= 10*time.Second {
			recent++
		}
		if o.lacks {
			lacks++
		}
		minute++
		routes[o.route] = true
		prints[o.print]++
		top = max(top, prints[o.print])
	}
	add := func(points int, when bool) {
		if when {
			score += points
		}
	}
	add(35, recent >= 15 && float64(recent) >= 3*s.past)
	add(30, top >= 8 && float64(top) >= 0.7*float64(minute))
	add(25, len(routes) >= 12 && minute >= 30)
	add(15, denied >= 5)
	add(10, lacks >= 10)
	return score
}

func (d *published) decide(now time.Time, q *corpus.Request) (v verdict) {
	s := d.of[q.Client]
	if s == nil {
		s = &scored{window: now}
		d.of[q.Client] = s
	}
	for ; now.Sub(s.window) >= 10*time.Second; s.window = s.window.Add(10 * time.Second) {
		s.past += (float64(s.inside) - s.past) / 6
		s.inside = 0
		if s.past < 0.01 {
			s.past, s.window = 0, now
			break
		}
	}
	s.inside++
	drop := 0
	for drop < len(s.all) && now.Sub(s.all[drop].at) > 5*time.Minute {
		drop++
	}
	// 600 exceed every threshold and keep the simulation fast.
	s.all = s.all[max(drop, len(s.all)-600):]
	score := s.score(now)
	defer func() {
		s.all = append(s.all, observed{now, q.Route, q.Print, q.Lacks, v.own || v.static})
	}()
	if score >= 75 {
		s.blocked = now.Add(5 * time.Minute)
	}
	if now.Before(s.blocked) {
		return verdict{own: true, detected: true, Answer: corpus.Answer{Status: 429, RetryAfter: s.blocked.Sub(now)}}
	}
	factor := 1.0
	switch {
	case score >= 50:
		factor = 0.2
	case score >= 25:
		factor = 0.6
	}
	v = d.limits.decide(now, q.Client, factor)
	v.detected = score >= 50
	if !v.static && !v.own {
		v.Answer = corpus.Answer{Status: q.Status}
	}
	return v
}
