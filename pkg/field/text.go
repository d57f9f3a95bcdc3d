package field

import (
	"fmt"
	"strconv"
	"strings"
)

// longestShown bounds what a message repeats from a document.
const longestShown = 64

// Shown quotes a value for a message, shortened.
func Shown(s string) string {
	if len(s) > longestShown {
		return strconv.Quote(strings.ToValidUTF8(s[:longestShown], "")) + "…"
	}
	return strconv.Quote(s)
}

// Join returns the path of a value at path below prefix: a.b, or a[0].
func Join(prefix, path string) string {
	if prefix == "" || path == "" || path[0] == '[' {
		return prefix + path
	}
	return prefix + "." + path
}

// Index returns the path of an item of a list.
func Index(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }

// Name returns an arbitrary name as it appears in a path: in quotes if it could be taken
// for part of one.
func Name(name string) string {
	for i := range len(name) {
		if c := name[i]; !(c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '-' || c == '_') {
			return Shown(name)
		}
	}
	if name == "" || len(name) > longestShown {
		return Shown(name)
	}
	return name
}

// OneOf returns "a, b or c".
func OneOf(names ...string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// Suggest returns "; did you mean x?" for the known name nearest to a mistyped one, or
// "".
func Suggest(got string, known ...string) string {
	best, distance := "", 3
	if len(got) <= 3 {
		distance = 2
	}
	if len(got) > longestShown {
		return ""
	}
	plain := strings.ReplaceAll(strings.ToLower(got), "-", "_")
	for _, name := range known {
		if d := edits(plain, strings.ReplaceAll(strings.ToLower(name), "-", "_")); d < distance {
			best, distance = name, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %s?", best)
}

// SuggestOr is Suggest, or lists all names if none is near.
func SuggestOr(got string, known ...string) string {
	if hint := Suggest(got, known...); hint != "" || len(known) == 0 {
		return hint
	}
	return "; use " + OneOf(known...)
}

// edits returns the Levenshtein distance of two short words.
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
