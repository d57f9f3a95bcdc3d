package overload

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Span is a part of a run, including From and excluding To. An attempt belongs to the
// span in which it is due.
type Span struct{ From, To time.Duration }

func (s Span) has(at time.Duration) bool { return at >= s.From && at < s.To }

// after omits the beginning.
func (s Span) after(d time.Duration) Span { return Span{min(s.From+d, s.To), s.To} }

// last keeps only the end.
func (s Span) last(d time.Duration) Span { return Span{max(s.To-d, s.From), s.To} }

// Never is the time of an event that does not occur.
const Never = time.Duration(math.MaxInt64)

// Goodput is the rate at which a span's attempts were answered within Deadline, as a
// share of Capacity.
func Goodput(run Run, span Span) float64 {
	return rate(run, span, good)
}

// Offered is the span's rate of attempts, including retries, as a share of Capacity.
func Offered(run Run, span Span) float64 {
	return rate(run, span, func(*Attempt) bool { return true })
}

func rate(run Run, span Span, counts func(*Attempt) bool) float64 {
	if span.To <= span.From {
		return 0
	}
	return float64(count(run, span, counts)) / (span.To - span.From).Seconds() / Capacity
}

func count(run Run, span Span, counts func(*Attempt) bool) int {
	n := 0
	for i := range run.Attempts {
		if a := &run.Attempts[i]; span.has(a.Due) && counts(a) {
			n++
		}
	}
	return n
}

func good(a *Attempt) bool { return a.Outcome == Answered && a.Took <= Deadline }

// share returns the share of the attempts belonging to a span and of for which is
// holds; 1 if there are none.
func share(run Run, span Span, of, is func(*Attempt) bool) float64 {
	all := count(run, span, of)
	if all == 0 {
		return 1
	}
	return float64(count(run, span, func(a *Attempt) bool { return of(a) && is(a) })) / float64(all)
}

// P99 is the 99th percentile, by nearest rank, of how long a span's admitted attempts
// took, from when they were due. A failed one counts with at least Deadline: its client
// did not get an answer sooner.
func P99(run Run, span Span) time.Duration {
	var took []time.Duration
	for i := range run.Attempts {
		a := &run.Attempts[i]
		switch {
		case !span.has(a.Due) || a.Outcome == Shed:
		case a.Outcome == Failed:
			took = append(took, max(a.Took, Deadline))
		default:
			took = append(took, a.Took)
		}
	}
	if len(took) == 0 {
		return 0
	}
	slices.Sort(took)
	return took[(len(took)*99+99)/100-1]
}

// Success is the share of a class's attempts in a span that were answered within
// Deadline, 1 if there were none.
func Success(run Run, span Span, class int) float64 {
	return share(run, span, func(a *Attempt) bool { return a.Class == class }, good)
}

// Recovered is the number of answers within Deadline to a span's attempts, per request
// first due in it: 1 when every request is served, possibly by a retry.
func Recovered(run Run, span Span) float64 {
	first := count(run, span, func(a *Attempt) bool { return !a.Retry })
	if first == 0 {
		return 1
	}
	return float64(count(run, span, good)) / float64(first)
}

// Sheds is how many of a span's attempts were refused by the shedder.
func Sheds(run Run, span Span) int {
	return count(run, span, func(a *Attempt) bool { return a.Outcome == Shed })
}

// LevelSheds is how many of them were refused by the level and not by a cap.
func LevelSheds(run Run, span Span) int { return count(run, span, byLevel) }

// LevelShare is the share of a span's refusals that were by the level, which chooses by class
// and by user, and not by a cap, which chooses by class and chance; 1 if there were none.
func LevelShare(run Run, span Span) float64 {
	return share(run, span, func(a *Attempt) bool { return a.Outcome == Shed }, byLevel)
}

// ShedShares are the shares of a span's attempts that were shed, by class.
func ShedShares(run Run, span Span) (shares [Classes]float64) {
	for class := range shares {
		of := func(a *Attempt) bool { return a.Class == class }
		if count(run, span, of) > 0 {
			shares[class] = share(run, span, of, func(a *Attempt) bool { return a.Outcome == Shed })
		}
	}
	return shares
}

func byLevel(a *Attempt) bool { return a.Outcome == Shed && !a.Capped }

// sent is when an attempt was sent.
func (a *Attempt) sent() time.Duration { return max(a.Due, a.Sent) }

// together is how close in time two attempts must be for Inversions. The shedder's
// decision is constant for an Interval, and twice this is well below it.
const together = Interval / 4

// Inversions is how many of a span's attempts were refused by the level although an
// admitted attempt of a lower class was sent within 25 ms before and another within 25
// ms after. Since the shedder decides every 100 ms, at least one of the two was judged
// together with the refused one; one side alone proves nothing, because the decision may
// have changed in between. Neither does a refusal that itself took longer than 25 ms:
// the time of its decision is unknown.
func Inversions(run Run, span Span) int {
	var in []*Attempt
	for i := range run.Attempts {
		if a := &run.Attempts[i]; span.has(a.Due) {
			in = append(in, a)
		}
	}
	slices.SortStableFunc(in, func(a, b *Attempt) int { return cmp.Compare(a.sent(), b.sent()) })

	before := make([]bool, len(in))
	mark := func(at int, lower *[Classes]time.Duration, sign time.Duration, found func(i int)) {
		a := in[at]
		if a.Outcome != Shed {
			lower[a.Class] = a.sent()
			return
		}
		if a.Capped || a.Due+a.Took-a.sent() > together {
			return
		}
		for class := a.Class + 1; class < Classes; class++ {
			if sign*(a.sent()-lower[class]) <= together {
				found(at)
				return
			}
		}
	}
	n := 0
	var last, next [Classes]time.Duration
	for class := range Classes {
		last[class], next[class] = -time.Hour, 1000*time.Hour
	}
	for i := range in {
		mark(i, &last, 1, func(i int) { before[i] = true })
	}
	for i := len(in) - 1; i >= 0; i-- {
		mark(i, &next, -1, func(i int) {
			if before[i] {
				n++
			}
		})
	}
	return n
}

// Swing is the highest level sampled in a span minus the lowest.
func Swing(run Run, span Span) float64 {
	low, high := math.Inf(1), math.Inf(-1)
	for _, s := range run.Samples {
		if span.has(s.At) {
			low, high = min(low, s.Level), max(high, s.Level)
		}
	}
	return max(0, high-low)
}

// Variation is the standard deviation of a span's goodput, second by second of when
// requests were due, divided by its mean. A partial last second is omitted. It is +Inf
// if there is no goodput, and 0 for less than two seconds.
func Variation(run Run, span Span) float64 {
	seconds := make([]float64, max(0, int((span.To-span.From)/time.Second)))
	if len(seconds) < 2 {
		return 0
	}
	for i := range run.Attempts {
		if a := &run.Attempts[i]; span.has(a.Due) && good(a) {
			if s := int((a.Due - span.From) / time.Second); s < len(seconds) {
				seconds[s]++
			}
		}
	}
	mean, squares := 0.0, 0.0
	for _, n := range seconds {
		mean += n / float64(len(seconds))
	}
	for _, n := range seconds {
		squares += (n - mean) * (n - mean)
	}
	if mean == 0 {
		return math.Inf(1)
	}
	return math.Sqrt(squares/float64(len(seconds)-1)) / mean
}

// Onset is how long after the beginning of a span the first of its attempts that was
// shed was due; Never if none was.
func Onset(run Run, span Span) time.Duration {
	first := Never
	for i := range run.Attempts {
		if a := &run.Attempts[i]; span.has(a.Due) && a.Outcome == Shed {
			first = min(first, a.Due-span.From)
		}
	}
	return first
}

// Recovery is how long after the beginning of a span the last of its attempts that was
// shed was due: 0 if none was, Never if that was in the last second of the span.
func Recovery(run Run, span Span) time.Duration {
	last := time.Duration(0)
	for i := range run.Attempts {
		if a := &run.Attempts[i]; span.has(a.Due) && a.Outcome == Shed {
			last = max(last, a.Due-span.From)
		}
	}
	if last > 0 && last >= span.To-span.From-time.Second {
		return Never
	}
	return last
}

// LevelZero is how long after the beginning of a span the level reached 0 for the rest
// of it; Never if it did not, or was not sampled.
func LevelZero(run Run, span Span) time.Duration {
	since := Never
	for _, s := range run.Samples { // in order
		switch {
		case !span.has(s.At):
		case s.Level > 0:
			since = Never
		case since == Never:
			since = s.At - span.From
		}
	}
	return since
}
