package rules

import (
	"fmt"

	"github.com/weir-edge/weir/pkg/field"
)

// DuplicateError reports a request that repeats a header, cookie or query parameter that
// a rule reads. Otherwise the client could choose which value counts, so refuse such a
// request with 400.
type DuplicateError struct {
	Kind string // header, cookie or query
	Name string
}

func (e *DuplicateError) Error() string {
	what := e.Kind
	if what == "query" {
		what = "query parameter"
	}
	return fmt.Sprintf("%s %q occurs more than once; send it once", what, e.Name)
}

// problems collects the faults of a document.
type problems struct {
	list        field.Errors
	following   int // limits that follow load
	experiments int
}

func (p *problems) add(path, format string, args ...any) { p.list.Add(path, format, args...) }
