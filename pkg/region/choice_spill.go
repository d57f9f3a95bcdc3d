package region

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"slices"
)

// portion is the share, 0..1, of a PoP's clients that go to one PoP, itself or another.
type portion struct {
	to    string
	share float64
}

// portions compiles for each PoP what it keeps, listed first, and what it gives away.
func (c *chooser) portions(s *Spill) map[string][]portion {
	all := map[string][]portion{}
	for i, name := range c.all {
		parts := s.Gifts[name].Parts
		if len(parts) == 0 {
			continue
		}
		list, kept := []portion{{to: name}}, 1.0
		for _, to := range c.near[i] {
			if share := parts[to].Given(); share > 0 {
				kept -= share
				list = append(list, portion{to, share})
			}
		}
		if list[0].share = max(kept, 0); len(list) > 1 {
			all[name] = list
		}
	}
	return all
}

// pick returns the portion that a client belongs to, by weighted rendezvous hashing: as one
// share grows and another shrinks, clients move from the latter to the former, and fewer than
// as many again by way of the other portions.
func pick(client netip.Prefix, portions []portion) (mine int) {
	best := math.Inf(1)
	for i, s := range portions {
		if score := -math.Log(1-uniform(ticket(client, s.to))) / s.share; score < best {
			mine, best = i, score
		}
	}
	return mine
}

// rankNear orders the PoPs that may get each PoP's clients: by distance where it is known,
// otherwise those of the same region first, then by the order of the regions; equals by name. A PoP
// of weight 0 gets none.
func (c *chooser) rankNear() {
	c.near = make([][]string, len(c.pops))
	for i, p := range c.pops {
		by := map[string]float64{}
		for j, q := range c.pops {
			if j == i || q.weight() == 0 {
				continue
			}
			switch {
			case p.Location != nil && q.Location != nil:
				by[q.Name] = distance(*p.Location, *q.Location)
			case c.region[i] != c.region[j]:
				by[q.Name] = math.Pi*earthRadius + float64(c.region[j]) // beyond any distance
			}
			c.near[i] = append(c.near[i], q.Name)
		}
		slices.SortStableFunc(c.near[i], func(a, b string) int { return cmp.Compare(by[a], by[b]) })
	}
}

// spilled returns the index in list of the PoP that gets the client. That is the first,
// unless home gives the client to another PoP in the list; home is the best PoP before the
// list was reduced to those that serve.
func (w *choosing) spilled(home candidate, list []candidate) int {
	portions := w.portions[w.all[home.pop]]
	if s := w.states[w.all[home.pop]]; w.Explain && s.tells() && s.Demand > returnBelow*s.Capacity {
		w.say("%s receives %.0f requests per second and can serve %.0f", w.all[home.pop], s.Demand, s.Capacity)
	}
	if len(portions) == 0 {
		return 0
	}
	w.depends(stickyNetwork(w.Client).Bits())
	mine := portions[pick(w.Client, portions)].to
	if w.Explain {
		w.explainSpill(w.all[home.pop], portions, mine)
	}
	return max(0, slices.IndexFunc(list, func(c candidate) bool { return w.all[c.pop] == mine }))
}

func (w *choosing) explainSpill(name string, portions []portion, mine string) {
	for _, s := range portions[1:] {
		w.say("%s gives %.1f%% of its clients to %s", name, 100*s.share, s.to)
	}
	if mine == name {
		w.say("%s keeps this client", name)
	} else {
		w.say("%s gives this client to %s", name, mine)
	}
}

// restless tells why PoPs with room do not get their clients back.
func (v *View) restless() (steps []Step) {
	for _, name := range v.chooser.all {
		if g := v.Spill.Gifts[name]; g.Gives() && g.Last.restless(v.At) {
			steps = append(steps, Step(fmt.Sprintf("%s has filled up again %d times; its clients come back at %s at the earliest",
				name, g.Last.Relapses, g.Last.Relapsed.Add(resting).UTC().Format("15:04:05Z"))))
		}
	}
	return steps
}

// Nearest returns the PoPs that may get a PoP's clients, the nearest first.
func (v *View) Nearest(name string) []string {
	if i := slices.Index(v.chooser.all, name); i >= 0 {
		return v.chooser.near[i]
	}
	return nil
}
