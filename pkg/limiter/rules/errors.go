package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-edge/weir/pkg/field"
)

// DuplicateError says that a request carries a header, cookie or query
// parameter more than once that a rule looks at. Which of the values counts
// would be the client's choice, so such a request is to be refused with 400.
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

// problems collects what is wrong.
type problems struct{ list field.Errors }

func (p *problems) add(path, format string, args ...any) { p.list.Add(path, format, args...) }

// inOrder returns problems in the order of the rules.
func inOrder(list field.Errors) field.Errors {
	slices.SortStableFunc(list, func(a, b *field.Error) int { return cmp.Compare(place(a.Path), place(b.Path)) })
	return list.Bounded()
}

// place is the index of the rule that a path leads into, or -1.
func place(path string) int {
	_, rest, _ := strings.Cut(path, "[")
	digits, _, _ := strings.Cut(rest, "]")
	if i, err := strconv.Atoi(digits); err == nil {
		return i
	}
	return -1
}
