package console

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/weir-edge/weir/internal/console/access"
)

const reasonRegions = "regions"

// kind is what the operation changes, one of access.Kinds.
func (o *Operation) kind() string {
	kind, _, is := strings.Cut(o.ID, ".")
	if !is {
		return "drains" // drain and undrain
	}
	return kind
}

// permitted returns where a person may use the operation: everywhere, or in a list of regions. One
// that takes no region changes all of them, as drains do: they move clients between regions.
func (o *Operation) permitted(person access.Person) (regions []string, everywhere bool) {
	regions, everywhere = person.Rights.Regions(o.Least, o.kind())
	if o.Rollout != haltRollout && !o.takes(inRegion.Name) || o.kind() == "drains" {
		regions = nil
	}
	return regions, everywhere
}

// permit decides about every operation: whether the person of a request may use it with these
// values; nil: they are not read yet. It answers a request that it refuses.
func (s *Server) permit(w http.ResponseWriter, r *http.Request, o *Operation, v values) bool {
	person := personOf(r)
	permitted, everywhere := o.permitted(person)
	wanted := v[inRegion.Name]
	if o.Rollout == haltRollout && v != nil {
		wanted = s.rollout.regions()
	}
	foreign := func(name string) bool { return !slices.Contains(permitted, name) }
	switch {
	case everywhere, v == nil && len(permitted) > 0, len(wanted) > 0 && !slices.ContainsFunc(wanted, foreign):
		return true
	}
	what := access.Right{May: o.Least, Regions: wanted}
	if o.Least > access.Reader {
		what.Kinds = []string{o.kind()}
	}
	if what.Regions == nil {
		what.Regions = []string{"all regions"}
	}
	why := Problem{Type: "about:blank", Title: http.StatusText(http.StatusForbidden), Status: http.StatusForbidden, Detail: fmt.Sprintf("this needs the role %s, and %s is %s", what, person.Name, person.Rights)}
	if len(permitted) > 0 {
		why.Reason, why.Regions = reasonRegions, permitted
		why.Detail += "; name only " + strings.Join(permitted, ", ") + " in region, or"
	} else {
		why.Detail += ";"
	}
	why.Detail += " ask the console's administrator"
	s.Log.Warn("refused", "operation", o.ID, "user", person.Name, "rights", person.Rights.String(), "regions", wanted)
	reply(w, why.Status, why)
	return false
}
