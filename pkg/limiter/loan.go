package limiter

import "time"

// A bucket in escrow is divided: each region has a part of its burst and of its rate, in a
// bucket in its own store. So all regions together never pass more than the whole bucket
// would, without a message.
//
// Tokens may move. The giver's store takes them first and counts them as out: its own tokens
// and what is out never exceed its part of the burst, so what refills meanwhile adds nothing.
// The receiver's store adds them. As far as there is room below its own part, the giver may
// forget them, and the receiver says so with its next message. What is beyond that stays out
// at the giver, and the receiver drops it LoanLasts after it asked. So the tokens of all
// regions, those on the way included, never exceed the burst. A giver that hears nothing
// forgets what is out after LoanHeld. Both are durations, each by one store's own clock.

const (
	// LoanLasts is for how long, after it asked, a region takes tokens from another and keeps
	// what is beyond its part.
	LoanLasts = 5 * time.Second
	// LoanHeld is for how long a giver counts as out what it gave. A store's clock may be
	// another one in between, if a replica takes over.
	LoanHeld = LoanLasts + LoanLasts/10 + 2*MaxClockBack
	// LoansKept is for how long a store remembers what moved.
	LoansKept = 10 * time.Minute
	// PartRests is for how long a part that comes to a region rests: what its former holder
	// lent has ended by then, and its clock may be behind.
	PartRests = LoanLasts + 15*time.Second
	// Epoch is the length of the windows by which regions hold parts of buckets.
	Epoch = 5 * time.Second
)

// Portion is what a region has of a bucket. Limit.Burst is its part of the burst.
type Portion struct {
	// Num / Den is its part of the rate.
	Num, Den int64
	// Have is its part of the burst of the largest tier that shares the bucket, Young what of
	// that came to the region at Since, without tokens. OldNum / OldDen is its part of the rate
	// before that.
	Have, Young    int64
	OldNum, OldDen int64
	Since          int64 // Unix microseconds
}

// OldDrain is the drain before Since, in units of Rate.
func (l *Limit) OldDrain() int64 {
	p := l.Portion
	if p.OldNum == 0 {
		return 0
	}
	return l.Limit / gcd(l.Limit, l.Window.Microseconds()*p.Den) * p.OldNum * p.Den / p.OldDen
}

// Exact reports whether the units of a bucket's part are counted exactly.
func (l *Limit) Exact() bool {
	_, unit := l.Rate()
	return !overflows(max(1, l.Portion.Have), unit)
}

// Step is what a Move does with a bucket.
type Step uint8

// The steps by which tokens move.
const (
	LoanLook  Step = iota // tells what is left
	LoanAsk               // before a region asks another
	LoanGive              // the other gives
	LoanTake              // the region takes what was given
	LoanEmpty             // the store has lost what was spent, so nothing is left
)

// Loan is the part of a Move that only buckets have. Of what one region gave to another, both
// count how much it was in all, and how much of it the receiver need not give back. The counts
// begin with the receiver's counters.
type Loan struct {
	Step Step
	// ID identifies the receiver's counters: it is when they began. Asked is when the receiver
	// asked, by its store's clock. LoanAsk returns both, LoanTake needs both, LoanGive ID.
	ID, Asked int64
	// Closed is how much the giver may forget. LoanAsk and LoanGive return it, the others
	// need it.
	Closed int64
	// At is the store's time.
	At int64
}
