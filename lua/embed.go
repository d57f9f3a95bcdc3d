// Package lua holds the scripts that decide inside Redis. An algorithm is one or
// two files of parts, which Take, Return and the other functions insert into the driver of each
// script. See prelude.lua.
package lua

import (
	"embed"
	"fmt"
	"regexp"
	"strings"
)

//go:embed *.lua
var files embed.FS

// algorithms lists the tags in keys, each with the files of its algorithm.
var algorithms = []struct {
	tag   string
	files []string
}{
	{"fw", []string{"fixed_window"}},
	{"sw", []string{"sliding_window"}},
	{"tb", []string{"bucket"}},
	{"tl", []string{"leased_bucket", "bucket"}},
	{"lb", []string{"bucket"}},
	{"rr", []string{"rolling_window_ring"}},
	{"rs", []string{"sorted_set", "rolling_window_set"}},
	{"cc", []string{"sorted_set", "concurrency"}},
}

// Tags returns the tags of all algorithms.
func Tags() []string {
	var tags []string
	for _, a := range algorithms {
		tags = append(tags, a.tag)
	}
	return tags
}

// Take returns the script that decides requests under rules of any algorithm. See take.lua
// for its arguments.
func Take() string { return join("take", "") }

// TakeOne returns the same for rules of one tag. Without the other algorithms each call is
// faster.
func TakeOne(tag string) string { return join("take", tag) }

// SeveralSlots returns a script that does the same as the given one for keys in several slots of
// one Cluster master. It needs Redis 7.0. See several_slots.lua.
func SeveralSlots(script string) string { return read("several_slots") + script }

// Lease returns the script that grants part of a limit in advance. See lease.lua.
func Lease() string { return join("lease", "") }

// Return returns the script that gives back what Take charged. See return.lua.
func Return() string { return join("return", "") }

// Report returns the script that charges what nodes admitted under reported limits. See
// report.lua.
func Report() string { return join("report", "tb") }

// Merge returns the script that charges what other regions admitted. See merge.lua.
func Merge() string { return join("merge", "") }

// Tally returns the script that counts what a node admitted under global limits. See
// tally.lua.
func Tally() string { return join("tally", "tb") }

// Load returns the script that averages the utilization of a region's upstreams. See load.lua.
func Load() string { return join("load", "tb") }

// Move returns the script that moves rights between regions. See move.lua.
func Move() string { return join("move", "fw") }

// Term returns the script that promises windows to regions. See term.lua.
func Term() string { return join("term", "tb") }

// Accounts returns the script that shares nodes' counts of client behavior. See accounts.lua.
func Accounts() string { return join("accounts", "tb") }

// marker matches a line that begins a part in an algorithm's file, and inserts it in a driver.
var marker = regexp.MustCompile(`(?m)^ *--- (\w+)\n`)

// join returns the driver with the parts of one algorithm, or of all if only is empty.
func join(driver, only string) string {
	return marker.ReplaceAllStringFunc(read("prelude")+read(driver), func(line string) string {
		return choose(marker.FindStringSubmatch(line)[1], only)
	})
}

// choose returns a part's code, selected by the rule's tag if there are several algorithms.
func choose(part, only string) string {
	var b strings.Builder
	seen := map[string]bool{}
	for _, a := range algorithms {
		if only != "" && a.tag != only {
			continue
		}
		text := ""
		for _, file := range a.files {
			code := parts(file)[part]
			if part == "functions" && seen[file] {
				code = ""
			}
			seen[file] = true
			text += code
		}
		switch {
		case part == "functions":
			b.WriteString(text)
		case only != "":
			b.WriteString("do\n" + text + "end\n")
		default:
			fmt.Fprintf(&b, "if rule.tag == %q then\n%send\n", a.tag, text)
		}
	}
	return b.String()
}

// parts splits a file at its markers.
func parts(file string) map[string]string {
	text, found := read(file), map[string]string{}
	at := marker.FindAllStringSubmatchIndex(text, -1)
	for i, m := range at {
		end := len(text)
		if i+1 < len(at) {
			end = at[i+1][0]
		}
		found[text[m[2]:m[3]]] = text[m[1]:end]
	}
	return found
}

func read(name string) string {
	text, err := files.ReadFile(name + ".lua")
	if err != nil {
		panic(err) // the compiler embedded it
	}
	return string(text)
}
