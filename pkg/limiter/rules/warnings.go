package rules

import (
	"fmt"
	"strings"

	"github.com/weir-edge/weir/pkg/field"
	"github.com/weir-edge/weir/pkg/paths"
)

// Warnings returns the valid rules that cannot work: the rule treats the readings of one
// of its paths differently, so every request for it gets 400.
func (s *Set) Warnings() (list []string) {
	var r paths.Readings
	for _, c := range s.rules {
		if c.Mode == Off {
			continue
		}
		for i, pattern := range c.match.paths {
			if other, ok := c.otherReading(&r, pattern); ok {
				list = append(list, fmt.Sprintf("rule %s: match.paths[%d]: %s is %s to other origins, which the rule does not match, so every request for it gets 400; add %s",
					c.ID, i, field.Shown(pattern), field.Shown(other), field.Shown(other)))
			}
		}
		for i, pattern := range c.notPaths {
			if other, ok := c.otherReading(&r, pattern); ok {
				list = append(list, fmt.Sprintf("rule %s: match.not.paths[%d]: %s is %s to other origins, which the rule does not exempt, so every request for it gets 400; add %s",
					c.ID, i, field.Shown(pattern), field.Shown(other), field.Shown(other)))
			}
		}
	}
	return list
}

// otherReading returns a reading of a pattern's own path that the rule counts although it
// does not count the pattern, or vice versa.
func (c *Compiled) otherReading(r *paths.Readings, pattern string) (string, bool) {
	path := strings.TrimSuffix(pattern, "*")
	if err := r.Read([]byte(strings.ReplaceAll(path, "%", "%25"))); err != nil {
		return "", false
	}
	for i := range r.Len() {
		if reading := string(r.At(i)); c.countsPath(reading) != c.countsPath(path) {
			return reading, true
		}
	}
	return "", false
}

func (c *Compiled) countsPath(path string) bool {
	return (c.match.paths == nil || listed(c.match.paths, path)) && !listed(c.notPaths, path)
}

func listed(patterns []string, path string) bool {
	for _, p := range patterns {
		if start, open := strings.CutSuffix(p, "*"); path == p || open && strings.HasPrefix(path, start) {
			return true
		}
	}
	return false
}
