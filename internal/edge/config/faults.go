package config

import (
	"net"
	"slices"
	"time"

	"github.com/weir-edge/weir/pkg/field"
)

// faults collects what is wrong, each with its path.
type faults struct{ list field.Errors }

func (f *faults) add(path, format string, args ...any) { f.list.Add(path, format, args...) }

func (f *faults) address(path, value string) {
	if _, port, err := net.SplitHostPort(value); err != nil || port == "" {
		f.add(path, "must be host:port (got %q)", value)
	} else if _, err := net.LookupPort("tcp", port); err != nil {
		f.add(path, "must have a port of 0 to 65535 (got %q)", value)
	}
}

func (f *faults) positive(path string, d time.Duration) {
	if d <= 0 {
		f.add(path, "must be longer than 0 (got %s), as in 5s", d)
	}
}

func (f *faults) atLeastOne(path string, n int64) {
	if n < 1 {
		f.add(path, "must be at least 1 (got %d)", n)
	}
}

func (f *faults) file(path, name string) { f.list.File(path, name) }

// word reports a value that is not among a field's names.
func (f *faults) word(path, got string, names ...string) {
	if !slices.Contains(names, got) {
		f.add(path, "must be %s%s (got %q)", field.OneOf(names...), field.Suggest(got, names...), got)
	}
}
