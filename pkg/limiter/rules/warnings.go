package rules

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weir-edge/weir/pkg/field"
	"github.com/weir-edge/weir/pkg/paths"
)

// Warnings lists the valid rules that cannot work: the rule treats the readings of one of
// its paths differently, or the path has no reading, so every request for it gets 400.
func (s *Set) Warnings() (list []string) {
	for _, c := range s.rules {
		if c.Mode == Off {
			continue
		}
		for i, pattern := range c.match.paths {
			list = appendWarning(list, fmt.Sprintf("rule %s: match.paths[%d]", c.ID, i), pattern, "the rule does not match", c.countsPath)
		}
		for i, pattern := range c.notPaths {
			list = appendWarning(list, fmt.Sprintf("rule %s: match.not.paths[%d]", c.ID, i), pattern, "the rule does not exempt", c.countsPath)
		}
	}
	return list
}

// Warnings does the same for a list of conditions of which the first match decides. leads
// are the destinations of the conditions, otherwise is the destination of a request that
// meets none, and at names a condition.
func (x *Matcher) Warnings(leads []int, otherwise int, at func(i int) string) (list []string) {
	for i, c := range x.set.rules {
		alike := func(path string) bool {
			return leads[i] == otherwise || slices.ContainsFunc(x.set.rules, func(o *Compiled) bool { return leads[o.Index] == leads[i] && o.countsPath(path) })
		}
		for k, pattern := range c.match.paths {
			taken := func(o *Compiled) bool {
				return leads[o.Index] != leads[i] && o.match.onlyPaths() && o.countsPath(pattern)
			}
			if !slices.ContainsFunc(x.set.rules[:i], taken) {
				list = appendWarning(list, fmt.Sprintf("%s.paths[%d]", at(i), k), pattern, "leads elsewhere", alike)
			}
		}
	}
	return list
}

// anything stands in for what * matches: plain bytes in a path.
const anything = "…"

// encoded turns a path into what a client sends.
var encoded = strings.NewReplacer("%", "%25", " ", "%20")

// appendWarning adds a warning if the pattern's own path has no reading, or one for which
// counts differs.
func appendWarning(list []string, at, pattern, differs string, counts func(path string) bool) []string {
	path := pattern
	if start, open := strings.CutSuffix(pattern, "*"); open {
		path = start + anything
	}
	var r paths.Readings
	if err := r.Read([]byte(encoded.Replace(path))); err != nil {
		return append(list, fmt.Sprintf("%s: every request for %s gets 400: %v", at, field.Shown(pattern), err))
	}
	for i := range r.Len() {
		reading := string(r.At(i))
		if counts(reading) == counts(path) {
			continue
		}
		if start, open := strings.CutSuffix(reading, anything); open {
			reading = start + "*"
		}
		other := field.Shown(reading)
		return append(list, fmt.Sprintf("%s: other origins read %s as %s, which %s, so every request for it gets 400; add %s", at, field.Shown(pattern), other, differs, other))
	}
	return list
}

func (c *conditions) onlyPaths() bool {
	return len(c.hosts)+len(c.methods)+len(c.clients)+len(c.headers) == 0
}

func (c *Compiled) countsPath(path string) bool {
	return (len(c.match.paths) == 0 || listed(c.match.paths, path)) && !listed(c.notPaths, path)
}

func listed(patterns []string, path string) bool {
	for _, p := range patterns {
		if start, open := strings.CutSuffix(p, "*"); path == p || open && strings.HasPrefix(path, start) {
			return true
		}
	}
	return false
}
