package admin

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/top"
)

// processStart is when counting can have begun.
var processStart = time.Now().UTC()

// showTop shows whom the rules refused most lately, and which clients are suspicious.
func (a *Admin) showTop(w http.ResponseWriter, r *http.Request) {
	most, err := mostOf(r.URL.Query())
	if err != nil {
		adminError(w, http.StatusBadRequest, err)
		return
	}
	now := time.Now()
	out := adminapi.Top{Node: a.Config.Node.ID, Since: top.Since(now), Rules: a.Top(now, most), Suspects: []adminapi.Suspect{}}
	if out.Since.Before(processStart) {
		out.Since = processStart
	}
	if k := a.Decider.Behavior; k != nil && k.Policy() != nil {
		out.PolicyMode = k.Policy().Mode()
		out.Suspects = a.suspects(now, most)
	}
	writeJSON(w, http.StatusOK, out)
}

// mostOf reads how many clients to show. An unknown parameter is an error, because a typo
// would show something else.
func mostOf(q url.Values) (most int, err error) {
	most = top.Keys
	for name := range q {
		if name != "most" {
			return 0, fmt.Errorf("%s: unknown; use most", name)
		}
		if most, err = strconv.Atoi(q.Get(name)); err != nil || most < 1 || most > top.Keys {
			return 0, fmt.Errorf("most: must be a number from 1 to %d (got %q)", top.Keys, q.Get(name))
		}
	}
	return most, nil
}

func (a *Admin) suspects(now time.Time, most int) []adminapi.Suspect {
	k, list := a.Decider.Behavior, []adminapi.Suspect{}
	p := k.Policy()
	for _, s := range k.Suspects(now) {
		if len(list) == most {
			break
		}
		tier := min(s.Tier, len(p.Effects)-1) // the policy may have been replaced
		out := adminapi.Suspect{
			Key: []string{}, Client: s.Client, Tier: p.Effects[tier].Name, Level: tier, Score: s.Score,
			Signals: adminapi.BehaviorSignals(s.Reasons), Requests: s.AtLeast,
		}
		if s.Name != "" { // otherwise its address identifies it
			out.Key = s.Values(p.Subject)
		} else {
			out.Key = []string{s.Client.String()}
		}
		if s.Refused > 0 {
			out.RefusedFor = s.Refused.String()
		}
		list = append(list, out)
	}
	return list
}
