package rollout

import (
	"cmp"
	"math"
	"slices"

	"github.com/weir-edge/weir/internal/ctl/fleet"
)

const (
	// wander is by how much of itself a share varies over minutes, as a deviation, whatever
	// happens.
	wander = 0.15
	// deviations by which a difference must exceed chance, twice in a row.
	deviations = 3
	// deviationsAlone are those for each of many sites.
	deviationsAlone = 5
	// mostChance bounds what chance may excuse, so that no site is too restless to be judged.
	mostChance = 0.2
)

// variance returns that of the difference of a share, if each request stands for itself.
func variance(f *figure, before, now *fleet.Traffic) float64 {
	of := func(t *fleet.Traffic) float64 {
		p := (f.part(t) + 1) / (t.Requests + 2)
		return p * (1 - p) / max(t.Requests, 1)
	}
	return of(before) + of(now)
}

// chance returns by how much a figure of a subject may differ by chance.
func (x *subject) chance(f *figure, now *fleet.Traffic, o *common) float64 {
	by := variance(f, &x.before, now)
	if u := x.uneven[f.name]; u != nil {
		by *= max(u.looks.factor(), u.blocks.factor())
	}
	by += wander * wander * f.share(&x.before) * f.share(&x.before)
	times := float64(deviations)
	if x.alone {
		times = deviationsAlone
	}
	return min(mostChance, times*math.Sqrt(by+o.variance))
}

// uneven measures by how much a share varies beyond what independent requests would: clients
// come and go, and a client over its limit is refused many times. It compares each look with
// the one before, and each block of looks, so that a lasting change counts only once.
type uneven struct {
	looks, blocks variation
	block         [2]float64 // part and whole
	inBlock       int
}

type variation struct {
	part, whole        float64 // of the last one
	measured, expected float64
	pairs              int
}

func (v *variation) add(part, whole float64) {
	if whole == 0 {
		return
	}
	if v.whole > 0 {
		p := (part + v.part + 0.5) / (whole + v.whole + 1)
		difference := part/whole - v.part/v.whole
		v.measured += difference * difference / (1/whole + 1/v.whole)
		v.expected += p * (1 - p)
		v.pairs++
	}
	v.part, v.whole = part, whole
}

// factor returns the variance as a multiple of that of independent requests, at least 1.
func (v *variation) factor() float64 {
	if v.pairs == 0 {
		return 1
	}
	return max(1, v.measured/v.expected)
}

// add adds a look; long is how many looks make a block.
func (u *uneven) add(part, whole float64, long int) {
	u.looks.add(part, whole)
	u.block[0], u.block[1] = u.block[0]+part, u.block[1]+whole
	if u.inBlock++; u.inBlock >= long {
		u.blocks.add(u.block[0], u.block[1])
		u.block, u.inBlock = [2]float64{}, 0
	}
}

// end ends a period: what follows is not compared with it.
func (u *uneven) end() { u.looks.whole, u.blocks.whole, u.block, u.inBlock = 0, 0, [2]float64{}, 0 }

// noteSince adds what happened since the last look.
func (x *subject) noteSince(t fleet.Traffic) {
	for _, f := range figuresOf(&t) {
		u := x.uneven[f.name]
		if u == nil {
			u = &uneven{}
			x.uneven[f.name] = u
		}
		u.add(f.part(&t), t.Requests, x.block)
	}
}

// common is how a share changed at the sites without the version.
type common struct {
	common   float64 // what most of them have in common
	variance float64 // of that
	sites    int
	few      bool // one site may decide that
}

// beside returns what a change of a subject is compared with. A single other site may excuse
// it, but does not accuse: what it alone did may be its own affair.
func (c *common) beside(change float64) float64 {
	if c.few && c.common*change <= 0 {
		return 0
	}
	return c.common
}

// elsewhere is what happened at the sites without the version, compared with their past.
type elsewhere struct {
	j           *judge
	sites, from counts // the totals now, and at the beginning
	before, now fleet.Traffic
	changes     map[string]*common // by figure
}

// sum adds up all sites.
func (e *elsewhere) sum() {
	e.changes = map[string]*common{}
	for at, total := range e.sites {
		if !e.j.group.Has(at) {
			e.before, e.now = e.before.Plus(e.j.before[at]), e.now.Plus(total.Since(e.from[at]))
		}
	}
}

// change returns how a figure changed at most of the sites.
func (e *elsewhere) change(f *figure) *common {
	if e.changes[f.name] != nil {
		return e.changes[f.name]
	}
	var changes, variances []float64
	for at, total := range e.sites {
		is, was := total.Since(e.from[at]), e.j.before[at]
		if !e.j.group.Has(at) && was.Requests >= leastPast && is.Requests >= leastPast {
			changes = append(changes, f.share(&is)-f.share(&was))
			variances = append(variances, variance(f, &was, &is))
		}
	}
	c := inCommon(changes, variances)
	e.changes[f.name] = &c
	return &c
}

// inCommon returns the median of the changes, in which each site has the weight of what it
// knows: a few sites with troubles of their own do not move it. If two halves disagree, it is
// the smaller of the two next to the middle, or none.
func inCommon(changes, variances []float64) common {
	c := common{sites: len(changes)}
	order, weights, all, most := make([]int, len(changes)), make([]float64, len(changes)), 0.0, 0.0
	for i, v := range variances {
		order[i], weights[i] = i, 1/(v+finest*finest)
		all, most = all+weights[i], max(most, weights[i])
	}
	if all == 0 {
		return c
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(changes[a], changes[b]) })
	sum, low, high := 0.0, math.NaN(), 0.0
	for _, i := range order {
		if sum += weights[i]; math.IsNaN(low) && sum >= all/2-least {
			low = changes[i]
		}
		if sum > all/2+least {
			high = changes[i]
			break
		}
	}
	switch {
	case low > 0:
		c.common = low
	case high < 0:
		c.common = high
	}
	c.few, c.variance = len(changes) < several || most > all/2+least, medianVariance/all
	return c
}

const (
	medianVariance = math.Pi / 2 // of a median, compared with a mean
	// several sites are enough to say that something happens everywhere.
	several = 4
	// finest is the deviation of a site beyond which it has no more weight: no site speaks for
	// all.
	finest = 0.005
	least  = 1e-9
)
