package console

import (
	"errors"
	"net/http"
	"strings"

	"github.com/weir-edge/weir/internal/console/access"
)

// kind is what the operation changes, one of access.Kinds.
func (o *Operation) kind() string {
	kind, _, _ := strings.Cut(o.ID, ".")
	return strings.TrimPrefix(kind, "un") // undrain
}

// permitted returns where a person may use the operation: everywhere, or in a list of regions. One
// that takes no region changes all of them, as drains do: they move clients between regions.
func (o *Operation) permitted(person access.Person) (regions []string, everywhere bool) {
	regions, everywhere = person.Rights.Regions(o.Least, o.kind())
	if o.Rollout != haltRollout && !o.takes(inRegion.Name) || o.kind() == access.EverywhereKind {
		regions = nil
	}
	return regions, everywhere
}

// permit decides about every operation: whether the person of a request may use it with these
// values; nil: they are not read yet. It answers a request that it refuses.
func (s *Server) permit(w http.ResponseWriter, r *http.Request, o *Operation, v values) bool {
	person := personOf(r)
	permitted, everywhere := o.permitted(person)
	if len(permitted) > 0 && (v == nil || o.Rollout == haltRollout) { // halt decides for the regions of the rollout
		return true
	}
	err := person.Forbids(o.Least, o.kind(), permitted, everywhere, v[inRegion.Name])
	if err != nil {
		s.forbid(w, o, person, err)
	}
	return err == nil
}

// mayHalt refuses to halt a rollout of regions, none: all, that the person may not change.
func (o *Operation) mayHalt(person access.Person) func(regions []string) error {
	return func(regions []string) error { return person.ForbidsHalt(o.kind(), regions) }
}

// forbid answers with an *access.Forbidden.
func (s *Server) forbid(w http.ResponseWriter, o *Operation, person access.Person, err error) {
	s.Log.Warn("refused", "operation", o.ID, "user", person.Name, "rights", person.Rights.String(), "error", err)
	why := Problem{Type: "about:blank", Title: http.StatusText(http.StatusForbidden), Status: http.StatusForbidden, Detail: err.Error()}
	if not := (*access.Forbidden)(nil); errors.As(err, &not) && len(not.Regions) > 0 {
		why.Reason, why.Regions = reasonRegions, not.Regions
	}
	reply(w, why.Status, why)
}
