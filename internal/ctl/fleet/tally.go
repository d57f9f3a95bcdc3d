package fleet

// Traffic is what happened in a group of nodes since the first look at each.
type Traffic struct {
	Requests float64 `json:"requests"`
	Limited  float64 `json:"limited"`
	Errors   float64 `json:"errors_5xx"`
}

func (t *Traffic) LimitedShare() float64 { return Ratio(t.Limited, t.Requests) }
func (t *Traffic) ErrorShare() float64   { return Ratio(t.Errors, t.Requests) }

// Since returns what was added to an earlier total.
func (t Traffic) Since(before Traffic) Traffic {
	return Traffic{t.Requests - before.Requests, t.Limited - before.Limited, t.Errors - before.Errors}
}

// Plus adds two totals.
func (t Traffic) Plus(more Traffic) Traffic {
	return Traffic{t.Requests + more.Requests, t.Limited + more.Limited, t.Errors + more.Errors}
}

func Ratio(part, whole float64) float64 {
	if whole == 0 {
		return 0
	}
	return part / whole
}

// Tally adds up the traffic of a group of nodes. A counter that is lower than before
// belongs to a node that restarted, and all it counts is new.
type Tally struct {
	Total Traffic
	last  map[string]*Figures // by node
}

func (t *Tally) Add(node string, now *Figures) {
	if t.last == nil {
		t.last = map[string]*Figures{}
	}
	before := t.last[node]
	t.last[node] = now
	if before == nil {
		return
	}
	for class, n := range now.requests {
		grown := growth(before.requests[class], n)
		t.Total.Requests += grown
		if class == "5xx" {
			t.Total.Errors += grown
		}
	}
	t.Total.Limited += growth(before.limited, now.limited)
}

func growth(before, now float64) float64 {
	if before <= now {
		return now - before
	}
	return now
}
