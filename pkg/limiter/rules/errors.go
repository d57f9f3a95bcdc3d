package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/weir-edge/weir/pkg/limiter"
)

// Errors holds every problem of a document, in its order, up to 1,000. Each is a
// limiter.FieldError whose field is a path such as rules[3].window, or
// "document".
type Errors []error

// Error returns the problems, one a line.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, err := range e {
		lines[i] = err.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap lets errors.As find a single problem.
func (e Errors) Unwrap() []error { return e }

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

// problems collects what is wrong, from parsing and from validation.
type problems struct {
	list []problem
	// seen holds the fields already complained about: a field that could not
	// be read is not also reported as absent.
	seen map[string]bool
}

type problem struct {
	rule int // -1: the document
	err  limiter.FieldError
}

func (p *problems) add(rule int, field, format string, args ...any) {
	path := "document"
	if rule >= 0 {
		path = fmt.Sprintf("rules[%d]", rule)
		if field != "" {
			path += "." + field
		}
	} else if field != "" {
		path = field
	}
	if p.known(path) {
		return
	}
	p.list = append(p.list, problem{rule, limiter.FieldError{Field: path, Msg: fmt.Sprintf(format, args...)}})
}

// unreadable marks all fields that have a problem so far.
func (p *problems) unreadable() {
	p.seen = make(map[string]bool, len(p.list))
	for _, e := range p.list {
		p.seen[e.err.Field] = true
	}
}

// known reports whether a field, or what it is part of, was marked.
func (p *problems) known(field string) bool {
	if len(p.seen) == 0 {
		return false
	}
	for i := range len(field) {
		if (field[i] == '.' || field[i] == '[') && p.seen[field[:i]] {
			return true
		}
	}
	return p.seen[field]
}

// errors returns the problems in the order of the rules, or nil.
func (p *problems) errors() Errors {
	more := len(p.list) - maxProblems
	slices.SortStableFunc(p.list, func(a, b problem) int { return cmp.Compare(a.rule, b.rule) })
	var errs Errors
	for _, e := range p.list[:min(len(p.list), maxProblems)] {
		errs = append(errs, e.err)
	}
	if more > 0 {
		errs = append(errs, limiter.FieldError{Field: "document", Msg: fmt.Sprintf("has %d problems more; repair these first", more)})
	}
	return errs
}

// Suggest returns "; did you mean x?" for the known name nearest to a mistyped one,
// or "".
func Suggest(got string, known ...string) string { return suggest(got, known...) }

// suggest returns "; did you mean x?" for the known name nearest to a mistyped
// one, or "".
func suggest(got string, known ...string) string {
	best, distance := "", 3
	if len(got) <= 3 {
		distance = 2
	}
	if len(got) > maxName {
		return ""
	}
	plain := strings.ReplaceAll(strings.ToLower(got), "-", "_")
	for _, name := range known {
		if d := edits(plain, name); d < distance {
			best, distance = name, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %s?", best)
}

// edits is the Levenshtein distance of two short words.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			substitute := diagonal
			if a[i] != b[j] {
				substitute++
			}
			diagonal = row[j+1]
			row[j+1] = min(substitute, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
