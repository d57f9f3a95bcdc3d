// Package field reads documents that people write in YAML or JSON, and reports what is
// wrong with them: each fault with the path of its field, its line and the remedy.
//
// Read is strict about the form and bounds what a hostile document can cost. Decode fills
// tagged structs. The owners of the values check their meaning and report faults as Errors
// too; Locate then finds the lines.
package field

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strings"
)

// Error is one fault of a document.
type Error struct {
	Path string // such as rules[3].window; "" is the document as a whole
	Msg  string // what is wrong and what to do; "must be at least 1ms (got 0s)"
	Line int    // counted from 1; 0 if unknown
	File string // "" unless In named it
	rest int    // of how many other faults this is the count
}

// Error returns "path: msg", preceded by the place if the file is known.
func (e *Error) Error() string {
	where := e.Name() + ": "
	if e.File != "" {
		if e.Path == "" {
			where = ""
		}
		position := e.File
		if e.Line > 0 {
			position = fmt.Sprintf("%s:%d", e.File, e.Line)
		}
		where = position + ": " + where
	}
	return where + e.Msg
}

// Name returns the path, or "document" for the document as a whole.
func (e *Error) Name() string { return cmp.Or(e.Path, "document") }

// Errors holds the faults of a document. As an error it is never empty: see Err.
type Errors []*Error

// Error returns the faults, one per line.
func (l Errors) Error() string {
	lines := make([]string, len(l))
	for i, e := range l {
		lines[i] = e.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap lets errors.As find a single fault.
func (l Errors) Unwrap() []error {
	list := make([]error, len(l))
	for i, e := range l {
		list[i] = e
	}
	return list
}

// Err returns l, or nil if it is empty.
func (l Errors) Err() error {
	if len(l) == 0 {
		return nil
	}
	return l
}

// Add appends a fault.
func (l *Errors) Add(path, format string, args ...any) {
	*l = append(*l, &Error{Path: path, Msg: fmt.Sprintf(format, args...)})
}

// File reports a named file that does not exist. An empty name is ignored.
func (l *Errors) File(path, name string) {
	if name == "" {
		return
	}
	if info, err := os.Stat(name); err != nil {
		l.Add(path, "%v", err)
	} else if info.IsDir() {
		l.Add(path, "%s is a folder; name a file", name)
	}
}

// Take appends the faults of err, which may be nil, under the field at prefix.
func (l *Errors) Take(prefix string, err error) { *l = append(*l, All(err).Under(prefix)...) }

// With returns l and those faults of later that l does not already explain: neither their
// field nor one that contains it has a fault in l.
func (l Errors) With(later Errors) Errors {
	unread := make(map[string]bool, len(l))
	for _, e := range l {
		unread[e.Path] = true
	}
	explained := func(path string) bool {
		for i := range len(path) {
			if (path[i] == '.' || path[i] == '[') && unread[path[:i]] {
				return true
			}
		}
		return unread[path]
	}
	for _, e := range later {
		if !explained(e.Path) {
			l = append(l, e)
		}
	}
	return l
}

// Under returns the faults of a value as faults of the larger document that holds it at
// prefix.
func (l Errors) Under(prefix string) Errors {
	return l.each(func(e *Error) { e.Path = Join(prefix, e.Path) })
}

// In returns the faults with their file set.
func (l Errors) In(file string) Errors {
	return l.each(func(e *Error) { e.File = file })
}

func (l Errors) each(change func(*Error)) Errors {
	out := make(Errors, len(l))
	for i, e := range l {
		changed := *e
		change(&changed)
		out[i] = &changed
	}
	return out
}

// Bounded returns the first faults, at most this many, and a count of the rest.
func (l Errors) Bounded(most int) Errors {
	if len(l) <= most {
		return l
	}
	cut := l[:most:most]
	cut.addRest(l[most:].Count())
	return cut
}

// addRest adds the count of faults that are not listed.
func (l *Errors) addRest(n int) {
	*l = append(*l, &Error{Msg: fmt.Sprintf("has %d more problems; fix these first", n), rest: n})
}

// Count returns how many faults there are, listed or not.
func (l Errors) Count() (n int) {
	for _, e := range l {
		n += max(1, e.rest)
	}
	return n
}

// All returns every fault in err, which may wrap or join several. An error without a
// field becomes a fault of the whole document. It returns nil for nil.
func All(err error) Errors {
	switch e := err.(type) {
	case nil:
		return nil
	case Errors:
		return e
	case *Error:
		return Errors{e}
	case interface{ Unwrap() []error }:
		// Only errors.Join adds no text of its own.
		if list := e.Unwrap(); errors.Join(list...).Error() == err.Error() {
			var all Errors
			for _, err := range list {
				all = append(all, All(err)...)
			}
			return all
		}
	}
	if inner := errors.Unwrap(err); inner != nil {
		var list Errors
		var one *Error
		if errors.As(inner, &list) || errors.As(inner, &one) {
			return All(inner)
		}
	}
	return Errors{{Msg: err.Error()}}
}
